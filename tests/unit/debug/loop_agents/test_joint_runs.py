"""The runs of a loop on several nodes: begun together, ended together, whatever the order."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.debug.dap.messages import Message
from tunnelkit.debug.loop_agents.joint_runs import JointRuns, Outcome

NODES = ["train-0", "train-1", "train-2"]


def event(name: str, generation: int = 1, **fields: object) -> Message:
    return {"event": name, "generation": generation, **fields}


def names(outcome: Outcome) -> list[str]:
    return [one["event"] for one in outcome.events]


def ended(code: int, generation: int = 1, why: str = "ended") -> Message:
    return event("ended", generation, code=code, why=why)


class Agents:
    """What the agents of the parts say, each in its own order; `step` lets one of them go on.

    codes: by run, the exit code of each part.
    """

    def __init__(self, runs: JointRuns, codes: list[list[int]]) -> None:
        self.runs = runs
        self.codes = codes
        self.may_begin = 1
        self.at: list[tuple[int, str]] = [(0, "paused")] * len(NODES)
        self.told: list[tuple[str, int]] = []

    def can_go_on(self, part: int) -> bool:
        number, state = self.at[part]
        return state != "paused" or (number < self.may_begin and number < len(self.codes))

    def step(self, part: int) -> None:
        number, state = self.at[part]
        if state == "paused":
            self.say(part, event("starting", number + 1, pid=part), "starting", number + 1)
        elif state == "starting":
            self.say(part, event("armed", number), "armed", number)
        elif state == "armed":
            code = self.codes[number - 1][part]
            self.say(part, ended(code, number), "ended", number)
        else:
            self.say(part, event("waiting", number, delay_s=1.0), "paused", number)

    def say(self, part: int, what: Message, state: str, number: int) -> None:
        self.at[part] = (number, state)
        outcome = self.runs.note(part, what)
        self.told += [(one["event"], one["generation"]) for one in outcome.events]
        if outcome.begin is not None:
            over = {"ended", "paused"}
            assert all(at in over and run == number for run, at in self.at), "all have ended"
            assert outcome.begin == self.may_begin + 1
            self.may_begin = outcome.begin
        if outcome.end:
            assert any(self.codes[number - 1]), "somebody failed"


@given(
    st.lists(st.lists(st.sampled_from([0, 0, 1]), min_size=3, max_size=3), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
def test_each_run_has_one_begin_and_one_end(codes: list[list[int]], random: Random) -> None:
    agents = Agents(JointRuns(NODES), codes)
    while parts := [part for part in range(len(NODES)) if agents.can_go_on(part)]:
        agents.step(random.choice(parts))
    for number, ends in enumerate(codes, 1):
        of_run = [name for name, run in agents.told if run == number]
        for name in ("starting", "armed", "ended", "waiting"):
            assert of_run.count(name) <= 1, of_run
        assert of_run[0] == "starting" and "ended" in of_run
        failures = sum(1 for code in ends if code)
        assert of_run.count("part-ended") <= min(failures, 1)
        shown = [name for name in of_run if name != "part-ended"]
        order = ["starting", "armed", "ended", "waiting"]
        assert shown == sorted(shown, key=order.index)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
_NAMES = st.sampled_from(["starting", "armed", "attached", "ended", "waiting", "rank", "stopped"])
_EVENTS = st.fixed_dictionaries(
    {"event": _NAMES | _VALUES, "generation": st.integers(0, 4) | _VALUES},
    optional={"code": _VALUES, "why": _VALUES, "error": _VALUES, "node": _VALUES},
)


@given(st.lists(st.tuples(st.integers(0, 2), _EVENTS), max_size=30))
def test_a_pod_may_say_anything(said: list[tuple[int, Message]]) -> None:
    """No run begins before each part has said that it ended the last one."""
    runs, ended = JointRuns(NODES), {part: set[int]() for part in range(3)}
    for part, event_of_pod in said:
        number = event_of_pod["generation"]
        if event_of_pod["event"] == "ended" and isinstance(number, int):
            ended[part].add(number)
        outcome = runs.note(part, event_of_pod)
        if outcome.begin is not None:
            assert all(outcome.begin - 1 in numbers for numbers in ended.values())
        assert all(isinstance(one["event"], str) for one in outcome.events)


def test_the_first_failure_is_the_run_s_end() -> None:
    runs = JointRuns(NODES)
    for part in range(3):
        runs.note(part, event("starting"))
    assert runs.note(0, ended(0)) == Outcome()
    failed = runs.note(2, ended(7))
    assert names(failed) == ["part-ended"] and failed.events[0]["node"] == "train-2"
    assert failed.end == "train-2 has failed"
    over = runs.note(1, ended(1, why=failed.end))
    assert names(over) == ["ended"] and over.begin == 2
    assert (over.events[0]["node"], over.events[0]["code"]) == ("train-2", 7)


def test_an_editor_keeps_the_others() -> None:
    """Who stands at a breakpoint in one pod is not thrown out by the end of another."""
    for told, keeps in (("attached", False), ("armed", True)):
        runs = JointRuns(NODES, keeps=keeps)
        runs.note(0, event("starting"))
        runs.note(0, event(told))
        outcome = runs.note(1, ended(1))
        assert names(outcome) == ["part-ended"] and outcome.end == ""


def test_what_was_ended_by_somebody_is_no_failure() -> None:
    runs = JointRuns(NODES)
    runs.note(0, event("starting"))
    assert runs.note(0, ended(143, why="restarted by you")) == Outcome()


def test_ranks_carry_the_name_of_their_pod() -> None:
    """Whatever a pod says of itself."""
    runs = JointRuns(NODES)
    outcome = runs.note(1, event("rank", rank=4, node="train-0"))
    assert outcome.events[0]["node"] == "train-1"


def test_events_of_other_runs_and_unknown_parts_of_a_run_are_dropped() -> None:
    runs = JointRuns(NODES)
    assert runs.note(0, event("starting", 7)) == Outcome()
    assert runs.note(0, event("starting", 0)) == Outcome()
    assert runs.note(1, event("imported", module="torch")) == Outcome()
    assert names(runs.note(0, event("imported", module="torch"))) == ["imported"]
    assert runs.note(1, {"event": "armed", "generation": "x"}) == Outcome()


def test_a_pause_is_told_once_and_after_the_end() -> None:
    runs = JointRuns(NODES)
    for part in range(2):
        runs.note(part, ended(1))
        assert runs.note(part, event("waiting", delay_s=0.5)) == Outcome()
    assert names(runs.note(2, ended(0))) == ["ended", "waiting"]
    assert runs.note(2, event("waiting", delay_s=0.5)) == Outcome()
    late = JointRuns(NODES)
    for part in range(3):
        late.note(part, ended(1))
    assert names(late.note(0, event("waiting", delay_s=0.5))) == ["waiting"]
    assert late.note(1, event("waiting", delay_s=0.5)) == Outcome()


def test_a_lost_pod_ends_the_others_and_nothing_begins() -> None:
    runs = JointRuns(NODES)
    runs.note(0, event("starting"))
    lost = runs.lost(1, "its agent is gone")
    assert names(lost) == ["node-lost"] and lost.events[0]["node"] == "train-1"
    assert lost.end == "train-1 is lost"
    assert runs.lost(1, "again") == Outcome()
    assert runs.note(1, event("armed")) == Outcome()
    for part in (0, 2):
        assert runs.note(part, ended(143, why=lost.end)).begin is None
    assert runs.note(0, event("stopped")) == Outcome()
    assert names(runs.note(2, event("stopped"))) == ["stopped"]
    assert runs.lost(2, "its log is over") == Outcome()


def test_what_a_killed_session_left() -> None:
    """Two parts have ended a run, the third is in it; or all have, and the next one is due."""
    runs = JointRuns(NODES)
    for part, state in enumerate(["ended", "waiting", "attached"]):
        runs.goes_on(part, 4, state, {"code": 0, "why": "ended"})
    assert runs.adopted().begin is None
    assert (runs.front, runs.state) == (4, "attached")
    assert runs.note(2, ended(0, 4)).begin == 5
    due = JointRuns(NODES)
    for part in range(3):
        due.goes_on(part, 4, "ended", {"code": 0, "why": "ended"})
    assert due.adopted().begin == 5
    behind = JointRuns(NODES)
    for part, (number, state) in enumerate([(5, "armed"), (4, "ended"), (5, "armed")]):
        behind.goes_on(part, number, state, {})
    assert behind.adopted().begin is None
    assert (behind.front, behind.state) == (5, "armed")
