"""The main job as one story, for every rig and every link: up, mirror, loop, F5, edit, F5, down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tests.support.dap_driver import FarEditor
from tests.support.tkrig import PROGRAM, Project, line_of

STOP = line_of(PROGRAM, "total += step")


async def main_job(
    project: Project, *flags: str, at_stop: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Do it all on node1, and see each step's effect there.

    flags: for `tk up`, besides the node and what it asks for. at_stop: what befalls the cluster
    while the program is stopped at the breakpoint; the debug session must survive it.
    """
    try:
        await _main_job(project, flags, at_stop)
    except BaseException as error:
        error.add_note(project.session_log())
        raise


async def _main_job(
    project: Project, flags: Sequence[str], at_stop: Callable[[], Awaitable[None]] | None
) -> None:
    status = await project.up("node1", "--gpus", "1", "--cpus", "2", *flags)
    assert (status["state"], status["node"]) == ("ready", "node1")
    assert await project.jobs() == [f"{status['job']['id']} RUNNING"]
    terminal = await project.loop("python", "2.py")
    await project.ready()
    # An editor has to be where the session's port is.
    async with FarEditor(project.lab.enter) as editor:
        await _first_f5(project, editor, at_stop)
        await terminal.line(r"^node node1$")
        await terminal.line(r"run 1 · ended: exit code 0")
        await terminal.line(r"run 2 .*armed")

        project.write("2.py", PROGRAM.replace('"first"', '"second"'))
        await project.ready()
        assert await _f5(project, editor) == STOP
        assert await editor.do("evaluate", expression="WORD") == "'second'"
        await editor.do("finish")
    again = await project.status()
    assert (again["state"], again["job"]["id"]) == ("ready", status["job"]["id"])
    await project.tk("down")
    assert await terminal.ended() == 0
    await project.nothing_left()


async def _first_f5(
    project: Project, editor: FarEditor, at_stop: Callable[[], Awaitable[None]] | None
) -> None:
    async def value(expression: str) -> Any:
        return await editor.do("evaluate", expression=expression)

    assert await _f5(project, editor) == STOP
    for name, wanted in project.node_environ.items():
        assert await value(f"os.environ[{name!r}]") == repr(wanted)
    pid = await value("os.getpid()")
    if at_stop is not None:
        await at_stop()
    assert await editor.do("next") == STOP + 1
    assert await value("os.getpid()") == pid
    await editor.do("finish")


async def _f5(project: Project, editor: FarEditor) -> int:
    """F5 with one breakpoint: the line at which it stopped."""
    path = str(project.dir / "2.py")
    return int(
        await editor.do(
            "f5", port=project.port, mappings=project.path_mappings, path=path, line=STOP
        )
    )
