"""The ranks for `--json`: one object with all that was found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict

from tunnelkit.debug.ranks.arrivals import Arrival, BlockingCalls, LateRank
from tunnelkit.debug.ranks.sample import Failure, ProcessState, RankSample, StackFrame
from tunnelkit.debug.ranks.stacks import StackClass
from tunnelkit.debug.ranks_view.view import RanksView


class FrameJson(TypedDict):
    """One frame. line: counted from 1; 0 in a normal form for a frame by its function alone."""

    file: str
    line: int
    function: str


class LateJson(TypedDict):
    """A late rank. behind: the collectives that it lacks. state: `running`, or `stopped`."""

    rank: int
    behind: int
    state: str


class ClassJson(TypedDict):
    """Ranks with equal stacks.

    place: the normal form, outermost first. activity: a value of `Activity`. cpu_share: of one CPU
    between the samples. unmoved_s: for how long no rank has moved. Both are null if unknown.
    """

    name: str
    ranks: list[int]
    nodes: list[str]
    place: list[FrameJson]
    state: str
    activity: str
    cpu_share: float | None
    unmoved_s: float | None


class ArrivalJson(TypedDict):
    """A collective in which ranks wait for others. The fields are those of `Arrival`."""

    group: str
    operation: str
    sequence: int
    members: list[int]
    arrived: list[int]
    waiting: list[int]
    late: list[LateJson]
    also_behind: list[LateJson]
    silent: list[int]
    ended: list[int]
    absent: list[int]


class CallJson(TypedDict):
    """The ranks at one of MPI's blocking calls. call: "" for those at none."""

    call: str
    ranks: list[int]


class GroupJson(TypedDict):
    """A process group in one rank. ranks: its members, empty for all. operation: "" if unknown."""

    name: str
    ranks: list[int]
    sequence: int
    operation: str


class ProcessJson(TypedDict):
    """A silent rank's process. letter: its state as /proc has it. wchan: "" if unknown."""

    letter: str
    wchan: str
    cpu_s: float | None
    holds_gil: bool


class FailureJson(TypedDict):
    """The uncaught exception that a rank is kept at. age_s: since it was raised, in seconds."""

    type: str
    text: str
    age_s: float


# `class` is a word of Python: the functional form.
RankJson = TypedDict(
    "RankJson",
    {
        "rank": int,
        "node": str,
        "pid": int,
        "state": str,
        "class": str,
        "frames": list[FrameJson],
        "cpu_s": float | None,
        "groups": list[GroupJson],
        "process": ProcessJson | None,
        "command": str,
        "failure": FailureJson | None,
    },
)
RankJson.__doc__ = """One rank. class: the name of its class, "" if none. frames: outermost first;
    of a failure, those of the exception. command: only of a rank without a debugger."""


class LookJson(TypedDict):
    """The answer of `tk ranks --json`.

    total, answered: numbers of ranks. absent: those of them that have not dialled in; they are in
    none of the other lists. took_s: seconds. mpi_calls: empty where that was not asked. notes: what
    could not be asked, and why.
    """

    program: str
    total: int
    nodes: int
    answered: int
    absent: list[int]
    took_s: float
    classes: list[ClassJson]
    arrivals: list[ArrivalJson]
    mpi_calls: list[CallJson]
    ranks: list[RankJson]
    notes: list[str]


def look_json(view: RanksView) -> LookJson:
    """The whole view, as the standard library's json takes it; text as the cluster sent it."""
    names = {rank: one.name for one in view.classes for rank in one.ranks}
    return {
        "program": view.program,
        "total": view.total(),
        "nodes": view.nodes(),
        "answered": view.answered(),
        "absent": list(view.absent),
        "took_s": view.took_s,
        "classes": [_class(one, view.unmoved_s(one)) for one in view.classes],
        "arrivals": [_arrival(one) for one in view.arrivals],
        "mpi_calls": _calls(view.calls) if view.calls else [],
        "ranks": [
            _rank(one, names.get(one.rank, ""))
            for one in sorted(view.samples, key=lambda one: one.rank)
        ],
        "notes": list(view.notes),
    }


def _finite(number: float | None) -> float | None:
    """JSON has no nan."""
    return number if number is not None and math.isfinite(number) else None


def _frames(frames: Sequence[StackFrame]) -> list[FrameJson]:
    return [{"file": one.file, "line": one.line, "function": one.function} for one in frames]


def _class(found: StackClass, unmoved_s: float | None) -> ClassJson:
    return {
        "name": found.name,
        "ranks": list(found.ranks),
        "nodes": list(found.nodes),
        "place": _frames(found.form),
        "state": found.state.value,
        "activity": found.activity.value,
        "cpu_share": _finite(found.cpu_share),
        "unmoved_s": _finite(unmoved_s),
    }


def _calls(calls: BlockingCalls) -> list[CallJson]:
    return [
        {"call": name, "ranks": list(ranks)} for name, ranks in (*calls.calls, ("", calls.none))
    ]


def _late(ranks: Sequence[LateRank]) -> list[LateJson]:
    return [{"rank": one.rank, "behind": one.behind, "state": one.state.value} for one in ranks]


def _arrival(found: Arrival) -> ArrivalJson:
    return {
        "group": found.group,
        "operation": found.operation,
        "sequence": found.sequence,
        "members": list(found.members),
        "arrived": list(found.arrived),
        "waiting": list(found.waiting),
        "late": _late(found.late),
        "also_behind": _late(found.also_behind),
        "silent": list(found.silent),
        "ended": list(found.ended),
        "absent": list(found.absent),
    }


def _process(process: ProcessState) -> ProcessJson:
    return {
        "letter": process.letter,
        "wchan": process.wchan,
        "cpu_s": _finite(process.cpu_s),
        "holds_gil": process.holds_gil,
    }


def _failure(failure: Failure) -> FailureJson:
    return {"type": failure.type, "text": failure.text, "age_s": _finite(failure.age_s) or 0.0}


def _rank(sample: RankSample, name: str) -> RankJson:
    process = sample.process
    return {
        "rank": sample.rank,
        "node": sample.node,
        "pid": sample.pid,
        "state": sample.state.value,
        "class": name,
        "frames": _frames(sample.frames),
        "cpu_s": _finite(sample.cpu_s),
        "groups": [
            {
                "name": one.name,
                "ranks": list(one.ranks),
                "sequence": one.sequence,
                "operation": one.operation,
            }
            for one in sample.groups
        ],
        "process": None if process is None else _process(process),
        "command": sample.command,
        "failure": None if sample.failure is None else _failure(sample.failure),
    }
