"""The ranks as text: readable at 80 and 60 columns, whatever the cluster sends."""

from __future__ import annotations

import dataclasses
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.debug.ranks import rank_samples
from tests.unit.debug.ranks.rank_samples import LOADS, MAIN, ROOTS, own, sample, within, world
from tunnelkit.debug.ranks.arrivals import Arrival, BlockingCalls, LateRank, arrivals
from tunnelkit.debug.ranks.sample import (
    Failure,
    ProcessState,
    RankSample,
    RankState,
    StackFrame,
)
from tunnelkit.debug.ranks.stacks import Activity, StackClass, classify
from tunnelkit.debug.ranks_view.describe import arrival_text, describe, duration, state_text
from tunnelkit.debug.ranks_view.view import RanksView

LINES = {
    80: "    for batch in loader:\n",
    22: "        sample = self[i]\n",
    31: '\twith open(path, "rb") as f:\n',
}


def source(file: str, line: int) -> str | None:
    return LINES.get(line) if file.startswith(ROOTS[0]) else None


def view_of(samples: list[RankSample], **more: object) -> RanksView:
    view = RanksView(
        samples=samples,
        classes=classify(samples, samples, ROOTS),
        arrivals=arrivals(samples, samples, ROOTS),
        roots=ROOTS,
        program="torchrun train.py",
        took_s=0.31,
        clock="12:41:07",
    )
    return dataclasses.replace(view, **more)


def hang(count: int = 64, late: int = 47) -> list[RankSample]:
    return [
        sample(rank, LOADS, world(1203))
        if rank == late
        else sample(rank, within("all_reduce"), world(1204))
        for rank in range(count)
    ]


PICTURE = """\
64 ranks on 8 nodes · torchrun train.py · all answered, 0.3 s           12:41:07

   ranks        n  where                          state
A  0-46,48-63  63  train.py:88 step > all_reduce  waits, has not moved for 2 min
                                                  14 s
B  47           1  data.py:31 load                waits, has not moved for 2 min
                                                  14 s

rank 47 has not reached all_reduce #1204 of the group world; 63 ranks are
waiting in it

B  rank 47 · node6 · pid 20047
   train.py:80  main      for batch in loader:
   data.py:22   __iter__  sample = self[i]
 > data.py:31   load      with open(path, "rb") as f:
"""


def test_the_picture_of_a_hang() -> None:
    view = view_of(hang(), still_s=dict.fromkeys(range(64), 134.2))
    assert describe(view, 80, source) == PICTURE.splitlines()


def test_it_is_readable_at_60_columns() -> None:
    lines = describe(view_of(hang()), 60)
    assert lines[0] == "64 ranks on 8 nodes · torchrun train.py             12:41:07"
    assert lines[1] == "all answered, 0.3 s"
    assert "train.py:88 step > all_reduce" in lines[4]


def test_those_who_did_not_answer_are_named_with_the_reason() -> None:
    silent = RankState.SILENT
    ranks = [
        *hang(4, 3),
        sample(8, (), state=silent, process=ProcessState("D", "nfs_wait")),
        sample(9, (), state=silent, process=ProcessState("R")),
        sample(17, (), state=silent),
        sample(18, (), state=RankState.ENDED),
    ]
    text = describe(view_of(ranks))
    assert text[:5] == [
        "8 ranks on 3 nodes · torchrun train.py · 4 of 8 answered, 0.3 s         12:41:07",
        "no answer from rank 8 (node2): blocked in the kernel (state D, nfs_wait)",
        "no answer from rank 9 (node2): busy in native code (state R)",
        "no answer from rank 17 (node3)",
        "rank 18 has ended (node3)",
    ]


def test_those_that_have_not_dialled_in_are_named() -> None:
    text = describe(view_of(hang(4, 3), absent=[4, 5, 7]))
    assert text[:3] == [
        "4 of 7 ranks on 1 node · torchrun train.py · 4 of 7 answered, 0.3 s     12:41:07",
        "ranks 4-5,7 have not dialled in",
        "",
    ]


