"""Debugging in a pod that is there, as people do with `oc port-forward`: two commands, then F5."""

from __future__ import annotations

import pytest

from tests.support.kubernetes import Member
from tests.support.kubernetes.project import POD, WORK, RigProject
from tests.support.kubernetes.rig import FIRST_UID
from tests.support.tkrig import PROGRAM, line_of

pytestmark = [
    pytest.mark.root,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("ml_dev_env"),
]

STOP = line_of(PROGRAM, "total += step")
ROUNDS = 50


def running(member: Member) -> set[str]:
    """Command lines of the pod's processes, but for those that this look needs."""
    lines = member.shell(POD, "ps -eo args=").splitlines()
    return {line for line in lines if "ps -eo" not in line}


def own_files(member: Member) -> set[str]:
    """All that belongs to the pod's user."""
    places = "find / /dev/shm -xdev -user $(id -u) ! -path '/proc/*' 2>/dev/null; true"
    return set(member.shell(POD, places).splitlines())


async def test_two_commands_and_f5(member: Member, project: RigProject) -> None:
    """As a user of a project's own uid, who has no entry in passwd and no capability."""
    assert int(member.shell(POD, "id -u")) >= FIRST_UID
    processes, files = running(member), own_files(member)
    project.set_up_by_init("--remote", WORK)
    await project.tk("up", POD)
    terminal = await project.loop("python3", "2.py")
    project.port = int((await project.status())["debug_port"])
    for word in ("first", "second"):
        project.write("2.py", PROGRAM.replace('"first"', f'"{word}"'))
        await project.ready()
        editor, thread, frame = await project.f5_to_stop(STOP)
        assert await editor.evaluate("WORD", frame) == f"'{word}'"
        assert int(await editor.evaluate("os.getuid()", frame)) >= FIRST_UID
        await editor.request("setBreakpoints", source={"path": str(project.dir / "2.py")})
        await editor.finish(thread)
        await terminal.line(rf"step 2 {word}")
    done = await project.tk("down")
    assert f"{POD} is yours and goes on" in done.out
    await terminal.ended()
    assert running(member) - processes <= {"[python3] <defunct>"}
    left = {one for one in own_files(member) - files if not one.startswith(f"{WORK}/.vscode")}
    assert left == {f"{WORK}/2.py", f"{WORK}/tunnelkit.toml"}


@pytest.mark.parametrize("program", ["kubectl", "oc"])
async def test_fifty_times_f5_and_none_is_refused(
    member: Member, project: RigProject, program: str
) -> None:
    """Each at once after the last one's end, with each of the two programs that people have."""
    project.use(program)
    await project.up(POD)
    await project.loop("python3", "2.py")
    for _ in range(ROUNDS):
        editor, thread, _ = await project.f5_to_stop(STOP)
        await editor.request("setBreakpoints", source={"path": str(project.dir / "2.py")})
        await editor.finish(thread)
        await editor.close()
    await project.tk("down")
