"""Stacks as the rules read them: whose frame is named, what a debugger does, many ranks."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.diagnosis.running.windows import CPUS, JOB, thread, window
from tunnelkit.diagnosis.evidence.stacks import Frame, Held, StackView, by_debugger, place
from tunnelkit.diagnosis.evidence.window import ProcessView
from tunnelkit.diagnosis.running.rules import judge_running, to_ask
from tunnelkit.diagnosis.verdict import Certainty
from tunnelkit.session.why.stacks import read_answers

TRAIN = Frame("/home/u/train.py", 88, "step")
WAIT = Frame("/usr/lib/python3.11/threading.py", 320, "Condition.wait")
SUSPEND = Frame("/v/lib/python3.11/site-packages/debugpy/_vendored/pydevd/pydevd.py", 2000,
                "PyDB._do_wait_suspend")  # fmt: skip


def still(count: int, debugger: str = "") -> tuple[ProcessView, ...]:
    return tuple(
        ProcessView(10 + rank, name="python3", rank=rank, cpus=CPUS, debugger=debugger)
        for rank in range(count)
    )


def waiting(count: int, debugger: str = "", word: str = "futex"):  # type: ignore[no-untyped-def]
    ranks = still(count, debugger)
    return window(ranks, [thread(one.pid, waits={word: 9.0}) for one in ranks])


def stack(number: int, *frames: Frame, **more: object) -> StackView:
    return replace(StackView("node1", 10 + number, frames), **more)  # type: ignore[arg-type]


def test_the_place_of_the_fewest_ranks_comes_first() -> None:
    stacks = [stack(rank, TRAIN, WAIT) for rank in range(3)]
    stacks.append(stack(3, Frame("/home/u/data.py", 12, "load")))
    job = replace(JOB, directory="/home/u")
    [verdict] = judge_running(job, [waiting(4)], 0.0, stacks)
    assert verdict.code == "hang"
    assert verdict.sentence.endswith(
        "; rank 3 (pid 13) waits at data.py:12; "
        "3 ranks (0, 1, 2) wait in Condition.wait() at train.py:88"
    )


def test_a_call_of_c_code_is_named_by_the_kernel() -> None:
    [verdict] = judge_running(JOB, [waiting(2, word="receive")], 0.0, [stack(1, TRAIN)])
    assert "rank 1 (pid 11) waits in recv() at train.py:88" in verdict.sentence


def test_without_stacks_the_kernels_word_stays() -> None:
    [verdict] = judge_running(JOB, [waiting(1)], 0.0)
    assert verdict.code == "hang" and "waits for a lock" in verdict.because[1].text
    assert to_ask(JOB, [waiting(2)]) == (("node1", 10), ("node1", 11))


def test_a_stopped_rank_is_no_hang_though_others_wait_for_it() -> None:
    held = stack(2, TRAIN, held=Held.STOPPED, source="the session's debugger", rank=2)
    verdicts = judge_running(JOB, [waiting(4, "debugpy")], 0.0, [held])
    assert [one.code for one in verdicts] == ["at-breakpoint"]
    assert verdicts[0].certainty is Certainty.PROVEN
    assert "rank 2 (pid 12) stands in the debugger" in verdicts[0].sentence
    assert "train.py:88 in step()" in verdicts[0].sentence


def test_pydevds_own_frames_tell_that_it_is_stopped() -> None:
    found = by_debugger(stack(0, TRAIN, SUSPEND, WAIT))
    assert (found.held, found.frames) == (Held.STOPPED, (TRAIN,))
    verdicts = judge_running(JOB, [waiting(1, "debugpy")], 0.0, [stack(0, TRAIN, SUSPEND, WAIT)])
    assert (verdicts[0].code, verdicts[0].certainty) == ("at-breakpoint", Certainty.LIKELY)


def test_a_debugger_that_nobody_asked_leaves_it_open() -> None:
    for word in ("futex", "futex-timed"):
        [verdict] = judge_running(JOB, [waiting(1, "debugpy", word)], 0.0)
        assert (verdict.code, verdict.certainty) == ("at-breakpoint", Certainty.UNKNOWN)
    # A server waits otherwise.
    [verdict] = judge_running(JOB, [waiting(1, "debugpy", "accept")], 0.0)
    assert verdict.code == "nothing"


def test_a_loop_that_waits_for_an_editor_does_not_hang() -> None:
    armed = StackView("node1", 10, (), Held.WAITING, "the session's debugger")
    [verdict] = judge_running(JOB, [waiting(2, "debugpy")], 0.0, [armed])
    assert (verdict.code, verdict.certainty) == ("waits-for-editor", Certainty.PROVEN)
    assert verdict.next_steps[0].text.startswith("press F5")


def test_a_port_without_an_editor_tells_what_no_stack_does() -> None:
    def with_client(lacks: bool) -> str:
        found = waiting(1, "debugpy")
        ranks = tuple(replace(one, lacks_client=lacks) for one in found.processes)
        [verdict] = judge_running(JOB, [replace(found, processes=ranks)], 0.0)
        return verdict.code

    assert with_client(True) == "waits-for-editor"
    assert with_client(False) == "at-breakpoint"


def test_a_terminal_is_named_where_a_prompt_waits() -> None:
    found = waiting(1, word="terminal")
    ranks = tuple(replace(one, stdin="terminal") for one in found.processes)
    [verdict] = judge_running(JOB, [replace(found, processes=ranks)], 0.0)
    assert verdict.code == "waits-for-input" and "its terminal" in verdict.sentence


def test_a_loop_that_waits_for_an_editor_hides_no_other_program() -> None:
    armed = StackView("node1", 99, (), Held.WAITING, "the session's debugger")
    busy = window()
    assert [one.code for one in judge_running(JOB, [busy], 0.0, [armed])] == ["nothing"]


@given(st.binary(max_size=400))
def test_any_answer_of_a_node_is_read(out: bytes) -> None:
    read_answers(out, "node1")
    read_answers(b'{"pid":1,"cwd":"/","said":"[{}]"}\n' + out, "node1")


@given(
    st.lists(
        st.builds(Frame, st.text(max_size=30), st.integers(-2, 2**31), st.text(max_size=9)),
        max_size=9,
    )
)
def test_any_stack_has_a_place_or_none(frames: list[Frame]) -> None:
    place(by_debugger(StackView("n", 1, tuple(frames))))
