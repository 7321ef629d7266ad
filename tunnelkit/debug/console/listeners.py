"""The ranks that lines go to, and the prompt that says so."""

from __future__ import annotations

from tunnelkit.debug.console.line_parser import LineError
from tunnelkit.debug.console.ranks_there import RanksThere
from tunnelkit.debug.console.rendering import ranks_text
from tunnelkit.debug.ranks.console_messages import State
from tunnelkit.debug.ranks.fold import fold_ranks
from tunnelkit.debug.ranks.selection import parse_selection
from tunnelkit.debug.ranks.text_errors import MarkedTextError
from tunnelkit.text_format import shown

_WIDEST_PROMPT = 40
_WIDEST_NODE = 24
_ALL = ("all", "*", ":", "::")


class Listeners:
    """The ranks of the prompt: all that have not ended, or a choice of the user's."""

    def __init__(self, there: RanksThere) -> None:
        self._there = there
        #: None: all.
        self._chosen: tuple[int, ...] | None = None
        self._name = ""
        self._before: tuple[tuple[int, ...] | None, str] | None = None
        self._attached = False

    @property
    def ranks(self) -> tuple[int, ...]:
        """Their numbers, ascending."""
        return self._there.alive if self._chosen is None else self._chosen

    @property
    def outer(self) -> bool:
        """True if lines go to all ranks, and these are several."""
        everyone = len(self.ranks) > 1 and self.ranks == self._there.alive
        return everyone or (self._chosen is None and not self.ranks)

    @property
    def is_everyone(self) -> bool:
        """True if lines go to all ranks, one or several, and to those that come later."""
        return self._chosen is None

    def any_in(self, state: State) -> bool:
        """True if one of the ranks is in that state. Asked for each event, so none is sorted."""
        known = self._there.by_rank
        ranks = known if self._chosen is None else self._chosen
        return any(rank in known and known[rank].state == state for rank in ranks)

    @property
    def standing(self) -> frozenset[tuple[int, int]]:
        """Those that stand, each with a number that is another one at its next stop."""
        known = self._there.by_rank
        ranks = known if self._chosen is None else self._chosen
        there = (known[rank] for rank in ranks if rank in known)
        return frozenset((one.rank, one.epoch) for one in there if one.state == "stopped")

    @property
    def prompt(self) -> str:
        """`(tk 0-63) `, `(tk 13 · node4) `, `(tk @B: 47) `, `(tk) `."""
        if not self.ranks:
            return "(tk) "
        text = ranks_text(self.ranks, _WIDEST_PROMPT)
        if self._name:
            text = f"{self._name}: {text}"
        if len(self.ranks) == 1 and self.ranks[0] in self._there.by_rank:
            node = shown(self._there.by_rank[self.ranks[0]].node)[:_WIDEST_NODE]
            text += f" · {node}" if node else ""
        return f"(tk {text}) "

    def select(self, selection: str, line: str, at: int) -> tuple[int, ...]:
        """Return the ranks of a selection, which stands at index `at` of the line.

        Raises LineError with the column in the line.
        """
        try:
            return parse_selection(selection).resolve(self._there.roster())
        except MarkedTextError as error:
            column = at + error.column if error.column else 0
            raise LineError(error.message, text=line, column=column) from None

    def choose(self, selection: str, line: str, at: int, *, attach: bool = False) -> None:
        """Let lines go to a selection. attach: to one rank, for a time. Raises LineError."""
        ranks = self.select(selection, line, at)
        if not (attach and self._attached):
            self._before = (self._chosen, self._name)
        self._attached = attach
        word = selection.strip()
        self._chosen = None if word in _ALL else ranks
        # No other selection is as short as its name.
        named = word.startswith("@") and "," not in word
        self._name = shown(word) if named else ""

    def back(self) -> None:
        """Let lines go to the ranks before the last choice, several of `attach` being one.

        Raises LineError if they go to all.
        """
        if self._chosen is None:
            raise LineError("nothing to detach from: lines go to all ranks")
        self._chosen, self._name = self._before or (None, "")
        self._before, self._attached = None, False

    def drop_ended(self) -> str:
        """Go back to all ranks if no chosen one is left. Returns a line about it, or ""."""
        known, awaited = self._there.by_rank, self._there.awaited
        if self._chosen is None or any(
            one in awaited or (one in known and known[one].state != "ended") for one in self._chosen
        ):
            return ""
        gone, self._chosen, self._name, self._before = self._chosen, None, "", None
        self._attached = False
        left = ranks_text(self.ranks, _WIDEST_PROMPT) or "no rank"
        ended = "rank" if len(gone) == 1 else "ranks"
        return f"{ended} {_folded(gone)}: ended. Lines go to {left} now"


def _folded(ranks: tuple[int, ...]) -> str:
    text = fold_ranks(ranks)
    return text if len(text) <= _WIDEST_PROMPT else ranks_text(ranks, _WIDEST_PROMPT)
