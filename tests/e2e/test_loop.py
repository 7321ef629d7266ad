"""`tk loop` at a terminal: restarts, the forms of a command, broken programs, odd editors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.ports import free_port
from tests.support.tkrig import PROGRAM, Project, line_of
from tunnelkit.errors import DebugError

STOP = line_of(PROGRAM, "total += step")

#: Leaves a child that ignores TERM and a daemonized grandchild that does too, and says
#: which of the run before it finds still alive.
TREE = """\
import os, signal, sys, time

def alive(pid):
    try:
        os.kill(pid, 0)
        return True
    except ProcessLookupError:
        return False

before = open("pids").read().split() if os.path.exists("pids") else []
print("still alive:", [pid for pid in before if alive(int(pid))], flush=True)
open("pids", "w").write(str(os.getpid()))

def stay(name):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with open("pids", "a") as file:
        file.write(" " + str(os.getpid()))
    os.write(write, b"x")
    time.sleep(1000)

read, write = os.pipe()
if os.fork() == 0:
    stay("child")
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    stay("daemon")
while len(os.read(read, 1)) and len(open("pids").read().split()) < 3:
    pass
print("all there", flush=True)
time.sleep(1000)
"""


@pytest.fixture
async def up(project: Project) -> AsyncIterator[Project]:
    """A project with a session on node1."""
    await project.up("node1", "--cpus", "2")
    yield project


async def test_ctrl_c_restarts_twice_quits_and_no_process_survives_its_run(up: Project) -> None:
    up.write("tree.py", TREE)
    terminal = await up.loop("env", "python", "tree.py", armed=False)
    for number in range(1, 4):
        await terminal.line(rf"\d\d\d\d-\d\d-\d\d .*run {number} .*starting \(pid \d+ on node1\)")
        assert (await terminal.line(r"still alive: (.*)"))[1] == "[]"
        await terminal.line("all there")
        pids = [int(word) for word in up.remote("pids").read_text().split()]
        assert len(pids) == 3 and all(processes.is_alive(pid) for pid in pids)
        if number < 3:
            terminal.interrupt()
            await terminal.line("restarting")
            await terminal.line(rf"run {number} · ended: .*\(restarted by you\)")
            # The second Ctrl-C within two seconds would quit: that is another wish.
            await asyncio.sleep(2.1)
    assert await terminal.quit() == 0
    assert not [pid for pid in pids if processes.is_alive(pid)]
    assert (await up.status())["loops"] == []


async def test_a_restart_while_stopped_at_a_breakpoint_serves_the_next_f5(up: Project) -> None:
    terminal = await up.loop("python", "2.py")
    editor, _, frame = await up.f5_to_stop(STOP)
    old = await editor.evaluate("os.getpid()", frame)
    terminal.interrupt()
    await editor.wait_event("terminated")
    editor, _, frame = await up.f5_to_stop(STOP)
    assert await editor.evaluate("os.getpid()", frame) != old


async def test_ptvsds_form_is_run_by_debugpy_with_a_note(up: Project) -> None:
    command = f"python -m ptvsd --host 0.0.0.0 --port {up.port} --wait 2.py"
    terminal = await up.loop(*command.split(), armed=False)
    await terminal.line("ptvsd is no longer maintained; its successor debugpy")
    await terminal.line(rf"run 1 · port {up.port} · starting")
    await terminal.line("armed")
    await _stops_with_no_port_of_its_own(up)
    assert (await up.status())["loops"][0]["command"] == command


async def test_the_listen_form_names_the_editors_port_and_opens_none_there(up: Project) -> None:
    other = free_port()
    command = f"python -m debugpy --listen 0.0.0.0:{other} --wait-for-client 2.py"
    terminal = await up.loop(*command.split(), armed=False)
    await terminal.line("the debuggee dials out")
    await terminal.line("armed")
    up.port, session_port = other, up.port
    await _stops_with_no_port_of_its_own(up)
    assert await terminal.quit() == 0
    up.port = session_port


async def _stops_with_no_port_of_its_own(project: Project) -> None:
    editor, thread, frame = await project.f5_to_stop(STOP)
    assert frame["line"] == STOP
    debuggee = int(await editor.evaluate("os.getpid()", frame))
    assert processes.listening_ports([debuggee]) == {}
    await editor.request("setBreakpoints", source=frame["source"], breakpoints=[])
    await editor.finish(thread)


async def test_plain_python_is_debuggable_with_its_arguments(up: Project) -> None:
    terminal = await up.loop("python", "-X", "utf8", "2.py", "--name", "two words")
    await terminal.line("armed") if not terminal.lines else None
    assert any("run under debugpy" in line for line in terminal.lines)
    editor, _, frame = await up.f5_to_stop(STOP)
    assert await editor.evaluate("sys.argv[1:]", frame) == "['--name', 'two words']"
    assert await editor.evaluate("sys.flags.utf8_mode", frame) == "1"


async def test_a_program_that_can_not_start_makes_ready_fail_and_mending_it_helps_at_once(
    up: Project,
) -> None:
    up.write("broken.py", "import sys\nsys.exit(\n")
    # Whatever keeps debugpy from getting to the program counts as much as the program itself.
    up.write("sitecustomize.py", "raise SystemExit('no luck today')\n")
    up.configure()
    terminal = await up.loop("env", "PYTHONPATH=.", "python", "-m", "debugpy", "2.py", armed=False)
    await terminal.line("run 1 · ended: exit code 1")
    failed = await up.tk("ready", "--sync", code=int(DebugError.exit_code))
    assert failed.out == ""
    assert failed.err.count("\n") == 1
    assert failed.err.startswith("tk: the debuggee ended before an editor could attach: ")
    assert "no luck today" in failed.err

    refused = await up.editor()
    with pytest.raises(DebugError, match="no luck today"):
        await refused.attach({})

    up.write("sitecustomize.py", "")
    assert (await up.ready())["generation"] > 1
    editor, *_ = await up.f5_to_stop(STOP)
    await editor.close()


async def test_an_editor_that_comes_early_waits_and_a_probe_harms_nothing(up: Project) -> None:
    early = await up.editor()
    with pytest.raises(DebugError, match="No debug loop is running"):
        await early.attach({})
    for _ in range(20):
        await (await up.editor()).drop()
    terminal = await up.loop("python", "2.py", armed=False)
    await terminal.line("starting")
    probes = [await up.editor() for _ in range(20)]
    editor, _, frame = await up.f5_to_stop(STOP)
    assert frame["line"] == STOP
    for probe in probes:
        await probe.drop()
    second = await up.editor()
    with pytest.raises(DebugError, match="an editor is already debugging this process"):
        await second.attach({})
    assert await editor.evaluate("step", frame) == "0"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("os._exit(7)", "exit code 7"),
        ("os.kill(os.getpid(), 11)", "signal SIGSEGV"),
        ("raise ValueError('bad')", "exit code 1"),
    ],
)
async def test_how_a_run_ended_is_told_and_the_next_is_armed(
    up: Project, code: str, told: str
) -> None:
    up.write("end.py", f"import os\nprint('here')\n{code}\n")
    terminal = await up.loop("python", "end.py")
    editor, thread, _ = await up.f5_to_stop(2, file="end.py")
    await editor.request("continue", threadId=thread)
    await editor.wait_event("terminated")
    await terminal.line(rf"run 1 · ended: {told}")
    await terminal.line("run 2 .*armed")
    editor, *_ = await up.f5_to_stop(2, file="end.py")
    await editor.close()


async def test_children_of_the_debuggee_are_debugged_over_the_same_port(up: Project) -> None:
    source = """\
        import multiprocessing
        def work(number):
            doubled = number * 2
            return doubled
        if __name__ == "__main__":
            context = multiprocessing.get_context("spawn")
            with context.Pool(1) as pool:
                print("sum", sum(pool.map(work, [1, 2])), flush=True)
        """
    up.write("pool.py", source)
    line = line_of(source, "return doubled")
    terminal = await up.loop("python", "pool.py")
    parent = await up.f5(line, file="pool.py", subProcess=True)
    # An editor opens a session for every child that is announced. The pool has two, in no
    # fixed order: its worker, and multiprocessing's own resource tracker.
    worker = None
    while worker is None:
        announced = await parent.wait_event("debugpyAttach")
        child = await up.editor(int(announced["connect"]["port"]) or None)
        await child.attach(
            {str(up.dir / "pool.py"): [line]},
            path_mappings=up.path_mappings,
            subProcessId=announced["subProcessId"],
        )
        command = Path(f"/proc/{announced['subProcessId']}/cmdline").read_bytes()
        if b"resource_tracker" not in command:
            worker = child
    child = worker
    values = []
    for _ in range(2):
        thread, frame = await child.stopped()
        values.append(await child.evaluate("doubled", frame))
        await child.request("continue", threadId=thread)
    assert values == ["2", "4"]
    await terminal.line("^sum 6$")
    await parent.wait_event("terminated")
    await terminal.line("run 2 .*armed")


async def test_two_loops_at_once_each_have_their_port(up: Project) -> None:
    up.write("other.py", "name = 'other'\nprint(name)\n")
    other = free_port()
    await up.loop("python", "2.py")
    refused = await up.tk("loop", "python", "other.py", code=int(DebugError.exit_code))
    assert "already has port" in refused.err
    await up.loop("--port", str(other), "python", "other.py")
    one, _, frame = await up.f5_to_stop(STOP)
    two = await up.editor(other)
    await two.attach({str(up.dir / "other.py"): [2]}, path_mappings=up.path_mappings)
    _, second = await two.stopped()
    assert await two.evaluate("name", second) == "'other'"
    assert await one.evaluate("step", frame) == "0"
    status = json.loads((await up.tk("status", "--json")).out)
    assert [loop["port"] for loop in status["loops"]] == [up.port, other]


@pytest.mark.parametrize("standby", ["--standby", "--no-standby"])
async def test_the_call_stack_is_the_programs_alone(up: Project, standby: str) -> None:
    await up.loop(standby, "python", "2.py")
    editor, thread, _ = await up.f5_to_stop(STOP)
    stack = await editor.request("stackTrace", threadId=thread)
    sources = {frame["source"]["path"] for frame in stack["stackFrames"]}
    assert sources == {str(up.dir / "2.py")}
