"""Samples as JSON objects, between the session and its commands."""

from __future__ import annotations

from functools import lru_cache
from typing import TypedDict

from tunnelkit.debug.ranks.fold import fold_ranks, unfold_ranks
from tunnelkit.debug.ranks.sample import (
    Failure,
    GroupProgress,
    ProcessState,
    RankSample,
    RankState,
    StackFrame,
)


class FrameInfo(TypedDict):
    """A `StackFrame`."""

    file: str
    line: int
    function: str


class GroupInfo(TypedDict):
    """A `GroupProgress`. ranks: folded, as each of many ranks has the same long list."""

    name: str
    ranks: str
    sequence: int
    operation: str


class ProcessStateInfo(TypedDict):
    """A `ProcessState`."""

    letter: str
    wchan: str
    cpu_s: float
    holds_gil: bool


class FailureInfo(TypedDict):
    """A `Failure`."""

    type: str
    text: str
    age_s: float


class SampleInfo(TypedDict):
    """A `RankSample`."""

    rank: int
    node: str
    pid: int
    state: str
    frames: list[FrameInfo]
    instruction: int
    cpu_s: float | None
    groups: list[GroupInfo]
    process: ProcessStateInfo | None
    local_rank: int
    command: str
    failure: FailureInfo | None


def failure_json(failure: Failure) -> FailureInfo:
    """Return a failure as a JSON object."""
    return {"type": failure.type, "text": failure.text, "age_s": failure.age_s}


def to_json(sample: RankSample) -> SampleInfo:
    """Return a sample as a JSON object."""
    process = sample.process
    return {
        "rank": sample.rank,
        "node": sample.node,
        "pid": sample.pid,
        "state": sample.state.value,
        "frames": [
            {"file": one.file, "line": one.line, "function": one.function} for one in sample.frames
        ],
        "instruction": sample.instruction,
        "cpu_s": sample.cpu_s,
        "groups": [
            {
                "name": one.name,
                "ranks": _folded(one.ranks),
                "sequence": one.sequence,
                "operation": one.operation,
            }
            for one in sample.groups
        ],
        "process": None
        if process is None
        else {
            "letter": process.letter,
            "wchan": process.wchan,
            "cpu_s": process.cpu_s,
            "holds_gil": process.holds_gil,
        },
        "local_rank": sample.local_rank,
        "command": sample.command,
        "failure": None if sample.failure is None else failure_json(sample.failure),
    }


def from_json(info: SampleInfo) -> RankSample:
    """Return the sample of a JSON object that `to_json` made."""
    process, failure = info["process"], info["failure"]
    return RankSample(
        rank=info["rank"],
        node=info["node"],
        pid=info["pid"],
        state=RankState(info["state"]),
        frames=tuple(StackFrame(**one) for one in info["frames"]),
        instruction=info["instruction"],
        cpu_s=info["cpu_s"],
        groups=tuple(
            GroupProgress(one["name"], _unfolded(one["ranks"]), one["sequence"], one["operation"])
            for one in info["groups"]
        ),
        process=None if process is None else ProcessState(**process),
        local_rank=info["local_rank"],
        command=info["command"],
        failure=None if failure is None else Failure(**failure),
    )


_folded = lru_cache(maxsize=16)(fold_ranks)
_unfolded = lru_cache(maxsize=16)(unfold_ranks)
