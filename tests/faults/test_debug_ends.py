"""How a debuggee may end, and that nothing of it is left when the next one's program is read.

Faults of a debug session, and the tests that hold what should happen then:

| fault | test |
|---|---|
| SIGSEGV, `os._exit(7)` | e2e/test_dap_port: test_the_editor_hears_how_the_program_ended; e2e/test_loop: test_how_a_run_ended_is_told_and_the_next_is_armed |
| uncaught exception | here: test_an_uncaught_exception_stops_with_its_locals |
| hang at exit | here: test_a_hang_at_exit_is_ended_by_the_next_f5 |
| exec of what is no Python | here: test_a_program_that_becomes_another_one_ends_its_session |
| TERM ignored | here: test_a_program_that_ignores_term_is_killed |
| processes left behind | here: test_no_process_of_a_run_sees_the_next; e2e/test_loop: test_ctrl_c_restarts_twice_quits_and_no_process_survives_its_run |
| client ignores a child | here: test_a_child_that_the_editor_ignores_goes_with_its_parent |
| blocked in C | test_debug_native |
| 200k lines of output | test_debug_floods |
| node dies, allocation ends | test_debug_allocation |
| tunnel cut | test_lost_links; test_netns |
| session killed | test_killed_session |
| SIGINT once, twice | e2e/test_loop: test_ctrl_c_restarts_twice_quits_and_no_process_survives_its_run |
| connect-and-close probe | e2e/test_editors: test_probes_and_early_goodbyes_cost_nothing; test_debug_ports |
| second client | test_debug_ports: test_a_second_editor_is_told_who_is_there |
| fake adapter | test_debug_ports; test_other_user |
| other uid | test_other_user |
"""  # noqa: E501 - a table

from __future__ import annotations

import asyncio
import re
import time

import pytest

from tests.support import processes
from tests.support.editors import locals_of, said
from tests.support.tkrig import PATIENCE_S, Project, eventually, line_of

#: At each start: which processes of the run before are still there; then a child in a session
#: of its own and a daemon, which both ignore TERM (an ignored signal stays so over exec).
LEFTOVERS = """\
import os, subprocess, time

def alive(pid):
    try:
        os.kill(pid, 0)
        return True
    except ProcessLookupError:
        return False

before = open("pids").read().split() if os.path.exists("pids") else []
late = [pid for pid in before if alive(int(pid))]
open("pids", "w").write(str(os.getpid()))
stay = "trap '' TERM HUP INT; echo ' '$$ >> pids; exec sleep 1000"
subprocess.Popen(["sh", "-c", stay], start_new_session=True)
subprocess.run(["sh", "-c", 'setsid sh -c "$0" &', stay], check=True)
while len(open("pids").read().split()) < 3:
    time.sleep(0.01)
print("all there")
"""


@pytest.fixture
async def up(project: Project) -> Project:
    await project.up("node1", "--cpus", "2")
    return project


async def test_an_uncaught_exception_stops_with_its_locals(up: Project) -> None:
    source = """\
        def divide(above, below):
            return above / below
        divide(1, 1)
        divide(7, 0)
        """
    up.write("bad.py", source)
    terminal = await up.loop("python", "bad.py")
    editor, thread, _ = await up.f5_to_stop(3, file="bad.py")
    # What VS Code sends by itself: the filter is on by default.
    await editor.request("setExceptionBreakpoints", filters=["uncaught"])
    await editor.request("continue", threadId=thread)
    event = await editor.wait_event("stopped", timeout_s=PATIENCE_S)
    assert event["reason"] == "exception"
    assert "ZeroDivisionError" in event["text"]
    stack = (await editor.request("stackTrace", threadId=event["threadId"]))["stackFrames"]
    assert (stack[0]["name"], stack[0]["line"]) == ("divide", 2)
    found = await locals_of(editor, stack[0])
    assert (found["above"], found["below"]) == ("7", "0")
    await editor.request("continue", threadId=event["threadId"])
    assert (await editor.wait_event("exited"))["exitCode"] == 1
    await editor.wait_event("terminated")
    await terminal.line("^ZeroDivisionError: ")
    await terminal.line("run 1 · ended: exit code 1")
    await terminal.line("run 2 .*armed")


