"""What a rank says of itself: asked of a real process, and read whatever it is."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.debug.ranks.question import position, where_are_you
from tunnelkit.debug.ranks.sample import RankState

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["frames", "groups", "cpu_s", "instruction", "held", "ranks", "failed"])
            | st.text(max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=25,
)


def answered(result: object, success: object = True) -> dict[str, object]:
    return {"success": success, "body": {"result": result}}


def test_the_first_question_brings_the_code_and_the_next_is_short() -> None:
    first = where_are_you(known=False)["expression"]
    again = where_are_you(known=True)["expression"]
    assert len(again) < 120
    for expression in (first, again):
        found = position(answered(eval(expression)))
        assert found is not None
        assert found["state"] is RankState.RUNNING
        assert __file__ in {frame.file for frame in found["frames"]}
        assert found["cpu_s"] is not None and found["cpu_s"] > 0


def test_a_result_that_is_written_as_python_writes_it_is_read_too() -> None:
    plain = eval(where_are_you(known=False)["expression"])
    assert position(answered(repr(plain))) == position(answered(plain))


def test_ranks_at_the_same_place_share_their_frames() -> None:
    answer = json.dumps({"frames": [["/p/train.py", 4, "step"]]})
    one, other = position(answered(answer)), position(answered(answer))
    assert one is not None and other is not None
    assert one["frames"][0] is other["frames"][0]


@pytest.mark.parametrize(
    "sent", [["f" * 9000, 1, "g"], ["f", True, "g"], ["f", -1, "g"], ["f", 1, 2], [None, 1.5, "g"]]
)
def test_frames_that_are_none_are_cut_or_made_plain(sent: list[object]) -> None:
    found = position(answered(json.dumps({"frames": [sent]})))
    assert found is not None
    (frame,) = found["frames"]
    assert len(frame.file) <= 500 and type(frame.line) is int and frame.line >= 0
    assert type(frame.function) is str


@given(json_values)
def test_hostile_answers_are_read_or_refused(value: object) -> None:
    text = json.dumps(value)
    for result in (text, repr(text), value):
        found = position(answered(result))
        if found is not None:
            assert len(found["frames"]) <= 200
            assert all(one.line >= 0 for one in found["frames"])
            assert all(rank >= 0 for one in found["groups"] for rank in one.ranks)


@given(st.text())
def test_hostile_text_is_no_answer(text: str) -> None:
    position(answered(text))
    assert position(answered(text, success=False)) is None


def test_an_answer_is_cut_to_its_limits() -> None:
    frames = [["/x.py", 2**70, "f" * 9000]] * 9000
    groups = [{"name": "g", "ranks": list(range(9000)), "sequence": -4, "operation": "nccl:x"}] * 90
    found = position(answered(json.dumps({"frames": frames, "groups": groups, "cpu_s": 1e400})))
    assert found is not None
    assert (len(found["frames"]), len(found["groups"])) == (200, 64)
    assert (found["frames"][0].line, len(found["frames"][0].function)) == (0, 500)
    assert len(found["groups"][0].ranks) == 4096
    assert (found["groups"][0].sequence, found["groups"][0].operation) == (0, "x")
    assert found["cpu_s"] is None


class _Debugger:
    """Holds a thread at an exception as pydevd does."""

    def __init__(self, error: BaseException, mark: str) -> None:
        self.error, self.mark = error, mark
        self.held, self.go = threading.Event(), threading.Event()

    def __enter__(self) -> None:
        names: dict[str, Any] = {"threading": threading}
        source = "def do_wait_suspend(held, go, arg, exception_type): held.set(); go.wait()"
        exec(compile(source, "/x/debugpy/pydevd.py", "exec"), names)
        arg = (type(self.error), self.error, self.error.__traceback__)
        wait = names["do_wait_suspend"]
        self.thread = threading.Thread(target=wait, args=(self.held, self.go, arg, self.mark))
        self.thread.start()
        assert self.held.wait(10)

    def __exit__(self, *how: object) -> None:
        self.go.set()
        self.thread.join()


def _raised(kind: type[BaseException]) -> BaseException:
    try:
        raise kind("x" * 1_000_000)
    except BaseException as error:
        return error


@pytest.mark.parametrize(
    ("kind", "mark", "failed"),
    [
        (ValueError, "UNHANDLED", "ValueError"),
        (ValueError, "HANDLED", ""),
        (ValueError, "USER_UNHANDLED", ""),
        (SystemExit, "UNHANDLED", ""),
        (KeyboardInterrupt, "UNHANDLED", ""),
    ],
)
def test_an_exception_that_nothing_catches_is_named_with_its_frames(
    kind: type[BaseException], mark: str, failed: str
) -> None:
    with _Debugger(_raised(kind), mark):
        raw = eval(where_are_you(known=False)["expression"])
        found = position(answered(raw))
    assert found is not None and found["failed"] == failed
    assert len(raw) < 20_000
    if failed:
        assert found["text"] == "x" * 500
        assert found["state"] is RankState.STOPPED
        assert [frame.function for frame in found["frames"]] == ["_raised"]
    else:
        assert len(found["frames"]) > 1
