"""With read-ahead an editor hears what it hears without, whenever whatever arrives."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.debug.ahead.ahead_rig import (
    PATHS,
    Message,
    World,
    frame_id,
    nvim_dap,
    self_id,
    vscode,
)
from tests.unit.hostile import JSON, objects
from tunnelkit.debug.ahead.habits import Habits
from tunnelkit.debug.ahead.read_ahead import ReadAhead
from tunnelkit.mux import dap_ahead
from tunnelkit.mux.dap_framing import frame

EDITORS = {"vscode": vscode, "neovim": nvim_dap}
_HOVER = {"context": "hover"}
#: Besides what an editor asks after each stop.
EXTRAS: dict[str, Any] = {
    "hover": lambda stop: ("evaluate", {"expression": "x", "frameId": frame_id(stop), **_HOVER}),
    "elsewhere": lambda stop: ("evaluate", {"expression": "x", "frameId": 7, **_HOVER}),
    "watch": lambda stop: (
        "evaluate",
        {"expression": "x()", "frameId": frame_id(stop), "context": "watch"},
    ),
    "repl": lambda stop: (
        "evaluate",
        {"expression": f"y = {stop}", "frameId": frame_id(stop), "context": "repl"},
    ),
    "set": lambda stop: (
        "setVariable",
        {"variablesReference": frame_id(stop), "name": "x", "value": str(stop)},
    ),
    "self": lambda stop: ("variables", {"variablesReference": self_id(stop)}),
    "threads": lambda stop: ("threads", {}),
    "old": lambda stop: ("scopes", {"frameId": frame_id(stop - 1)}),
    "breakpoints": lambda stop: (
        "setBreakpoints",
        {"source": {"path": PATHS[0]}, "breakpoints": [{"line": stop}]},
    ),
}
#: Of a stop: the order of the requests, what comes between them, whether the editor waits for
#: each answer, and how far messages move meanwhile.
STOP = st.tuples(
    st.permutations(range(5)) | st.just(list(range(5))),
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from([*EXTRAS, "console", "look", "late"])),
        max_size=3,
    ),
    st.lists(st.booleans(), min_size=8, max_size=8),
    st.lists(st.integers(0, 3), max_size=12),
    st.sampled_from(["next", "continue"]),
)


def session(world: World, editor: str, stops: Sequence[Any], lines: dict[str, list[int]]) -> None:
    world.configures(lines, editor)
    for order, extras, waits, moves, resume in stops:
        stop = world.debuggee.stop
        requests = [EDITORS[editor](stop)[at] for at in order]
        pending, moving = list(waits), list(moves)
        for at in range(len(requests) + 1):
            for name in (name for place, name in extras if place == at):
                if name == "console":
                    world.console("evaluate", expression=f"c{stop}", context="repl")
                elif name == "look":
                    world.console("evaluate", expression="_tk_rank_look_()", context="clipboard")
                elif name == "late":
                    for choice in moving:
                        world.advance(choice)
                else:
                    command, arguments = EXTRAS[name](stop)
                    world.editor(command, **arguments)
            if at < len(requests):
                seq = world.editor(requests[at][0], **requests[at][1])
                if pending and pending.pop():
                    world.until(seq)
                elif moving:
                    world.advance(moving.pop())
        world.resume(resume)
    world.settle()


def heard(world: World) -> tuple[list[Message], list[Message]]:
    """The answers in the order of the requests, and the events; without their numbers."""
    plain = [{key: one for key, one in message.items() if key != "seq"} for message in world.heard]
    answers = [one for one in plain if one["type"] == "response"]
    assert len({one["request_seq"] for one in answers}) == len(answers) == world.sent
    return (
        sorted(answers, key=lambda one: int(one["request_seq"])),
        [one for one in plain if one["type"] == "event"],
    )


LINES = st.dictionaries(st.sampled_from(PATHS), st.lists(st.integers(1, 5), unique=True))


@given(
    st.sampled_from(sorted(EDITORS)),
    st.lists(st.tuples(st.lists(STOP, max_size=3), LINES), min_size=1, max_size=3),
    st.sampled_from([0, 0, 40_000, 70_000]),
)
def test_an_editor_hears_the_same_with_and_without(
    editor: str, runs: list[tuple[list[Any], dict[str, list[int]]]], padding: int
) -> None:
    habits = Habits()
    for stops, lines in runs:
        ahead, plain = World(habits, padding), World(None, padding)
        for world in (ahead, plain):
            session(world, editor, stops, lines)
        assert heard(ahead) == heard(plain)
        assert {path: one for path, one in ahead.debuggee.breakpoints.items() if one} == {
            path: one for path, one in plain.debuggee.breakpoints.items() if one
        }


def learnt(editor: str = "vscode", *, padding: int = 0) -> World:
    """A world at a stop, whose editor has asked all it asks at the one before."""
    world = World(Habits(), padding)
    world.configures({}, editor)
    asks_all(world, editor)
    world.resume("next")
    return world


def asks_all(world: World, editor: str = "vscode") -> list[Message]:
    requests = EDITORS[editor](world.debuggee.stop)
    return [world.until(world.editor(command, **one)) for command, one in requests]


@pytest.mark.parametrize("editor", sorted(EDITORS))
def test_a_stop_needs_no_trip_once_the_editor_is_known(editor: str) -> None:
    world = learnt(editor)
    world.settle()
    world.crossed.clear()
    asked = world.debuggee.asked.copy()
    asks_all(world, editor)
    world.editor("evaluate", expression="x", frameId=frame_id(2), context="hover")
    assert not world.crossed and world.answer(world.sent) is not None
    assert world.debuggee.asked == asked
    # Each once: who asks again asks the debuggee.
    world.until(world.editor("threads"))
    assert [one["command"] for one in world.crossed] == ["threads"]


def test_questions_that_cross_the_answers_are_not_asked_again() -> None:
    world = learnt()
    asks_all(world)
    world.settle()
    # Twice at the first stop, ahead of the editor; once at each later one.
    assert world.debuggee.asked["variables"] == 2
    assert world.debuggee.asked["scopes"] == 2


def test_no_code_of_the_program_runs_before_the_editor_has_asked_at_a_stop() -> None:
    world = World(Habits())
    world.configures({})
    world.settle()
    assert world.debuggee.asked["scopes"] == 1 and not world.debuggee.asked["variables"]


def test_an_editor_that_asks_no_variables_makes_none_be_asked() -> None:
    world = learnt()
    world.settle()
    asked = world.debuggee.asked["variables"]
    world.until(world.editor("threads"))
    world.resume("next")
    world.settle()
    assert world.debuggee.asked["variables"] == asked


def test_variables_that_were_slow_are_left_to_the_editor() -> None:
    world = World(Habits())
    world.configures({})
    asks_all(world)
    world.slow_s = 0.2
    world.resume("next")
    asks_all(world)
    world.resume("next")
    world.settle()
    assert world.debuggee.asked["variables"] == 2
    asks_all(world)
    assert world.debuggee.asked["variables"] == 3


def test_answers_beyond_the_budget_wait_at_the_node_until_they_are_wanted() -> None:
    world = learnt(padding=100_000)
    before = world.seen_up
    world.settle()
    assert world.seen_up - before < dap_ahead.STOP_BYTES
    asked = world.debuggee.asked["variables"]
    asks_all(world)
    assert world.debuggee.asked["variables"] == asked


def test_an_answer_that_is_wanted_as_another_stop_drops_it_is_asked_again() -> None:
    world = learnt(padding=100_000)
    world.settle()
    for command, arguments in vscode(2)[:3]:
        world.until(world.editor(command, **arguments))
    world.stops_by_itself()
    world.advance(0)
    # The session does not know of that stop yet.
    seq = world.editor("variables", variablesReference=frame_id(2))
    assert world.until(seq)["success"]


def test_nothing_is_asked_after_a_request_that_may_change_something() -> None:
    world = World(Habits())
    world.configures({})
    asks_all(world)
    world.editor("next", threadId=1)
    while not world.debuggee.asked["scopes"] > 1:
        world.advance(0)
    world.editor("setVariable", variablesReference=frame_id(2), name="x", value="9")
    while not world.debuggee.asked["setVariable"]:
        world.advance(0)
    world.settle()
    assert world.debuggee.asked["variables"] == 1
    found = world.until(world.editor("variables", variablesReference=frame_id(2)))
    assert "9" in found["body"]["variables"][0]["value"]


def test_the_breakpoints_of_the_last_f5_travel_with_attach() -> None:
    habits = Habits()
    World(habits).configures({"/a.py": [3], "/b.py": [4]})
    world = World(habits)
    world.until(world.editor("initialize", clientID="vscode"))
    world.until(world.editor("attach"))
    world.settle()
    world.crossed.clear()
    source = {"path": "/a.py"}
    answer = world.until(world.editor("setBreakpoints", source=source, breakpoints=[{"line": 3}]))
    # The editor's first number, whatever the debuggee has counted.
    assert answer["body"]["breakpoints"] == [{"id": 0, "line": 3, "verified": True}]
    assert not world.crossed
    world.resume("configurationDone")
    # What this editor has not set this time is gone before the program begins.
    removed, functions, plan, begun = world.crossed
    assert removed["arguments"] == {"source": {"path": "/b.py"}, "breakpoints": []}
    assert functions["command"] == "setFunctionBreakpoints"
    assert (plan["command"], begun["command"]) == (dap_ahead.PLAN, "configurationDone")
    assert world.debuggee.breakpoints == {"/a.py": [3], "/b.py": []}


def test_an_editor_that_leaves_before_the_program_begins_leaves_no_breakpoints_in_it() -> None:
    habits = Habits()
    World(habits).configures({"/a.py": [3]})
    world = World(habits)
    for command, arguments in (("initialize", {"clientID": "vscode"}), ("attach", {})):
        world.until(world.editor(command, **arguments))
    world.settle()
    assert world.debuggee.breakpoints == {"/a.py": [3]}
    world.editor("disconnect")
    world.settle()
    assert world.debuggee.breakpoints == {"/a.py": []}
    world.crossed.clear()
    world.editor("attach")
    world.settle()
    assert [one["command"] for one in world.crossed] == ["attach"]


def test_an_editor_that_left_makes_nothing_be_asked() -> None:
    habits = Habits()
    below = ReadAhead(habits)
    assert below.editor_left() == b""
    done = {"seq": 1, "type": "request", "command": "configurationDone"}
    assert dap_ahead.PLAN.encode() in below.down(frame(json.dumps(done).encode()))
    assert b'"plan": []' in below.editor_left()


@settings(max_examples=12, deadline=None)
@given(
    st.lists(
        st.builds(
            lambda name, body: {"type": "event", "event": name, "body": body},
            st.sampled_from([dap_ahead.ASKED, "stopped", "thread", "continued"]),
            objects(["passed", "asked", "threadId"])
            | st.builds(
                lambda asked: {"passed": 0, "asked": asked},
                st.lists(
                    st.tuples(
                        st.integers(dap_ahead.AGENT_SEQ, dap_ahead.AGENT_SEQ + 2) | JSON,
                        st.sampled_from(["threads", "variables"]) | JSON,
                        JSON,
                    )
                ),
            ),
        )
        | st.builds(
            lambda number, body: {
                "type": "response",
                "request_seq": number,
                "success": True,
                "command": "variables",
                "body": body,
            },
            st.integers(dap_ahead.AGENT_SEQ, dap_ahead.AGENT_SEQ + 2),
            objects(["variables", "scopes", "stackFrames"]) | JSON,
        ),
        max_size=8,
    )
)
def test_whatever_a_hostile_agent_says_the_editor_is_served(told: list[Message]) -> None:
    below = ReadAhead(Habits())
    for one in told:
        below.up(frame(json.dumps(one).encode()))
        request = {"seq": 5, "type": "request", "command": "threads", "arguments": {}}
        below.down(frame(json.dumps(request).encode()))


def test_what_was_asked_before_a_change_that_crossed_it_is_not_used() -> None:
    world = learnt()
    world.settle()
    asks_all(world)
    change = {"variablesReference": frame_id(2), "name": "x", "value": "9"}
    asked = world.debuggee.asked["variables"]
    world.editor("setVariable", **change)
    # A thread stops before the node has heard of the change.
    world.stops_by_itself()
    world.settle_node()
    assert world.debuggee.asked["variables"] == asked + 1
    assert not world.debuggee.asked["setVariable"]
    world.settle()
    found = world.until(world.editor("variables", variablesReference=frame_id(2)))
    assert "9" in found["body"]["variables"][0]["value"]


def test_a_thread_that_starts_ends_the_list_of_threads() -> None:
    world = learnt()
    world.settle()
    world.debuggee.threads = 5
    world.says(world.debuggee.event("thread", reason="started", threadId=5))
    world.settle()
    assert len(world.until(world.editor("threads"))["body"]["threads"]) == 5


def test_a_consoles_breakpoints_outlive_the_next_f5() -> None:
    """The editor has none in that file any more, and sets none there."""
    habits = Habits()
    first = World(habits)
    first.configures({"/a.py": [3], "/b.py": [1]})
    first.settle()
    again = World(habits)
    again.console("setBreakpoints", source={"path": "/a.py"}, breakpoints=[{"line": 7}])
    again.settle()
    again.configures({"/b.py": [1]})
    again.settle()
    assert again.debuggee.breakpoints["/a.py"] == [7]