async def test_a_program_that_becomes_another_one_ends_its_session(up: Project) -> None:
    """The adapter waits for the next Python then, and says nothing of the program's end."""
    up.write("become.py", "import os\nprint('soon')\nos.execvp('sh', ['sh', '-c', 'exit 3'])\n")
    terminal = await up.loop("python", "become.py")
    editor, thread, _ = await up.f5_to_stop(2, file="become.py")
    await editor.request("continue", threadId=thread)
    exited = await editor.wait_event("exited", timeout_s=PATIENCE_S)
    assert exited["exitCode"] == 3
    await editor.wait_event("terminated", timeout_s=PATIENCE_S)
    await editor.request("disconnect", restart=False)
    await editor.close()
    await terminal.line("run 1 · ended: exit code 3")
    await terminal.line("run 2 .*armed")
    await up.f5_to_stop(2, file="become.py")


async def test_the_end_is_told_with_what_the_run_took(up: Project) -> None:
    up.write("big.py", "print('here')\nkept = b'x' * 300_000_000\nraise SystemExit(3)\n")
    terminal = await up.loop("python", "big.py")
    # Waiting for its editor is none of the run's time.
    await asyncio.sleep(2.0)
    started = time.monotonic()
    editor, thread, _ = await up.f5_to_stop(1, file="big.py")
    await editor.request("continue", threadId=thread)
    await editor.wait_event("exited", lambda body: body["exitCode"] == 3)
    took_s = time.monotonic() - started
    told = re.search(
        r"exited with code 3 \(after ([\d.]+) s, peak memory (\d+) MB\)", said(editor, "console")
    )
    assert told, said(editor)
    assert float(told[1]) <= took_s + 0.1
    assert 300_000_000 / 2**20 <= int(told[2]) < 600
    await terminal.line(r"run 1 · ended: exit code 3 after .*, peak \d+ MiB")


async def test_a_hang_at_exit_is_ended_by_the_next_f5(up: Project) -> None:
    """The interpreter has said goodbye to the debugger, then a C library does not let it go."""
    up.write(
        "hang.py",
        """\
        import ctypes, signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        libc = ctypes.CDLL(None)
        libc.__cxa_atexit(libc.pause, None, None)
        print("here")
        """,
    )
    terminal = await up.loop("python", "hang.py")
    editor, thread, frame = await up.f5_to_stop(5, file="hang.py")
    pid = int(await editor.evaluate("__import__('os').getpid()", frame))
    await editor.request("continue", threadId=thread)
    started = time.monotonic()
    # The editor does not hang with it.
    await editor.wait_event("terminated", timeout_s=10)
    assert time.monotonic() - started < 6
    await editor.close()
    await terminal.line(r"run 1 · over, and still at work.*The next F5 ends it")
    assert processes.is_alive(pid)
    editor, *_ = await up.f5_to_stop(5, file="hang.py")
    await terminal.line(r"run 1 · ended: signal SIGKILL \(hung at exit\)")
    assert not processes.is_alive(pid)


async def test_work_at_the_end_of_a_program_is_not_cut_short(up: Project) -> None:
    """Its debug session has ended, but its results are not written yet."""
    up.write(
        "upload.py",
        """\
        import atexit, os, time

        def upload():
            while not os.path.exists("let-go"):
                time.sleep(0.05)
            open("uploaded", "w").close()

        atexit.register(upload)
        print("here")
        """,
    )
    terminal = await up.loop("python", "upload.py")
    editor, thread, _ = await up.f5_to_stop(9, file="upload.py")
    await editor.request("continue", threadId=thread)
    await editor.wait_event("terminated", timeout_s=10)
    await editor.close()
    await terminal.line(r"run 1 · over, and still at work")
    up.remote("let-go").touch()
    await terminal.line(r"run 1 · ended: exit code 0")
    assert up.remote("uploaded").exists()
    await terminal.line("run 2 .*armed")


