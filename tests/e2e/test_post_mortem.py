"""Uncaught exceptions: the editor stops at them, and --post-mortem keeps them until one comes."""

from __future__ import annotations

import asyncio

import pytest

from tests.support import processes
from tests.support.tkrig import PATIENCE_S, Project, Terminal
from tunnelkit.demo.dap_client import DapClient, Message

FAILS = """\
    import sys
    def work(numbers):
        total = sum(numbers)
        raise ValueError(f"bad {total}")
    print("begins", flush=True)
    work([1, 2])
    """
#: Goes on once it is let, so that the editor can leave first.
WAITS = """\
    import os
    import sys
    import threading
    import time
    def work(numbers):
        total = sum(numbers)
        raise ValueError(f"bad {total}")
    print("begins", flush=True)
    while not os.path.exists("go"):
        time.sleep(0.01)
    sys.excepthook = lambda *how: print("a hook of its own", flush=True)
    if "thread" in sys.argv:
        one = threading.Thread(target=work, args=([1, 2],))
        one.start()
        one.join()
        print("main goes on", flush=True)
    else:
        work([1, 2])
    """


@pytest.fixture
async def up(project: Project) -> Project:
    await project.up("node1", "--cpus", "2")
    return project


async def plain_attach(project: Project, **initialize: object) -> tuple[DapClient, Message]:
    """An editor that knows of no exceptions: it never sends setExceptionBreakpoints. And what
    the adapter says that it can do."""
    editor = await project.editor()
    able = await editor.request(
        "initialize", adapterID="debugpy", clientID="plain", pathFormat="path", **initialize
    )
    attached = asyncio.create_task(
        editor.request("attach", pathMappings=project.path_mappings, justMyCode=True)
    )
    await editor.wait_event("initialized", timeout_s=PATIENCE_S)
    await editor.request("configurationDone")
    await attached
    return editor, able


async def at_the_exception(project: Project, editor: DapClient, file: str) -> int:
    """See that it is stopped there, with everything to be seen; the thread."""
    event = await editor.wait_event("stopped", timeout_s=PATIENCE_S)
    assert event["reason"] == "exception"
    thread = int(event["threadId"])
    stack = await editor.request("stackTrace", threadId=thread, startFrame=0, levels=20)
    frame = stack["stackFrames"][0]
    assert (frame["name"], frame["source"]["path"]) == ("work", str(project.dir / file))
    assert await editor.evaluate("total, numbers", frame) == "(3, [1, 2])"
    info = await editor.request("exceptionInfo", threadId=thread)
    assert "ValueError" in info["exceptionId"] and info["description"] == "bad 3"
    return thread


async def test_an_editor_that_asks_for_nothing_stops_at_uncaught_exceptions(up: Project) -> None:
    up.write("fails.py", FAILS)
    terminal = await up.loop("python", "fails.py")
    editor, able = await plain_attach(up)
    # VS Code sends these filters by itself: those that are on by default.
    defaults = [one["filter"] for one in able["exceptionBreakpointFilters"] if one.get("default")]
    assert defaults == ["uncaught"]
    thread = await at_the_exception(up, editor, "fails.py")
    await editor.request("continue", threadId=thread)
    assert (await editor.wait_event("exited"))["exitCode"] == 1
    await editor.wait_event("terminated")
    await terminal.line(r"run 1 · ended: exit code 1")
    answers = [event for event in editor.events if event.get("type") == "response"]
    assert not answers


async def test_an_editor_that_asks_for_no_stop_gets_none(up: Project) -> None:
    up.write("fails.py", FAILS)
    await up.loop("python", "fails.py")
    editor = await up.f5(file="fails.py")
    assert (await editor.wait_event("exited"))["exitCode"] == 1
    assert not [event for event in editor.events if event["event"] == "stopped"]


async def left_to_die(project: Project, *options: str, words: tuple[str, ...] = ()) -> Terminal:
    """A program whose editor has left, and which then came to its exception."""
    project.write("waits.py", WAITS)
    terminal = await project.loop(*options, "python", "waits.py", *words)
    editor = await project.f5(file="waits.py")
    await terminal.line("begins")
    # Answered once the debuggee knows it.
    await editor.request("disconnect")
    await editor.drop()
    project.remote("go").touch()
    return terminal


@pytest.mark.parametrize("standby", ["--standby", "--no-standby"])
async def test_a_program_that_died_alone_is_kept_until_an_editor_comes(
    up: Project, standby: str
) -> None:
    terminal = await left_to_die(up, "--post-mortem", standby)
    await terminal.line(r"run 1 · kept at ValueError: bad 3 \(waits.py:7\): press F5")
    shown = (await up.tk("status")).out
    assert "kept at ValueError: bad 3 (waits.py:7): press F5" in shown
    assert (await up.ready())["generation"] == 1
    editor = await up.f5(file="waits.py")
    thread = await at_the_exception(up, editor, "waits.py")
    assert (await up.status())["loops"][0]["kept"] is None
    up.remote("go").unlink()
    await editor.request("continue", threadId=thread)
    assert (await editor.wait_event("exited"))["exitCode"] == 1
    await terminal.line("a hook of its own")
    await terminal.line(r"run 1 · ended: exit code 1")
    await terminal.line(r"run 2 .*armed")


async def test_a_kept_program_is_dropped_by_ctrl_c(up: Project) -> None:
    terminal = await left_to_die(up, "--post-mortem")
    await terminal.line("kept at ValueError")
    pid = int((await up.status())["loops"][0]["pid"])
    terminal.interrupt()
    await terminal.line(r"run 1 · ended: .*restarted by you")
    await terminal.line(r"run 2 .*armed")
    assert not processes.is_alive(pid)


async def test_an_exception_in_a_thread_is_kept_too(up: Project) -> None:
    terminal = await left_to_die(up, "--post-mortem", words=("thread",))
    await terminal.line("kept at ValueError: bad 3")
    editor, _ = await plain_attach(up)
    thread = await at_the_exception(up, editor, "waits.py")
    await editor.request("continue", threadId=thread)
    await terminal.line("main goes on")
    await terminal.line(r"run 1 · ended: exit code 0")


async def test_without_the_flag_nothing_is_kept(up: Project) -> None:
    up.configure('on_disconnect = "continue"\n')
    await up.tk("down")
    await up.up("node1", "--cpus", "2")
    terminal = await left_to_die(up)
    await terminal.line("a hook of its own")
    await terminal.line(r"run 1 · ended: exit code 1")
    assert "kept" not in terminal.text
