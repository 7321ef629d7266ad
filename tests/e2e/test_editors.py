"""What editors do to the session's port: leave, come early, probe, come twice."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tests.support.tkrig import Project, eventually
from tunnelkit.debug.client import DapClient
from tunnelkit.errors import DebugError

#: Writes a file after the line where every test stops.
SOURCE = """\
import pathlib

word = "here"
print("stopped before this line")
pathlib.Path("ran-on").write_text(word)
"""


@pytest.fixture
async def looping(project: Project) -> Project:
    project.write("2.py", SOURCE)
    await project.up("node1")
    await project.loop("python", "2.py")
    return project


async def initialized(project: Project) -> DapClient:
    editor = await project.editor()
    await editor.request("initialize", clientID="x", adapterID="debugpy")
    return editor


@pytest.mark.parametrize("goodbye", ["disconnect", "drop"])
async def test_stop_means_stop(looping: Project, goodbye: str) -> None:
    for _ in range(3):
        editor, _, frame = await looping.f5_to_stop(4)
        assert frame["line"] == 4
        if goodbye == "disconnect":
            await editor.request("disconnect")
        await editor.drop()
    await looping.ready()
    assert not looping.remote("ran-on").exists()


async def test_probes_and_early_goodbyes_cost_nothing(looping: Project) -> None:
    port = (await looping.status())["debug_port"]
    for _ in range(20):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
    for goodbye in ("close", "drop") * 3:
        editor = await initialized(looping)
        await getattr(editor, goodbye)()
    editor, thread, _ = await looping.f5_to_stop(4)
    await editor.finish(thread)
    await eventually(looping.remote("ran-on").exists, "the program's end")


async def test_a_second_editor_is_told_of_the_first(looping: Project) -> None:
    first, thread, frame = await looping.f5_to_stop(4)
    second = await looping.editor()
    with pytest.raises(DebugError, match="already debugging this process"):
        await second.request("initialize", clientID="x", adapterID="debugpy")
    await second.drop()
    assert await first.evaluate("word", frame) == "'here'"
    await first.finish(thread)


async def test_an_early_f5_waits_for_the_next_debuggee(looping: Project) -> None:
    """Five at once: each gets a debuggee of its own, one after the other, or is told why not."""

    async def one() -> str:
        while True:
            editor = await looping.editor()
            try:
                await editor.attach(
                    {str(looping.dir / "2.py"): [4]}, path_mappings=looping.path_mappings
                )
                thread, _ = await editor.stopped()
                await editor.finish(thread)
                return "debugged"
            except DebugError as refused:
                # Anything but this answer would be a lost F5.
                assert "already debugging" in str(refused), refused
                with contextlib.suppress(OSError):
                    await editor.drop()

    assert await asyncio.gather(*(one() for _ in range(5))) == ["debugged"] * 5


async def test_without_a_loop_the_port_says_so(project: Project) -> None:
    await project.up("node1")
    editor = await project.editor()
    with pytest.raises(DebugError, match="No debug loop is running"):
        await editor.request("initialize", clientID="x", adapterID="debugpy")
    await editor.drop()