def test_ranks_without_a_debugger_come_with_the_next_step() -> None:
    ranks = [
        sample(rank, (), state=RankState.UNDEBUGGED, process=ProcessState("S", "futex_wait"))
        for rank in range(3)
    ]
    text = describe(view_of(ranks))
    assert "· no debugger" in text[0] and not any("answer" in line for line in text)
    assert text[-3:] == [
        "ranks 0-2 run without a debugger: no Python stacks of them",
        "   tk ranks --native   their stacks, by py-spy",
        "   tk attach 0-2   bring the debugger in",
    ]
    assert any(line.endswith("sleeps or waits (state S, futex_wait)") for line in text)
    # Some of them have a debugger.
    text = describe(view_of([*ranks, *hang(4, 3)[3:]]))
    assert "1 of 4 answered" in text[0]


def test_stacks_of_py_spy_are_named_as_such_and_what_it_could_not_do() -> None:
    gil = ProcessState("S", "nanosleep", holds_gil=True)
    ranks = [
        sample(0, state=RankState.SILENT, process=gil),
        sample(1, (), state=RankState.UNDEBUGGED, process=ProcessState("R")),
    ]
    view = dataclasses.replace(view_of(ranks), native=True, notes=["node1: why\x1b[2J not"])
    text = describe(view)
    wide = describe(view, 120)
    assert any("in native code that holds the GIL (state S, nanosleep)" in line for line in wide)
    at = text.index("the stacks of rank 0 are py-spy's")
    assert text[at + 1 : at + 4] == [
        "node1: why\\x1b[2J not",
        "rank 1 runs without a debugger: no Python stack of it",
        "   tk attach 1   bring the debugger in",
    ]


def test_silent_ranks_come_with_the_next_step() -> None:
    silent = sample(0, (), state=RankState.SILENT)
    assert "   tk ranks --native   the stacks of those without an answer, by py-spy" in describe(
        view_of([silent])
    )


def test_ranks_that_wait_for_a_debugger_have_answered() -> None:
    text = describe(view_of([sample(0, (), state=RankState.WAITING)]))
    assert "all answered" in text[0]
    assert text[-1].split() == ["A", "0", "1", "-", "waits", "for", "a", "debugger"]


def arrival(**more: object) -> Arrival:
    plain = Arrival("world", (0, 1, 2), "barrier", 7, (0, 1), (0, 1), (), (), (), ())
    return dataclasses.replace(plain, **more)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (
            arrival(late=(LateRank(2, 1),)),
            "rank 2 has not reached barrier #7 of the group world; 2 ranks are waiting in it",
        ),
        (
            arrival(late=(LateRank(2, 3), LateRank(3, 3)), waiting=(1,)),
            "ranks 2-3 have not reached barrier #7 of the group world (3 collectives behind); "
            "1 rank is waiting in it",
        ),
        (
            arrival(silent=(2,), ended=(4, 5)),
            "2 ranks are waiting in barrier #7 of the group world; no answer from rank 2; "
            "ranks 4-5 have ended",
        ),
        (
            arrival(absent=(2,)),
            "2 ranks are waiting in barrier #7 of the group world; rank 2 has not dialled in",
        ),
        (
            arrival(late=(LateRank(2, 2, RankState.STOPPED),), also_behind=(LateRank(3, 1),)),
            "rank 2 has not reached barrier #7 of the group world (2 collectives behind); 2 ranks "
            "are waiting in it; the debugger holds rank 2; rank 3 has not reached it either and "
            "may be waiting for others",
        ),
        (
            arrival(group="a\x1b[2Jb", late=(LateRank(2, 1),), operation="x\n"),
            "rank 2 has not reached x\\n #7 of the group a\\x1b[2Jb; 2 ranks are waiting in it",
        ),
    ],
)
def test_a_finding_in_words(found: Arrival, text: str) -> None:
    assert arrival_text(found) == text


def in_state(activity: Activity, state: RankState = RankState.RUNNING) -> StackClass:
    return StackClass("A", (0,), ("node1",), (), sample(0, state=state), state, activity)