@pytest.mark.parametrize("goodbye", ["disconnect", "terminate", "drop"])
async def test_a_program_that_ignores_term_is_killed(up: Project, goodbye: str) -> None:
    """As one does that waits for its GPU."""
    up.write(
        "deaf.py",
        """\
        import os, signal, time
        for name in ("TERM", "HUP", "INT"):
            signal.signal(getattr(signal, "SIG" + name), signal.SIG_IGN)
        print("here")
        while True:
            time.sleep(0.05)
        """,
    )
    terminal = await up.loop("python", "deaf.py")
    editor, thread, frame = await up.f5_to_stop(4, file="deaf.py")
    pid = int(await editor.evaluate("os.getpid()", frame))
    await editor.request("continue", threadId=thread)
    if goodbye == "drop":
        await editor.drop()
    else:
        await editor.request(goodbye)
    if goodbye == "terminate":
        await editor.wait_event("terminated", timeout_s=PATIENCE_S)
    await terminal.line(r"run 1 · ended: signal SIGKILL \(editor left\)")
    assert not processes.is_alive(pid)
    await terminal.line("run 2 .*armed")
    # An F5 that comes at once, rather than when all is quiet.
    editor, _, frame = await up.f5_to_stop(4, file="deaf.py")
    assert int(await editor.evaluate("os.getpid()", frame)) != pid


async def test_no_process_of_a_run_sees_the_next(up: Project) -> None:
    """A child in a session of its own and a daemon, both deaf: gone before the next program is
    read, however the run ended."""
    up.write("stay.py", LEFTOVERS)
    stop = line_of(LEFTOVERS, 'print("all there")')
    terminal = await up.loop("python", "stay.py")
    everybody: set[int] = set()
    for ending in ("disconnect", "continue", "drop", "interrupt", "last"):
        editor, thread, frame = await up.f5_to_stop(stop, file="stay.py")
        assert await editor.evaluate("late", frame) == "[]"
        pids = {int(word) for word in up.remote("pids").read_text().split()}
        assert len(pids) == 3 and all(processes.is_alive(pid) for pid in pids)
        everybody |= pids
        if ending == "disconnect":
            await editor.request("disconnect")
        elif ending == "continue":
            await editor.request("continue", threadId=thread)
            await editor.wait_event("terminated")
        elif ending == "interrupt":
            terminal.interrupt()
            await editor.wait_event("terminated", timeout_s=PATIENCE_S)
        await editor.drop()
    assert len(everybody) == 15
    await eventually(
        lambda: not [pid for pid in everybody if processes.is_alive(pid)], "all of them are gone"
    )


async def test_a_child_that_the_editor_ignores_goes_with_its_parent(up: Project) -> None:
    """A child process waits for a session of its own, which this editor never opens."""
    source = """\
        import multiprocessing, os, signal
        def work():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            open("child", "w").write(str(os.getpid()))
            signal.pause()
        if __name__ == "__main__":
            child = multiprocessing.get_context("fork").Process(target=work)
            child.start()
            pid = child.pid
            child.join()
        """
    up.write("parent.py", source)
    terminal = await up.loop("python", "parent.py")
    join = line_of(source, "child.join()")
    editor, thread, frame = await up.f5_to_stop(join, file="parent.py")
    announced = await editor.wait_event("debugpyAttach", timeout_s=PATIENCE_S)
    child = int(announced["subProcessId"])
    assert child == int(await editor.evaluate("pid", frame))
    await editor.request("continue", threadId=thread)
    assert processes.is_alive(child)
    await editor.request("disconnect")
    await terminal.line(r"run 1 · ended: .*\(editor left\)")
    assert not processes.is_alive(child)
    await terminal.line("run 2 .*armed")
    # And a next editor is no child session of that run.
    editor, *_ = await up.f5_to_stop(join, file="parent.py")
