"""Ranks that are kept at an uncaught exception: the news, the list, `on failed`, chained frames."""

from __future__ import annotations

from tests.unit.debug.console.fake_session import PATH, FakeRank, FakeSession
from tunnelkit.debug.dap.messages import Message


def fails(session: FakeSession, rank: int, text: str, kind: str = "ValueError") -> None:
    session.stops(rank, 11, "exception", text=kind, description=text)
    session.raises(rank, text, kind=kind)


def words(shown: str) -> str:
    return " ".join(shown.split())


def test_failures_are_grouped_by_type_and_place_and_not_by_text() -> None:
    session = FakeSession(1, 8, state="running")
    for rank in (1, 3, 4):
        fails(session, rank, f"bad rank {rank}")
    fails(session, 6, "bad rank 6", kind="KeyError")
    assert words(session.wait(0.3)) == (
        "ranks 1,3-4 failed: ValueError: bad rank 1 (train.py:11) · texts differ "
        "kept for you: on 1,3-4 "
        "rank 6 · node0 failed: KeyError: bad rank 6 (train.py:11) kept for you: on 6"
    )
    rows = [words(row) for row in session.type("list failed").splitlines()]
    assert rows == [
        "ranks n where state",
        "A 1,3-4 3 train.py:11 to_debug failed: ValueError: bad rank 1",
        "B 6 1 train.py:11 to_debug failed: KeyError: bad rank 6",
    ]
    assert session.type("on @A") == "lines go to 1,3-4"
    session.now_s += 75
    session.type("on all")
    assert "failed 1 min 15 s ago: KeyError" in session.type("list 6")
    # A stop at a breakpoint is none.
    session.stops(0, 11)
    session.wait(0.3)
    session.type("on failed")
    assert session.console.prompt == "(tk 1,3-4,6) "
    assert words(session.type("p rank")).startswith("all different")


def test_one_failure_is_said_once_also_if_a_roster_has_it_again() -> None:
    session = FakeSession(1, 2, state="running")
    session.stops(1, 11, "exception", text="ValueError", description="bad")
    at_s = session.now_s
    session.raises(1, "bad")
    assert "failed" in session.wait(0.3)
    session.now_s = at_s
    session.raises(1, "bad")
    session.deliver(session.roster())
    assert session.wait(0.3) == ""


def test_an_exception_that_code_catches_is_no_failure() -> None:
    session = FakeSession(1, 2, state="running")
    session.stops(1, 11, "exception", text="KeyError", description="'k'")
    session.raises(1, "'k'", kind="KeyError", uncaught=False)
    assert words(session.wait(0.3)) == "rank 1 stopped at KeyError: 'k' (train.py:11)"
    assert "selects nobody" in session.type("on failed")


def test_a_failed_rank_that_runs_on_ends_with_its_exit_code() -> None:
    session = FakeSession(1, 2, state="running")
    fails(session, 1, "bad rank 1")
    session.wait(0.3)
    assert words(session.type("attach 1")).startswith(
        "1 · node0 · failed: ValueError: bad rank 1 (train.py:11)"
    )
    assert session.type("c") == "runs on"
    session.event(1, "continued", threadId=1, allThreadsContinued=True)
    session.event(1, "exited", exitCode=1)
    session.event(1, "terminated")
    assert "rank 1 ended with exit code 1" in session.wait(0.3)
    # It has failed all the same.
    assert "ended with exit code 1" in session.type("list failed")


def test_a_failure_that_is_stopped_elsewhere_is_over() -> None:
    session = FakeSession(1, 2, state="running")
    fails(session, 1, "in a thread")
    session.wait(0.3)
    session.event(1, "continued", threadId=1, allThreadsContinued=True)
    assert "selects nobody" in session.type("on failed")
    session.stops(1, 12)
    assert "stopped: train.py:12" in session.wait(0.3)
    assert "selects nobody" in session.type("on failed")


class Chained(FakeRank):
    """pydevd's order: the innermost frame first, but of a chained exception the outermost."""

    def frames(self) -> list[Message]:
        def frame(number: int, name: str, line: int) -> Message:
            return {"id": number, "name": name, "line": line, "source": {"path": PATH}}

        return [
            frame(1, "to_debug", 11),
            frame(2, "<module>", 17),
            frame(3, "[Chained Exc: 'a] b' \x1b[2J] inner_function", 6),
            frame(4, "[Chained Exc: 'a] b' \x1b[2J] low", 5),
        ]


def test_chained_exceptions_come_after_the_stack_and_can_be_chosen() -> None:
    session = FakeSession(1, 1, state="running")
    session.ranks[0] = Chained(0, "node0", 0, "running", names={"rank": 0})
    fails(session, 0, "bad")
    session.wait(0.3)
    rows = session.type("w").splitlines()
    assert [words(row).split(" ")[:3] for row in rows] == [
        ["train.py:17", "<module>", "to_debug(0)"],
        [">", "train.py:11", "to_debug"],
        ["chained", "exception:", "'a]"],
        ["train.py:6", "inner_function", "return"],
        ["train.py:5", "low", "x"],
    ]
    assert "\x1b" not in "".join(rows)
    session.type("u 9")
    assert session.type("u") == "*** Oldest frame"
    session.sent.clear()
    session.type("p 1")
    asked = [one["arguments"] for one in session.sent if one["command"] == "evaluate"]
    assert asked[-1]["frameId"] == 4


def test_frames_whose_answer_is_too_long_are_asked_for_one_by_one() -> None:
    session = FakeSession(1, 1, state="running")
    # Each frame of a chained exception has all of its text.
    session.ranks[0] = Chained(0, "node0", 0, "running", names={"rank": 0}, most_frames=2)
    fails(session, 0, "bad")
    session.wait(0.3)
    assert [words(row).split(" ")[1] for row in session.type("w").splitlines()] == [
        "<module>",
        "train.py:11",
    ]
