"""Refusals of a text that a user has typed, with the column where it went wrong."""

from __future__ import annotations

from tunnelkit.errors import UsageError
from tunnelkit.text_format import shown

#: Of the text, around its column.
_WIDTH = 72


class MarkedTextError(UsageError):
    """A text that a user has typed is refused.

    text: as typed, unescaped; "" if the error came as JSON. column: counted from 1; 0 likewise.
    hint: the text with a caret below the column, two lines.
    """

    def __init__(
        self,
        message: str,
        *,
        text: str = "",
        column: int = 0,
        cause: str | None = None,
        hint: str | None = None,
        transient: bool = False,
    ) -> None:
        if hint is None and column:
            hint = "\n".join(_with_caret(text, column))
        super().__init__(message, cause=cause, hint=hint, transient=transient)
        self.text = text
        self.column = column

    def one_line(self) -> str:
        """Return the message with the column; a caret would point nowhere in one line."""
        place = ""
        if self.column and self.text:
            place = f" (column {self.column} of {_with_caret(self.text, self.column)[0]})"
        return " ".join(f"{self.message}{place}".split())


class SelectionError(MarkedTextError):
    """A selection of ranks is malformed, names what is not there, or selects nobody."""


class MeshError(MarkedTextError):
    """The dimensions of a mesh are malformed, or don't fit the number of ranks."""


def _with_caret(text: str, column: int) -> tuple[str, str]:
    """The text, escaped and cut around the column, and the line with the caret below it."""
    before, after = shown(text[: column - 1]), shown(text[column - 1 :])
    if len(before) > _WIDTH // 2:
        before = "..." + before[-_WIDTH // 2 :]
    if len(before) + len(after) > _WIDTH:
        after = after[: _WIDTH - len(before)] + "..."
    return before + after, " " * len(before) + "^"
