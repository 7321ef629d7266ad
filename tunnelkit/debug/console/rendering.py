"""Answers of ranks as lines for a terminal: equal ones once, nothing wider than the terminal.

All text of the cluster passes `plain`, which leaves line breaks and nothing else that a terminal
would obey.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tunnelkit.debug.console.line_results import AnswerText, Unanswered
from tunnelkit.debug.console.plans import Missing, Outcome, Said
from tunnelkit.debug.ranks.fold import NumberGrid, fold_answers, fold_ranks, number_grid
from tunnelkit.text_format import shown

#: Of the column with the ranks.
_WIDEST_LABEL = 24
_LEAST_LABEL = 10
#: Of a text of several lines.
_BLOCK_INDENT = "   "
#: Of one of several blocks.
_LONGEST_BLOCK = 500
_MOST_BLOCK_LINES = 12
_LEAST_COLUMNS = 20


def plain(text: str) -> str:
    """Text of the cluster for a terminal, its line breaks kept."""
    return shown(text.replace("\r\n", "\n").expandtabs(4), keep="\n")


def ranks_text(ranks: Iterable[int], columns: int) -> str:
    """`0-3,7`, cut where it is wider than `columns`, with the number of ranks."""
    members = set(ranks)
    text = fold_ranks(members)
    if len(text) <= columns:
        return text
    count = f"... ({len(members)})"
    return text[: max(columns - len(count), 0)].rpartition(",")[0] + count


def answer_texts(outcomes: Mapping[int, Outcome]) -> tuple[AnswerText, ...]:
    """The answers of ranks, equal ones once, by their lowest ranks."""
    said = {rank: one.text for rank, one in outcomes.items() if isinstance(one, Said)}
    return tuple(AnswerText(block.ranks, plain(block.text)) for block in fold_answers(said))


def unanswered(outcomes: Mapping[int, Outcome]) -> tuple[Unanswered, ...]:
    """The ranks without an answer, by reason."""
    missing = {rank: one.reason for rank, one in outcomes.items() if isinstance(one, Missing)}
    blocks = fold_answers(missing)
    return tuple(Unanswered(block.ranks, " ".join(plain(block.text).split())) for block in blocks)


class Rendering:
    """Makes lines of at most `columns` characters."""

    def __init__(self, columns: int) -> None:
        self.columns = max(columns, _LEAST_COLUMNS)

    def wrapped(self, text: str, indent: str = "") -> list[str]:
        """Lines of printable text, those that are too wide cut into several."""
        width = max(self.columns - len(indent), 1)
        lines: list[str] = []
        for line in text.split("\n"):
            parts = [line[at : at + width] for at in range(0, len(line), width)] or [""]
            lines += [(indent + part).rstrip() for part in parts]
        return lines

    def sentence(self, text: str) -> list[str]:
        """Lines of a printable sentence of the console's own."""
        return textwrap.wrap(text, self.columns)

    def answers(
        self, outcomes: Mapping[int, Outcome], *, alone: bool, each: bool = False
    ) -> list[str]:
        """Lines for the answers and for the ranks that gave none.

        alone: the line was for one rank, so its number is not written. each: numbers that differ
        have a line each, and no value is cut.
        """
        said = {rank: one for rank, one in outcomes.items() if isinstance(one, Said)}
        missing = unanswered(outcomes)
        if alone:
            lines = [line for one in said.values() if one.text for line in self._alone(one.text)]
            for group in missing:
                lines += self.wrapped(f"*** rank {fold_ranks(group.ranks)}: {group.reason}")
            return lines
        grid = number_grid({rank: one.text for rank, one in said.items() if one.is_value})
        in_grid = {rank for rank, _ in grid.values} if grid is not None and not each else set()
        rest = {rank: one for rank, one in said.items() if rank not in in_grid}
        rows = [(block.ranks, block.text) for block in answer_texts(rest)]
        rows += [(group.ranks, group.reason) for group in missing]
        lines = self._grid(grid) if grid is not None and in_grid else []
        return lines + self.rows(sorted(rows), whole=each) + self._addresses(rest)

    def _alone(self, text: str) -> list[str]:
        return self.wrapped(plain(text))

    @staticmethod
    def _addresses(said: Mapping[int, Said]) -> list[str]:
        blocks = fold_answers({rank: one.text for rank, one in said.items()})
        differ = any(block.addresses_differ for block in blocks)
        return ["(addresses of objects differ from rank to rank)"] if differ else []

    def rows(self, rows: Sequence[tuple[Sequence[int], str]], *, whole: bool = False) -> list[str]:
        """Lines for pairs of ranks and printable text, the ranks in a column."""
        labels = [ranks_text(ranks, self.columns - 1) for ranks, _ in rows]
        widest = max((len(label) for label in labels if len(label) <= _WIDEST_LABEL), default=0)
        width = min(max(widest, _LEAST_LABEL), self.columns // 3)
        lines: list[str] = []
        for label, (_, text) in zip(labels, rows, strict=True):
            lines += self._row(label, text or "(no output)", width, whole=whole)
        return lines

    def _row(self, label: str, text: str, width: int, *, whole: bool) -> list[str]:
        body = text if whole else self._cut(text)
        if "\n" in body:
            return [label, *self.wrapped(body, _BLOCK_INDENT)]
        first, *more = self.wrapped(body, " " * (width + 2))
        if len(label) > width:
            return [label, first, *more]
        return [f"{label:<{width}}  {first[width + 2 :]}", *more]

    @staticmethod
    def _cut(text: str) -> str:
        cut = "\n".join(text[:_LONGEST_BLOCK].split("\n")[:_MOST_BLOCK_LINES])
        if cut == text:
            return text
        return f"{cut}...\n({len(text):,} characters here; `p!` shows all)"

    def _grid(self, grid: NumberGrid) -> list[str]:
        ranks = max(len(str(rank)) for rank, _ in grid.values)
        texts = [(rank, plain(number)) for rank, number in grid.values]
        numbers = max(len(number) for _, number in texts)
        cell = ranks + 2 + numbers + 3
        per_row = max(self.columns // cell, 1)
        down = -(-len(texts) // per_row)
        ends = f"{plain(grid.minimum)} to {plain(grid.maximum)}"
        lines = self.wrapped(f"all different: {ends} (p! for a line each)")
        for row in range(down):
            cells = (f"{rank:>{ranks}}  {number:>{numbers}}" for rank, number in texts[row::down])
            lines += self.wrapped("   ".join(cells))
        return lines

    def count(self, outcomes: Mapping[int, Outcome]) -> list[str]:
        """`62 of 64 answered`, if it was not all."""
        answered = sum(isinstance(one, Said) for one in outcomes.values())
        return [] if answered == len(outcomes) else [f"{answered} of {len(outcomes)} answered"]

    def refusal(self, message: str, text: str, column: int) -> list[str]:
        """A refused line: the text with a caret below its column, and the message beside it."""
        if not column:
            return self.wrapped(plain(message))
        before, after = shown(text[: column - 1]), shown(text[column - 1 :])
        keep = self.columns // 2
        if len(before) > keep:
            before = "..." + before[3 - keep :]
        marked = (before + after)[: self.columns]
        caret = " " * len(before) + "^"
        beside = f"{caret} {plain(message)}"
        if len(beside) <= self.columns:
            return [marked, beside]
        return [marked, caret, *self.wrapped(plain(message))]


def columns_of(rows: Sequence[Sequence[str]], columns: int) -> Iterator[str]:
    """Rows of printable cells as a table; the last column is cut at the width of the terminal."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))] if rows else []
    for row in rows:
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(cells).rstrip()[:columns]
