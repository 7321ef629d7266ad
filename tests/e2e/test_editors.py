"""What editors do to the session's port: leave, come early, probe, come twice."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tests.support.editors import names
from tests.support.tkrig import Project, eventually
from tunnelkit.demo.dap_client import DapClient
from tunnelkit.errors import DebugError

#: Writes a file after the line where every test stops.
SOURCE = """\
import pathlib

word = "here"
print("stopped before this line")
pathlib.Path("ran-on").write_text(word)
"""

ENDLESS = """\
import time
step = 0
while True:
    step += 1
    time.sleep(0.01)
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


async def test_a_late_disconnect_is_about_its_own_run_only(looping: Project) -> None:
    """Some clients keep the connection open after `terminated`, until their window is closed."""
    late = []
    for _ in range(3):
        editor, thread, _ = await looping.f5_to_stop(4)
        await editor.request("continue", threadId=thread)
        await editor.wait_event("terminated")
        late.append(editor)
    now, thread, frame = await looping.f5_to_stop(4)
    for number, editor in enumerate(late):
        # Answered, or hung up on: both end the client's session.
        with contextlib.suppress(DebugError):
            await asyncio.wait_for(editor.request("disconnect"), 20)
        if number % 2:
            await editor.drop()
    assert await now.evaluate("word", frame) == "'here'"
    await now.finish(thread)


async def test_terminate_and_at_once_again(looping: Project) -> None:
    """`terminate` instead of `disconnect`, and the next session before the old one is closed."""
    old = []
    for _ in range(4):
        editor, _, frame = await looping.f5_to_stop(4)
        assert await editor.evaluate("word", frame) == "'here'"
        await editor.request("terminate")
        await editor.wait_event("terminated")
        old.append(editor)
    assert not looping.remote("ran-on").exists()
    for editor in old:
        await editor.close()


async def test_the_end_is_told_once_and_in_order(looping: Project) -> None:
    editor, thread, _ = await looping.f5_to_stop(4)
    await editor.request("continue", threadId=thread)
    await eventually(lambda: "terminated" in names(editor), "the end is told")
    await editor.request("disconnect")
    told = names(editor)
    assert told.count("exited") == told.count("terminated") == 1
    assert told.index("exited") < told.index("terminated")
    # It has had its one `initialized` in attaching.
    assert "initialized" not in told


async def test_requests_before_their_time_are_answered(looping: Project) -> None:
    """Before `attach` there is nothing to ask; a client that asks is told so and goes on."""
    editor = await initialized(looping)
    for command in ("threads", "stackTrace", "evaluate"):
        with pytest.raises(DebugError):
            await asyncio.wait_for(editor.request(command, threadId=1, expression="1"), 20)
    attached = asyncio.create_task(editor.request("attach", subProcess=False))
    await editor.wait_event("initialized")
    breakpoints = [{"line": 4}]
    source = {"path": str(looping.dir / "2.py")}
    await editor.request("setBreakpoints", source=source, breakpoints=breakpoints)
    await editor.request("configurationDone")
    await attached
    thread, frame = await editor.stopped()
    assert (frame["line"], frame["source"]["path"]) == (4, source["path"])
    await editor.finish(thread)


async def test_all_at_once_without_waiting_for_answers(looping: Project) -> None:
    """A client that sends its whole configuration in one go, as a script would."""
    editor = await looping.editor()
    source = {"path": str(looping.dir / "2.py")}
    work = [
        editor.request("initialize", adapterID="debugpy"),
        editor.request("attach"),
        editor.request("setBreakpoints", source=source, breakpoints=[{"line": 4}]),
        editor.request("configurationDone"),
    ]
    async with asyncio.timeout(30):
        *_, breakpoints, _ = await asyncio.gather(*work)
    assert breakpoints["breakpoints"][0]["verified"]
    thread, frame = await editor.stopped()
    assert frame["line"] == 4
    await editor.finish(thread)


async def test_breakpoints_set_late_and_taken_away(looping: Project) -> None:
    """The program runs already; no breakpoint came with the configuration."""
    looping.write(
        "2.py", "import time\nstep = 0\nwhile True:\n    step += 1\n    time.sleep(0.01)\n"
    )
    await looping.tk("sync", "--wait")
    editor = await looping.f5()
    source = {"path": str(looping.dir / "2.py")}
    for _ in range(2):
        answer = await editor.request(
            "setBreakpoints", source=source, breakpoints=[{"line": 4, "condition": "step > 9"}]
        )
        assert answer["breakpoints"][0]["verified"], answer
        thread, frame = await editor.stopped()
        assert int(await editor.evaluate("step", frame)) > 9
        await editor.request("setBreakpoints", source=source, breakpoints=[])
        await editor.request("continue", threadId=thread)
        with pytest.raises(TimeoutError):
            await editor.wait_event("stopped", timeout_s=0.5)
    await editor.request("disconnect")


async def test_without_a_loop_the_port_says_so(project: Project) -> None:
    await project.up("node1")
    editor = await project.editor()
    with pytest.raises(DebugError, match="No debug loop is running"):
        await editor.request("initialize", clientID="x", adapterID="debugpy")
    await editor.drop()
