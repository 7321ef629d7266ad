"""The parts of a selection of ranks, as the parser has read them."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from types import MappingProxyType

from tunnelkit.debug.ranks.sample import RankState

#: A dimension or another word.
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: The words that select every rank.
EVERYTHING = ("all", "*")
#: The word of a state -> the state. `failed` is none: a failed rank is stopped or has ended.
STATE_WORDS = MappingProxyType(
    {
        "stopped": RankState.STOPPED,
        "running": RankState.RUNNING,
        "waiting": RankState.WAITING,
        "ended": RankState.ENDED,
    }
)
FAILED = "failed"
#: The dimensions that every program has, by the words that name them.
DIMENSIONS = MappingProxyType(
    {
        "rank": "rank",
        "node": "node",
        "host": "node",
        "hosts": "node",
        "local": "local",
        "gpu": "local",
        "gpus": "local",
    }
)


@dataclass(frozen=True)
class NamedNumber:
    """A number that must be there. column: where it was typed."""

    value: int
    column: int


@dataclass(frozen=True)
class Numbers:
    """The numbers of a range as in Python's `range`; stop None: without an end.

    named: those that the user wrote as members: the one of `3`, the ends of `0-3`, none of `0:4`.
    """

    start: int
    stop: int | None
    step: int = 1
    named: tuple[NamedNumber, ...] = ()

    def among(self, present: Collection[int]) -> set[int]:
        """Those of `present` that are in the range. It is never expanded beyond them."""
        stop = max(present, default=-1) + 1 if self.stop is None else self.stop
        span = range(self.start, stop, self.step)
        return {number for number in present if number in span}


@dataclass(frozen=True)
class NodeName:
    """The name of a node. column: where it was typed."""

    name: str
    column: int


@dataclass(frozen=True)
class Everything:
    """All ranks: `all`, `*`."""


@dataclass(frozen=True)
class InState:
    """The ranks in a state. word: one of `STATE_WORDS`, or `FAILED`."""

    word: str


@dataclass(frozen=True)
class InClass:
    """The ranks of a class of the last list: `@B`. name: without the @."""

    name: str


@dataclass(frozen=True)
class InDimension:
    """The ranks at some places of a dimension: `node=1`, `pp=(0,2:4)`.

    word: as typed. name: the dimension that it names. written: the values as typed, without
    brackets.
    """

    word: str
    name: str
    values: tuple[Numbers | NodeName, ...]
    written: str


@dataclass(frozen=True)
class Term:
    """One part of a list. negated: all ranks but these. column: where it begins."""

    what: Everything | Numbers | InState | InClass | InDimension
    negated: bool
    column: int
