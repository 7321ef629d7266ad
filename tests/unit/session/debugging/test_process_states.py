"""A process as /proc tells it: asked of real ones, and read whatever the node sends."""

from __future__ import annotations

import os
import signal
import subprocess

from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.tkrig import eventually
from tunnelkit.debug.ranks.sample import ProcessState
from tunnelkit.session.debugging import process_states


def states(*pids: int) -> dict[int, ProcessState]:
    done = subprocess.run(process_states.command(pids), capture_output=True, check=True)
    return process_states.parse(done.stdout)


async def test_a_sleeping_and_a_stopped_process_and_one_that_is_gone() -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeps, subprocess.Popen(["sleep", "60"]) as stopped:
        with subprocess.Popen(["true"]) as gone:
            pass
        try:
            stopped.send_signal(signal.SIGSTOP)
            await eventually(lambda: states(stopped.pid)[stopped.pid].letter == "T", "stopped")
            await eventually(lambda: states(sleeps.pid)[sleeps.pid].letter == "S", "asleep")
            found = states(sleeps.pid, stopped.pid, gone.pid)
            assert found.keys() == {sleeps.pid, stopped.pid}
        finally:
            stopped.send_signal(signal.SIGCONT)
            sleeps.terminate()
            stopped.terminate()


async def test_cpu_is_in_seconds() -> None:
    with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as busy:
        try:
            await eventually(lambda: states(busy.pid)[busy.pid].cpu_s >= 0.1, "some CPU")
            assert states(busy.pid)[busy.pid].letter == "R"
            assert states(busy.pid)[busy.pid].cpu_s < 30
        finally:
            busy.kill()


@given(st.binary())
@example(b"1 100 0 1 (a) b) c) R" + b" 5" * 40)
@example(b"1 100 evil\x1b[2J 1 (x) R" + b" 5" * 40)
@example(b"1 0 0 1 (x) R" + b" 5" * 40)
@example(b"1 100 0 1 (x) R" + b" -5" * 40)
def test_whatever_the_node_sends_is_read_or_left_out(output: bytes) -> None:
    for state in process_states.parse(output).values():
        assert len(state.letter) == 1 and state.letter.isalpha()
        assert state.wchan.isprintable()
        assert state.cpu_s >= 0


def test_a_name_may_hold_brackets_and_blanks() -> None:
    output = b"7 100 do_wait 7 (a) S 1 2) D" + b" 1" * 10 + b" 150 50" + b" 0" * 30
    assert process_states.parse(output) == {7: ProcessState("D", "do_wait", 2.0)}


def test_it_is_one_command_for_all() -> None:
    assert process_states.command([3, 1])[-2:] == ["1", "3"]
    assert len(process_states.command(range(9000))) < 1100
    assert states() == {}
    assert states(os.getpid())[os.getpid()].cpu_s > 0
