"""Plans for the ranks of a line, and how long they are waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tunnelkit.debug.console.commands import (
    Break,
    Catch,
    ChooseFrame,
    Clear,
    Evaluate,
    Go,
    Move,
    RankLine,
    ShowArguments,
    ShowSource,
    Where,
)
from tunnelkit.debug.console.console_breakpoints import ConsoleBreakpoint, ConsoleBreakpoints
from tunnelkit.debug.console.line_parser import LineError
from tunnelkit.debug.console.open_line import Patience
from tunnelkit.debug.console.plans import LocalSource, Missing, Plan, says
from tunnelkit.debug.console.rank_lines import (
    choose_frame,
    evaluate,
    go,
    move,
    set_breakpoint,
    show_arguments,
    show_source,
    update_breakpoints,
    where,
)
from tunnelkit.debug.console.rank_state import RankThere
from tunnelkit.debug.console.ranks_there import RanksThere, counted
from tunnelkit.debug.ranks.fold import fold_ranks

#: The absolute path on the laptop of a file as the user types it; None if it is not there.
ResolvePath = Callable[[str], str | None]

_VALUES = Patience()
_MOVES = Patience(whole_s=3.0)


@dataclass(frozen=True)
class Prepared:
    """The plans of a line, by rank. notes: lines to show before the answers."""

    plans: dict[int, Plan]
    patience: Patience = _VALUES
    notes: list[str] = field(default_factory=list)


class LinePlans:
    """Makes the plans of lines. breakpoints: those of the console."""

    def __init__(
        self,
        there: RanksThere,
        breakpoints: ConsoleBreakpoints,
        source: LocalSource,
        resolve: ResolvePath,
    ) -> None:
        self._there = there
        self._breakpoints = breakpoints
        self._source = source
        self._resolve = resolve

    def prepare(self, command: RankLine, ranks: Iterable[int], *, all_ranks: bool) -> Prepared:
        """Return the plans of a line. all_ranks: it is for everyone, and later ranks, too.

        Raises LineError for a line that no rank can answer.
        """
        chosen = sorted(ranks)
        match command:
            case Move(request):
                return self._each(chosen, lambda one: move(one, request, self._source), _MOVES)
            case Go():
                return self._go(chosen, all_ranks=all_ranks)
            case Break():
                return self._break(command, chosen, all_ranks=all_ranks)
            case Clear():
                return self._clear(command, chosen)
            case Catch(filters):
                return self._catch(filters, chosen, all_ranks=all_ranks)
            case _:
                return self._each(chosen, lambda one: self._plan(command, one))

    def _plan(
        self,
        command: Evaluate | Where | ChooseFrame | ShowSource | ShowArguments,
        rank: RankThere,
    ) -> Plan:
        match command:
            case Evaluate():
                return evaluate(rank, command)
            case Where():
                return where(rank, self._source)
            case ChooseFrame():
                return choose_frame(rank, command, self._source)
            case ShowSource():
                return show_source(rank, command, self._source, self._breakpoints)
            case ShowArguments():
                return show_arguments(rank)

    def _each(
        self,
        ranks: list[int],
        plan: Callable[[RankThere], Plan],
        patience: Patience = _VALUES,
        notes: Iterable[str] = (),
    ) -> Prepared:
        known = self._there.by_rank
        plans = {
            rank: plan(known[rank]) if rank in known else says(Missing("is not there"))
            for rank in ranks
        }
        return Prepared(plans, patience, list(notes))

    def _go(self, ranks: list[int], *, all_ranks: bool) -> Prepared:
        notes = []
        if all_ranks and self._breakpoints and not self._there.in_state("waiting"):
            count = counted(len(self._breakpoints), "breakpoint")
            notes = [f"{count} of this console removed (`cast ranks(:) c` keeps them)"]
            self._breakpoints.clear()
        return self._each(ranks, lambda one: go(one, self._breakpoints), notes=notes)

    # -- breakpoints --------------------------------------------------------------

    def _break(self, command: Break, ranks: list[int], *, all_ranks: bool) -> Prepared:
        path = self._path(command.file) if command.file else ""
        lines = self._source(path) if path else None
        if lines is not None and command.line > len(lines):
            raise LineError(f"{command.file} has {counted(len(lines), 'line')}")
        made: dict[str, ConsoleBreakpoint] = {}

        def add(where: str, rank: RankThere) -> ConsoleBreakpoint:
            if where not in made:
                made[where] = self._breakpoints.add(
                    where,
                    command.line,
                    command.condition,
                    temporary=command.temporary,
                    # That of the current file is for those that are in it.
                    ranks=None if all_ranks and path else set(ranks) if path else set(),
                )
            mine = made[where]
            if mine.ranks is not None:
                mine.ranks.add(rank.rank)
            return mine

        return self._each(ranks, lambda one: set_breakpoint(one, path, add, self._breakpoints))

    def _path(self, file: str) -> str:
        path = self._resolve(file)
        if path is None and file.startswith("/"):
            return file
        if path is None:
            raise LineError(f"there is no file {file} in the project")
        return path

    def _clear(self, command: Clear, ranks: list[int]) -> Prepared:
        found = self._found(command)
        names = ", ".join(str(one.number) for one in found)
        removed = f"removed: {names}" if found else "no breakpoints are set"
        self._breakpoints.take_from(found, ranks, self._there.by_rank)
        return self._each(ranks, lambda one: update_breakpoints(one, removed, self._breakpoints))

    def _catch(self, filters: tuple[str, ...], ranks: list[int], *, all_ranks: bool) -> Prepared:
        self._breakpoints.catch(filters, None if all_ranks else ranks)
        answer = f"stops at {_exceptions(filters)}"
        return self._each(ranks, lambda one: update_breakpoints(one, answer, self._breakpoints))

    def _found(self, command: Clear) -> list[ConsoleBreakpoint]:
        if command.file:
            at = self._breakpoints.at(self._path(command.file), command.line)
            if not at:
                raise LineError(f"there is no breakpoint at {command.file}:{command.line}")
            return at
        found = []
        for number in command.numbers:
            one = self._breakpoints.numbered(number)
            if one is None:
                there = fold_ranks(each.number for each in self._breakpoints) or "none"
                raise LineError(f"there is no breakpoint {number}; there are {there}")
            found.append(one)
        return found if command.numbers else list(self._breakpoints)

    def breakpoint_lines(self) -> list[str]:
        """A line for each breakpoint, for `b` alone."""
        rows = []
        for one in self._breakpoints:
            ranks = [rank for rank in self._there.by_rank if one.is_for(rank)]
            condition = f"  if {one.condition}" if one.condition else ""
            kind = "  once" if one.temporary else ""
            rows.append(f"{one.number:>3}  {one.name}{condition}{kind}  ({self._whose(ranks)})")
        caught: dict[tuple[str, ...], list[int]] = {}
        for rank in self._there.by_rank:
            caught.setdefault(self._breakpoints.filters(rank), []).append(rank)
        rows += [
            f"    {_exceptions(filters)}  ({self._whose(ranks)})"
            for filters, ranks in caught.items()
            if filters
        ]
        return rows or ["no breakpoints are set"]

    def _whose(self, ranks: list[int]) -> str:
        return "all ranks" if len(ranks) == len(self._there.by_rank) else fold_ranks(ranks)


def _exceptions(filters: tuple[str, ...]) -> str:
    """`raised and uncaught exceptions`."""
    return f"{' and '.join(filters) or 'no'} exceptions"
