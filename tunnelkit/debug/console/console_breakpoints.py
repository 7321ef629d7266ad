"""The breakpoints of one console, numbered by it, and the exceptions at which it stops ranks.

A debuggee is sent all of a file's at once. Breakpoints stay here when the ranks are replaced by
those of a new run, which get them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

#: (line, condition), in the order in which they were set.
FileBreakpoints = tuple[tuple[int, str], ...]


@dataclass
class ConsoleBreakpoint:
    """One breakpoint. ranks: None for all, later ones included. without: ranks that have lost it;
    a temporary one is lost where it was reached."""

    number: int
    path: str
    line: int
    condition: str
    temporary: bool
    ranks: set[int] | None
    without: set[int] = field(default_factory=set)

    @property
    def name(self) -> str:
        """`train.py:88`."""
        return self.path.replace("\\", "/").rpartition("/")[2] + f":{self.line}"

    def is_for(self, rank: int) -> bool:
        """True if the rank has it, or will."""
        return rank not in self.without and (self.ranks is None or rank in self.ranks)


class ConsoleBreakpoints:
    """All of them, by number."""

    def __init__(self) -> None:
        self._all: dict[int, ConsoleBreakpoint] = {}
        self._last = 0
        #: DAP's filters: of all ranks, later ones included, and of those that have others.
        self._filters: tuple[str, ...] = ()
        self._own_filters: dict[int, tuple[str, ...]] = {}

    def __iter__(self) -> Iterator[ConsoleBreakpoint]:
        return iter(self._all.values())

    def __len__(self) -> int:
        return len(self._all)

    def add(
        self, path: str, line: int, condition: str, *, temporary: bool, ranks: set[int] | None
    ) -> ConsoleBreakpoint:
        """Add one with a new number."""
        self._last += 1
        self._all[self._last] = found = ConsoleBreakpoint(
            self._last, path, line, condition, temporary, ranks
        )
        return found

    def numbered(self, number: int) -> ConsoleBreakpoint | None:
        """Return the one with a number; None if there is none."""
        return self._all.get(number)

    def at(self, path: str, line: int) -> list[ConsoleBreakpoint]:
        """Return those of a line."""
        return [one for one in self._all.values() if (one.path, one.line) == (path, line)]

    def take_from(
        self, found: Iterable[ConsoleBreakpoint], ranks: Iterable[int], everyone: Iterable[int]
    ) -> None:
        """Take breakpoints from ranks; one that no rank of `everyone` has left is gone."""
        ranks, everyone = set(ranks), set(everyone)
        for one in list(found):
            one.without |= ranks
            if not any(one.is_for(rank) for rank in everyone):
                self._all.pop(one.number, None)

    def catch(self, filters: tuple[str, ...], ranks: Iterable[int] | None) -> None:
        """Set the exceptions at which ranks stop. ranks: None for all, later ones included."""
        if ranks is None:
            self._filters, self._own_filters = filters, {}
        else:
            self._own_filters.update(dict.fromkeys(ranks, filters))

    def filters(self, rank: int) -> tuple[str, ...]:
        """Return the exceptions at which a rank must stop."""
        return self._own_filters.get(rank, self._filters)

    def clear(self) -> None:
        """Remove all breakpoints; exceptions stop ranks as before."""
        self._all.clear()

    def begin_again(self) -> None:
        """A new run: its ranks get the breakpoints that were set for theirs, reached or not."""
        for one in self._all.values():
            if one.temporary:
                one.without.clear()

    def wanted(self, rank: int) -> dict[str, FileBreakpoints]:
        """Return the breakpoints that a rank must have, by file."""
        files: dict[str, dict[int, str]] = {}
        for one in self._all.values():
            if one.is_for(rank):
                # Of two on a line, the last one counts.
                files.setdefault(one.path, {})[one.line] = one.condition
        return {path: tuple(lines.items()) for path, lines in files.items()}

    def lines(self, rank: int, path: str) -> set[int]:
        """Return the lines of a file at which a rank has one."""
        return {one.line for one in self._all.values() if one.path == path and one.is_for(rank)}
