"""`tk attach`: the debugger comes into a program that runs already."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.attach_rig import check_attach
from tests.support.ports import free_port
from tests.support.tkrig import PATIENCE_S, Project, Terminal, eventually, line_of
from tunnelkit.agent.debug.injection import explain, find_hindrance

SPIN = """\
    import os
    import sys
    import time
    name = sys.argv[1] if len(sys.argv) > 1 else "alone"
    print("spins", name, os.getpid(), flush=True)
    turns = 0
    open("turn", "w").close()
    while not os.path.exists("enough"):
        turns += 1
        os.utime("turn", (0, turns))
        time.sleep(0.01)
    print("done", turns > 0, flush=True)
    sys.exit(3)
    """
STOP = line_of(SPIN, "turns += 1")


#: Starts other processes, once it may.
FORKS = """\
    import os
    import subprocess
    import sys
    import time
    print("spins forker", os.getpid(), flush=True)
    turns = 0
    open("turn", "w").close()
    while not os.path.exists("enough"):
        turns += 1
        if os.path.exists("forks"):
            child = os.fork()
            if not child:
                os._exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            run = subprocess.run([sys.executable, "-c", "raise SystemExit(8)"])
            assert run.returncode == 8
        os.utime("turn", (0, turns))
        time.sleep(0.01)
    sys.exit(3)
    """


@pytest.fixture(scope="module", autouse=True)
def can_attach() -> None:
    check_attach()


@pytest.fixture
async def up(project: Project) -> Project:
    project.write("spin.py", SPIN)
    await project.up("node1", "--cpus", "4")
    return project


async def spinning(project: Project, *command: str) -> tuple[Terminal, int]:
    """A program under `tk run`, and its pid."""
    terminal = await project.terminal("run", *(command or ("python", "spin.py")))
    return terminal, int((await terminal.line(r"spins \w+ (\d+)"))[1])


async def runs_on(up: Project) -> None:
    """Wait until the program has gone on from here."""

    def turns() -> float:
        return up.remote("turn").stat().st_mtime

    begin = turns()
    await eventually(lambda: turns() > begin + 20, "the program goes on")


def injectors(pid: int) -> list[processes.Seen]:
    """The processes that are at work on it."""
    named = (one for one in processes.look().values() if str(pid) in one.argv)
    return [one for one in named if Path(one.argv[0]).name in ("gdb", "lldb")]


async def test_f5_is_on_it_again_and_again_and_it_runs_on(up: Project) -> None:
    terminal, pid = await spinning(up)
    told = await up.tk("attach", timeout_s=PATIENCE_S)
    assert f"pid {pid}" in told.out and f"press F5 (port 127.0.0.1:{up.port})" in told.out
    assert (await up.ready())["port"] == up.port
    await runs_on(up)
    await eventually(lambda: not injectors(pid), "the injector ends")
    editor, thread, frame = await up.f5_to_stop(STOP, file="spin.py")
    assert await editor.evaluate("os.getpid()", frame) == str(pid)
    assert await editor.evaluate("'tk_guard' in sys.modules", frame) == "True"
    before = int(await editor.evaluate("turns", frame))
    await editor.request("next", threadId=thread)
    assert (await editor.stopped())[1]["line"] == STOP + 1
    # The editor leaves where it stands, as VS Code does: the program goes on.
    await editor.request("disconnect", terminateDebuggee=False)
    await editor.drop()
    again = (await up.tk("attach", str(pid), "--json")).json
    assert again["again"] and again["port"] == up.port
    editor, thread, frame = await up.f5_to_stop(STOP, file="spin.py")
    assert int(await editor.evaluate("turns", frame)) > before
    await editor.request("setBreakpoints", source=frame["source"], breakpoints=[])
    await editor.request("continue", threadId=thread)
    assert "paused" in (await up.tk("interrupt")).out
    thread, _ = await editor.stopped()
    up.remote("enough").touch()
    await editor.request("continue", threadId=thread)
    assert (await editor.wait_event("exited"))["exitCode"] == 3
    await editor.wait_event("terminated")
    await terminal.line("done True")
    assert await terminal.ended() == 3

    async def none() -> bool:
        return (await up.status())["loops"] == []

    while not await none():
        await asyncio.sleep(0.05)
    assert "no Python without a debugger runs on node1" in (await up.tk("attach", code=10)).err


@pytest.mark.slow
async def test_a_killed_session_finds_it_again(up: Project) -> None:
    _, pid = await spinning(up)
    await up.tk("attach", timeout_s=PATIENCE_S)
    editor, _, frame = await up.f5_to_stop(STOP, file="spin.py")
    turns = await editor.evaluate("turns", frame)
    os.kill((await up.status())["pid"], signal.SIGKILL)
    await up.up()
    editor, _, frame = await up.f5_to_stop(STOP, file="spin.py")
    # It still stands there.
    assert await editor.evaluate("os.getpid(), turns", frame) == f"({pid}, {turns})"


@pytest.mark.slow
async def test_of_several_the_list_is_shown_and_a_pid_chooses(up: Project) -> None:
    first, first_pid = await spinning(up, "python", "spin.py", "one")
    _, second_pid = await spinning(up, "python", "spin.py", "two")
    listed = await up.tk("attach", code=2)
    rows = [line.split() for line in listed.out.splitlines()]
    assert [(int(row[0]), row[-1]) for row in rows] == [(first_pid, "one"), (second_pid, "two")]
    assert (await up.tk("attach", "--json", code=2)).json["choices"][1]["pid"] == second_pid
    own = free_port()
    told = await up.tk("attach", str(second_pid), "--port", str(own), timeout_s=PATIENCE_S)
    assert f":{own}" in told.out
    up.port, session_port = own, up.port
    editor, _, frame = await up.f5_to_stop(STOP, file="spin.py")
    assert await editor.evaluate("name", frame) == "'two'"
    up.port = session_port
    # The other one can be had at the same time, at the session's port.
    assert f":{session_port}" in (await up.tk("attach", timeout_s=PATIENCE_S)).out
    editor, _, frame = await up.f5_to_stop(STOP, file="spin.py")
    assert await editor.evaluate("name", frame) == "'one'"
    await editor.close()
    # Attached, with no editor on it: a loop may have the port, and the program runs on.
    await up.loop("python", "2.py")
    assert processes.is_alive(first_pid)
    up.remote("enough").touch()
    assert await first.ended() == 3


@pytest.mark.slow
async def test_what_it_starts_after_it_was_let_go_runs_as_ever(up: Project) -> None:
    """pydevd's own fork and exec stay in the program, but nobody serves its children any more."""
    up.write("spin.py", FORKS)
    terminal, pid = await spinning(up)
    await up.tk("attach", str(pid), timeout_s=PATIENCE_S)
    editor, _, _ = await up.f5_to_stop(line_of(FORKS, "turns += 1"), file="spin.py")
    await editor.close()
    await up.loop("python", "2.py")
    up.remote("forks").touch()
    await runs_on(up)
    up.remote("enough").touch()
    assert await terminal.ended() == 3


