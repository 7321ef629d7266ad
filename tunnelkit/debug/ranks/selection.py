"""The ranks that a user selects: `0-3,7`, `node=1, local=2`, `stopped`, `@B`, `!0`.

The same text selects in the console and on the command line; `selection_parser` has its grammar.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NoReturn

from tunnelkit.debug.ranks.fold import fold_ranks
from tunnelkit.debug.ranks.roster import Roster
from tunnelkit.debug.ranks.selection_parser import parse_terms, quoted
from tunnelkit.debug.ranks.terms import (
    DIMENSIONS,
    FAILED,
    STATE_WORDS,
    Everything,
    InClass,
    InDimension,
    InState,
    NodeName,
    Numbers,
    Term,
)
from tunnelkit.debug.ranks.text_errors import SelectionError
from tunnelkit.text_format import shown

#: Names that a message lists.
_MOST_NAMES = 8


@dataclass(frozen=True)
class Selection:
    """A selection that is well-formed. terms: one or more, all dimensions or none."""

    text: str
    terms: tuple[Term, ...]

    def resolve(self, roster: Roster) -> tuple[int, ...]:
        """Return the selected ranks, ascending, each once.

        They are in all dimensions; or in any of the other terms and in none that `!` excludes:
        `0-7, !3` is without 3.

        Raises SelectionError: a rank, node, class or dimension that is not there; nobody is left.
        """
        resolver = _Resolver(self.text, roster)
        found = [resolver.term(term) for term in self.terms]
        if isinstance(self.terms[0].what, InDimension):
            chosen = set[int].intersection(*found)
        else:
            taken = [
                ranks for term, ranks in zip(self.terms, found, strict=True) if not term.negated
            ]
            left = [ranks for term, ranks in zip(self.terms, found, strict=True) if term.negated]
            chosen = set[int]().union(*taken) if taken else set(roster.by_rank)
            chosen.intersection_update(*left)
        if not chosen:
            message = f"{quoted(shown(self.text.strip()))} selects nobody"
            why = "" if roster.entries else ": no ranks are there yet"
            raise SelectionError(message + why, text=self.text, column=1)
        return tuple(sorted(chosen))


def parse_selection(text: str) -> Selection:
    """Read a selection. Raises SelectionError for a malformed one, with the column.

    Names are looked up later, by `Selection.resolve`.
    """
    return Selection(text, parse_terms(text))


class _Resolver:
    """Finds the ranks of single terms."""

    def __init__(self, text: str, roster: Roster) -> None:
        self._text = text
        self._roster = roster
        self._everyone = set(roster.by_rank)

    def term(self, term: Term) -> set[int]:
        found = self._selected(term)
        return self._everyone - found if term.negated else found

    def _selected(self, term: Term) -> set[int]:
        match term.what:
            case Everything():
                return self._everyone
            case Numbers() as numbers:
                self._check_numbers(numbers, self._everyone, "rank")
                return numbers.among(self._everyone)
            case InState(word):
                return self._in_state(word)
            case InClass(name):
                return self._in_class(name, term.column)
            case InDimension() as dimension:
                return self._in_dimension(dimension, term.column)

    def _in_state(self, word: str) -> set[int]:
        entries = self._roster.by_rank.values()
        if word == FAILED:
            return {entry.rank for entry in entries if entry.failed}
        return {entry.rank for entry in entries if entry.state is STATE_WORDS[word]}

    def _in_class(self, name: str, column: int) -> set[int]:
        ranks = self._roster.classes.get(name)
        if ranks is None:
            there = _listed(f"@{known}" for known in self._roster.classes)
            self._refuse(f"there is no class @{quoted(name)}; there are {there}", column)
        gone = set(ranks) - self._everyone
        if gone:
            left = _folded(set(ranks) - gone)
            self._refuse(
                f"of @{quoted(name)}, {_folded(gone)} is not there any more; left: {left}", column
            )
        return set(ranks)

    # -- dimensions -------------------------------------------------------

    def _in_dimension(self, dimension: InDimension, column: int) -> set[int]:
        if dimension.name not in self._roster.dimensions:
            self._refuse_dimension(dimension, column)
        places = self._roster.places(dimension.name)
        taken = set(places.values())
        mesh = self._roster.mesh
        known: Collection[int] = taken
        if mesh is not None and dimension.name in mesh.names:
            known = range(mesh.size(dimension.name))
        wanted: set[int] = set()
        for value in dimension.values:
            if isinstance(value, NodeName):
                wanted.add(self._node_index(value, dimension))
            else:
                self._check_numbers(value, known, dimension.name)
                wanted |= value.among(taken)
        return {rank for rank, place in places.items() if place in wanted}

    def _node_index(self, value: NodeName, dimension: InDimension) -> int:
        if dimension.name != "node":
            self._refuse(
                f"{quoted(dimension.word)} is selected by numbers, not by {quoted(value.name)}",
                value.column,
            )
        if value.name not in self._roster.nodes:
            there = _listed(self._roster.nodes)
            self._refuse(f"no node is named {quoted(value.name)}; there are {there}", value.column)
        return self._roster.nodes.index(value.name)

    def _refuse_dimension(self, dimension: InDimension, column: int) -> NoReturn:
        lower = dimension.word.lower()
        there = f"there are {_listed(self._roster.dimensions)}"
        if lower in DIMENSIONS or lower in self._roster.dimensions:
            there = f"{lower} is one, in small letters"
        self._refuse(f"there is no dimension {quoted(dimension.word)}; {there}", column)

    # -- what is not there ------------------------------------------------

    def _check_numbers(self, numbers: Numbers, known: Collection[int], dimension: str) -> None:
        """Refuse numbers that the user wrote as members and that are not there.

        known: the members of the dimension; a range for a mesh's, which may be much larger."""
        for named in numbers.named:
            if named.value not in known:
                what = {"local": "local rank"}.get(dimension, quoted(dimension))
                there = f"0-{len(known) - 1}" if isinstance(known, range) else _folded(known)
                self._refuse(f"there is no {what} {named.value}; there are {there}", named.column)

    def _refuse(self, message: str, column: int) -> NoReturn:
        raise SelectionError(message, text=self._text, column=column)


def _folded(ranks: Collection[int]) -> str:
    return quoted(fold_ranks(ranks)) or "none"


def _listed(names: Iterable[str]) -> str:
    """Names for a message: the first ones, and how many more."""
    known = [shown(name) for name in names]
    more = f" and {len(known) - _MOST_NAMES} more" if len(known) > _MOST_NAMES else ""
    return (", ".join(known[:_MOST_NAMES]) or "none") + more