@pytest.mark.parametrize(
    ("found", "unmoved_s", "text"),
    [
        (in_state(Activity.WAITS), None, "waits"),
        (in_state(Activity.WAITS), 0.4, "waits"),
        (in_state(Activity.WAITS), float("nan"), "waits"),
        (in_state(Activity.SPINS), 45, "computes or polls, has not moved for 45 s"),
        (in_state(Activity.MOVES), 45, "moves"),
        (in_state(Activity.UNKNOWN), None, "runs"),
        (in_state(Activity.UNKNOWN, RankState.SILENT), 45, "no answer for 45 s"),
        (in_state(Activity.STOPPED, RankState.STOPPED), 45, "stopped by the debugger for 45 s"),
        (in_state(Activity.ENDED, RankState.ENDED), 45, "has ended"),
    ],
)
def test_states_in_words(found: StackClass, unmoved_s: float | None, text: str) -> None:
    assert state_text(found, unmoved_s) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59.9, "59 s"), (134, "2 min 14 s"), (11_100, "3 h 5 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_long_paths_and_stacks_are_shortened() -> None:
    deep = (*[own(f"a/{'b' * 30}/{'c' * 30}/m{at}.py", at, "go") for at in range(1, 15)],)
    view = view_of([*hang(4, 3), sample(9, deep)])
    text = describe(view)
    assert any(f"  …/{'c' * 30}/m14.py:14 go  " in line for line in text)
    assert " > …/m14.py:14  go" in text
    assert "   (4 outer frames left out)" in text
    assert not any("left out" in line for line in describe(view, full=True))


def test_at_most_five_stacks_and_the_late_one_is_among_them() -> None:
    others = [sample(rank, (own("x.py", rank, "go"),), world(1204)) for rank in range(64, 76)]
    ranks = [*hang(63, 60), *others, sample(99, LOADS[:2], world(1203))]
    stacks = [line for line in describe(view_of(ranks)) if "· pid" in line]
    assert len(stacks) == 5
    assert any("rank 99" in line for line in stacks) and any("rank 60" in line for line in stacks)
    assert len([line for line in describe(view_of(ranks), full=True) if "· pid" in line]) == 15


def test_calls_of_mpi() -> None:
    calls = BlockingCalls((("Barrier", (0, 1, 2)),), (3,))
    text = describe(view_of([sample(rank) for rank in range(4)], calls=calls))
    assert "at Barrier: ranks 0-2; at no blocking call of MPI: rank 3" in text


def columns_of(line: str) -> int:
    return sum(1 + (unicodedata.east_asian_width(one) in "WF") for one in line)


@given(
    rank_samples.samples,
    st.integers(1, 120),
    st.text(),
    st.booleans(),
    st.dictionaries(st.integers(0, 6), st.floats()),
)
def test_text_is_never_wider_and_has_no_control_characters(
    samples: list[RankSample], columns: int, text: str, full: bool, still_s: dict[int, float]
) -> None:
    unique = list({one.rank: one for one in samples}.values())
    view = view_of(unique, program=text, clock=text[:9], still_s=still_s)
    for line in describe(view, columns, lambda file, line: text, full):
        assert columns_of(line) <= columns
        assert line.isprintable()


def test_hostile_names_of_a_waiting_collective_stay_in_their_line() -> None:
    evil = "\x1b]0;owned\x07\nrank 0 has not reached all_reduce"
    frames = (MAIN, StackFrame(f"/x/{evil}.py", 3, evil))
    ranks = [dataclasses.replace(one, node=evil) for one in [*hang(4, 3), sample(5, frames)]]
    lines = describe(view_of(ranks, program=evil))
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith("rank 0") for line in lines)


def failing(rank: int, text: str, kind: str = "ValueError") -> RankSample:
    found = sample(rank, (MAIN, own("train.py", 4, "load")), state=RankState.STOPPED)
    return dataclasses.replace(found, failure=Failure(kind, text, 74.0))


def test_failed_ranks_are_one_class_by_type_and_place() -> None:
    failures = [failing(1, "bad rank 1"), failing(3, "bad rank 3"), failing(5, "no", "KeyError")]
    stopped = sample(7, (MAIN, own("train.py", 4, "load")), state=RankState.STOPPED)
    view = view_of([sample(0), *failures, stopped], still_s={1: 74.0, 3: 70.0})
    assert [(one.ranks, one.activity) for one in view.classes[1:]] == [
        ((1, 3), Activity.FAILED),
        ((5,), Activity.FAILED),
        ((7,), Activity.STOPPED),
    ]
    text = " ".join("\n".join(describe(view, 100)).split())
    assert "1,3 2 train.py:4 load failed 1 min 10 s ago: ValueError: bad rank 1" in text
    evil = view_of([failing(1, "\x1b[2J" + "y" * 1_000_000 + "\nsecond line")])
    lines = describe(evil, 80)
    assert all(line.isprintable() and len(line) <= 80 for line in lines) and len(lines) < 20