@pytest.mark.slow
async def test_what_can_not_be_attached_to_is_told_in_a_line(up: Project) -> None:
    await up.loop("python", "2.py")
    pid = int((await up.status())["loops"][0]["pid"])
    refused = [
        (str(pid), "has a debugger already: press F5"),
        (str(os.getpid()), "neither a rank nor a process"),
        ("4194305", "neither a rank nor a process"),
    ]
    shell = await up.terminal("run", "sh", "-c", "echo is $$; sleep 1000")
    refused.append(((await shell.line(r"is (\d+)"))[1], "no Python"))
    for target, why in refused:
        failed = await up.tk("attach", target, code=10)
        assert why in failed.err and len(failed.err.strip().splitlines()) == 1
    failed = await up.tk("attach", code=10)
    assert "no Python without a debugger" in failed.err


@pytest.mark.slow
async def test_a_free_rank_beside_the_loop_that_debugs_another(up: Project) -> None:
    ranks = ("--rank", "0", "srun", "-n2", "python", "spin.py", "ranks")
    terminal = await up.loop(*ranks, armed=False)
    # Rank 1, which runs free; rank 0 may dial in before it or after.
    await terminal.line("spins ranks")
    await eventually(lambda: "armed" in terminal.text, "rank 0 waits for F5")
    told = (await up.tk("attach", "1", "--json", timeout_s=PATIENCE_S)).json
    assert told["rank"] == 1 and told["port"] != up.port
    up.port, session_port = told["port"], up.port
    editor, _, frame = await up.f5_to_stop(STOP, file="spin.py")
    assert await editor.evaluate("os.environ['SLURM_PROCID']", frame) == "'1'"
    assert "attached already" in (await up.tk("attach", "1")).out
    up.port = session_port
    assert "already: press F5" in (await up.tk("attach", "0", code=10)).err


