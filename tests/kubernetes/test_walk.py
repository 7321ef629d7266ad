"""Debugging in a pod that is there, as people do with `oc port-forward`: two commands, then F5."""

from __future__ import annotations

import pytest

from tests.support.kubernetes import Member
from tests.support.kubernetes.project import WORK, RigProject, pod
from tests.support.kubernetes.rig import FIRST_UID
from tests.support.tkrig import PROGRAM, line_of

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

STOP = line_of(PROGRAM, "total += step")
POD = "ml-dev-env"
ROUNDS = 50


@pytest.fixture(scope="module", autouse=True)
def made(member: Member) -> None:
    member.make(pod(POD))
    member.wait_ready(POD)


async def test_two_commands_and_f5(member: Member, project: RigProject) -> None:
    """As a user of a project's own uid, who has no entry in passwd and no capability."""
    assert int(member.shell(POD, "id -u")) >= FIRST_UID
    processes = member.shell(POD, "ps -eo args= | sort")
    files = sorted(member.shell(POD, "find / -xdev -newer /proc/1 -type f").splitlines())
    project.set_up_by_init("--remote", WORK)
    await project.tk("up", POD)
    terminal = await project.loop("python", "2.py")
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
    left = set(member.shell(POD, "ps -eo args= | sort").splitlines()) - set(processes.splitlines())
    assert [one for one in left if "defunct" not in one and "ps -eo" not in one] == []
    new = set(member.shell(POD, "find / -xdev -newer /proc/1 -type f").splitlines()) - set(files)
    assert {one for one in new if not one.startswith("/proc/")} == {
        f"{WORK}/2.py",
        f"{WORK}/tunnelkit.toml",
    }


@pytest.mark.parametrize("program", ["kubectl", "oc"])
async def test_fifty_times_f5_and_none_is_refused(
    member: Member, project: RigProject, program: str
) -> None:
    """Each at once after the last one's end, with each of the two programs that people have."""
    project.use(program)
    await project.up(POD)
    await project.loop("python", "2.py")
    for _ in range(ROUNDS):
        editor, thread, _ = await project.f5_to_stop(STOP)
        await editor.request("setBreakpoints", source={"path": str(project.dir / "2.py")})
        await editor.finish(thread)
        await editor.close()
    await project.tk("down")
