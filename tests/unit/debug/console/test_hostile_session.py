"""Arbitrary lines and messages: nothing raises; only selected ranks are sent them."""

from __future__ import annotations

from collections import Counter
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.debug.console.fake_session import FakeSession, local_source, resolve
from tunnelkit.debug.console.console import Console
from tunnelkit.debug.console.line_results import Step
from tunnelkit.debug.ranks.console_messages import ToConsole

#: Commands that change a rank or run code of the user's in it.
_DOING = ("evaluate", "next", "stepIn", "stepOut", "continue", "pause", "setBreakpoints")
KEYS = (
    "rank", "node", "local", "pid", "state", "stops", "threadId", "reason", "text", "description",
    "stackFrames", "id", "name", "line", "source", "path", "result", "breakpoints", "verified",
    "message", "output", "exitCode", "allThreadsContinued", "kind", "size", "sum", "lines",
    "raised", "uncaught", "file", "at_s",
)  # fmt: skip

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["stopped", "waiting", "running", "ended", "exception", "\x1b[2J\r\n"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)
small = st.integers(0, 4)
bodies = st.dictionaries(
    st.sampled_from(["threadId", "reason", "result", "stackFrames", "breakpoints", "output"]),
    values,
    max_size=3,
)
raised = st.dictionaries(
    st.sampled_from(["kind", "text", "uncaught", "file", "line", "at_s"]), values, max_size=6
)
entries = st.fixed_dictionaries(
    {},
    optional={
        "rank": small | values,
        "node": st.sampled_from(["n0", "n1"]) | values,
        "local": small | values,
        "pid": small | values,
        "state": st.sampled_from(["stopped", "waiting", "running", "ended"]) | values,
        "stops": st.lists(bodies, max_size=2) | values,
        "raised": raised | values,
    },
)
messages = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("roster"), "generation": small, "ranks": st.lists(entries, max_size=5)},
        optional={"world_size": small | values, "command": values},
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("answer"),
            "id": st.integers(0, 40),
            "rank": small,
            "success": st.booleans(),
            "body": bodies | values,
        },
        optional={"message": values, "lost": values},
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("event"),
            "rank": small,
            "event": st.sampled_from(
                ["stopped", "continued", "terminated", "exited", "output", "thread"]
            ),
            "body": bodies | values,
        }
    ),
    st.fixed_dictionaries({"type": st.just("raised"), "rank": small, "raised": raised | values}),
    st.dictionaries(st.sampled_from(["type", "rank", "id", "body"]), values, max_size=4),
)
LINES = (
    "p x", "x = 1", "n", "s", "r", "c", "w", "u", "d 2", "l", "ll", "a", "b 3", "b train.py:9",
    "tbreak train.py:9", "cl", "cl 1", "list", "list -a", "pause", "on 1", "on all", "on stopped",
    "on failed", "list failed",
    "on @A", "attach x 2", "detach", "cast ranks(0:3) n", "cast ranks(all) p! x", "mesh a=2", "",
    "q", "b", "help", "whatis x", "pp x", "!exit()", "list 0-1", "editor 1", "on",
    "cast ranks(1) c", "catch raised", "catch off",
)  # fmt: skip
lines = st.sampled_from(LINES) | st.text(max_size=20)
moves = st.lists(lines | messages | st.floats(0, 20), max_size=25)


class Watched:
    """A console whose steps are checked."""

    def __init__(self) -> None:
        self.console = Console(local_source=local_source, resolve=resolve)
        self.now_s = 0.0
        self.ids: Counter[tuple[int, int]] = Counter()
        self.lines: list[str] = []
        self.done: list[str] = []

    def check(self, step: Step) -> None:
        for line in step.show:
            assert line.isprintable()
            assert len(line) <= 80
        for message in step.send:
            if message["type"] == "ask":
                self.ids.update((ask["id"], ask["rank"]) for ask in message["asks"])
            else:
                self.ids.update((message["id"], rank) for rank in message["ranks"])
        assert max(self.ids.values(), default=1) == 1
        self.done += [result.line for result in step.done]
        due_s = self.console.due_s
        assert due_s is None or due_s >= self.now_s - 20
        assert self.console.prompt.isprintable()

    def take(self, move: object) -> None:
        if isinstance(move, str):
            self.lines.append(move.strip("\r\n"))
            self.check(self.console.line(move, self.now_s))
        elif isinstance(move, float):
            self.now_s += move
            self.check(self.console.tick(self.now_s))
        else:
            self.check(self.console.message(cast(ToConsole, move), self.now_s))


@settings(deadline=None)
@given(moves)
def test_nothing_raises_and_each_line_ends_once(moves: list[object]) -> None:
    watched = Watched()
    for move in moves:
        watched.take(move)
    watched.check(watched.console.interrupt(watched.now_s))
    assert not watched.console.busy
    assert len(watched.done) == len(watched.lines)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from(LINES) | st.floats(0, 12), max_size=12), st.sets(small))
def test_only_selected_ranks_are_sent_lines(moves: list[object], running: set[int]) -> None:
    session = FakeSession(2, 3)
    for rank in running:
        session.ranks[rank].state = "running"
    session.deliver(session.roster())
    session.type("on 4")
    session.sent.clear()
    for move in moves:
        if isinstance(move, float):
            session.wait(move)
        elif not move.startswith(("on ", "attach", "detach", "cast", "list", "pause")):
            session.type(move)
    assert {ask["rank"] for ask in session.sent if ask["command"] in _DOING} <= {4}
    assert set(session.answered.values()) <= {1}


@settings(deadline=None)
@given(
    st.sampled_from(["p x", "a", "w", "b train.py:9", "n", "list", "l", "x = 1"]), values, values
)
def test_hostile_answers_of_a_rank(line: str, answer: object, event: object) -> None:
    watched = Watched()
    entry = {"rank": 0, "state": "stopped", "stops": [{"threadId": 1, "reason": "pause"}]}
    watched.take({"type": "roster", "generation": 1, "ranks": [entry]})
    watched.take(line)
    for number in range(1, 8):
        body = {"result": answer, "stackFrames": answer, "breakpoints": answer}
        for success in (True, False):
            watched.take(
                {"type": "answer", "id": number, "rank": 0, "success": success, "body": body}
            )
        watched.take({"type": "event", "rank": 0, "event": "output", "body": {"output": event}})
        watched.take({"type": "event", "rank": 0, "event": "stopped", "body": event})
    watched.take(20.0)
    assert not watched.console.busy


def test_a_roster_has_limits() -> None:
    watched = Watched()
    entries = [{"rank": rank, "state": "stopped", "node": "n" * 10_000} for rank in range(6_000)]
    watched.take({"type": "roster", "generation": 1, "ranks": entries})
    assert watched.console.prompt == "(tk 0-4095) "
    watched.take("p x")
    watched.take(20.0)
    assert watched.done == ["p x"]


@pytest.mark.parametrize("columns", [0, 20, 40, 200])
def test_other_widths(columns: int) -> None:
    session = FakeSession(8, 8)
    session.console.columns = columns
    for rank, one in session.ranks.items():
        one.names["number"] = rank * 3
    for line in ("list", "list -a", "p number", "p! number", "w", "help", "p " + "nothing" * 30):
        for shown in session.type(line).splitlines():
            assert len(shown) <= max(columns, 20), line