@pytest.mark.slow
async def test_a_killed_program_is_told_with_its_signal(up: Project) -> None:
    _, pid = await spinning(up)
    await up.tk("attach", timeout_s=PATIENCE_S)
    editor, _, _ = await up.f5_to_stop(STOP, file="spin.py")
    os.kill(pid, signal.SIGKILL)
    ended = await editor.wait_event("exited")
    assert ended["exitCode"] in (-9, 137)
    await editor.wait_event("terminated")


def test_what_stands_in_the_way_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    sleeper = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], env={"PATH": str(tmp_path)}
    )
    try:
        old = tmp_path / "python3.11"
        old.touch()
        hindrance = find_hindrance(sleeper.pid, str(old))
        assert hindrance is not None and "module load gdb" in hindrance.hint
        new = tmp_path / "python3.14"
        new.touch()
        assert find_hindrance(sleeper.pid, str(new)) is None
    finally:
        sleeper.kill()
        sleeper.wait()
    assert "SYS_PTRACE" in explain("warning\nptrace: Operation not permitted.\n").hint
    assert "pip install debugpy" in explain("python: No module named debugpy").hint
    assert "gdb" in explain("/bin/sh: 1: gdb: not found\nCalledProcessError").cause
    assert explain("").cause == "the injector said nothing"


RANKS = ("srun", "-n", "4", "--ntasks-per-node", "2", "python", "spin.py", "ranks")


async def ranks_that_run(project: Project) -> Terminal:
    """Four ranks under `tk run srun`, on two nodes."""
    project.write("spin.py", SPIN)
    await project.up("--nodes", "2", "--cpus", "2")
    terminal = await project.terminal("run", *RANKS)
    for _ in range(4):
        await terminal.line(r"spins ranks")
    return terminal


async def test_a_rank_on_the_second_node_survives_a_killed_session(project: Project) -> None:
    await ranks_that_run(project)
    attached = (await project.tk("attach", "3", "--json", timeout_s=PATIENCE_S)).json
    assert (attached["rank"], attached["node"], attached["port"]) == (3, "node2", project.port)
    editor, _, frame = await project.f5_to_stop(STOP, file="spin.py")
    where = "os.environ['SLURM_PROCID'], os.environ['SLURMD_NODENAME']"
    assert await editor.evaluate(where, frame) == "('3', 'node2')"
    turns = await editor.evaluate("turns", frame)
    assert "attached already" in (await project.tk("attach", "3")).out
    os.kill((await project.status())["pid"], signal.SIGKILL)
    await project.up()

    async def adopted() -> bool:
        return bool((await project.status())["loops"])

    while not await adopted():
        await asyncio.sleep(0.05)
    editor, thread, frame = await project.f5_to_stop(STOP, file="spin.py")
    # It still stands there.
    assert await editor.evaluate("turns", frame) == turns
    project.remote("enough").touch()
    await editor.finish(thread)


async def test_a_selection_gets_a_port_for_each_rank(project: Project) -> None:
    terminal = await ranks_that_run(project)
    assert "no rank 9" in (await project.tk("attach", "rank=9", code=2)).err
    assert "column 3" in (await project.tk("attach", "0-", code=2)).err
    answer = (await project.tk("attach", "node=1", "--json", timeout_s=2 * PATIENCE_S)).json
    assert answer["failed"] == []
    assert {(one["rank"], one["node"], one["ready"]) for one in answer["ranks"]} == {
        (2, "node2", True),
        (3, "node2", True),
    }
    second, third = answer["ranks"]
    assert second["port"] == project.port != third["port"]
    _, _, frame = await project.f5_to_stop(STOP, file="spin.py")
    assert frame["line"] == STOP
    # The selections of other commands have these ranks, too.
    assert re.match(r"2 paused at spin.py:\d+", (await project.tk("interrupt", "2")).out)
    assert "no editor debugs rank 3" in (await project.tk("interrupt", "3", code=10)).err
    again = await project.tk("attach", "2-3")
    assert again.out.count("attached already") == 2 and f":{third['port']}" in again.out
    project.remote("enough").touch()
    await terminal.line("done True")
