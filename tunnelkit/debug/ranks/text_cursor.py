"""A position in a text that a user has typed, for parsers by hand."""

from __future__ import annotations

import re
from typing import NoReturn

from tunnelkit.debug.ranks.text_errors import MarkedTextError
from tunnelkit.text_format import shown

#: Characters of a text that is read at all.
LONGEST_TEXT = 4_096
#: Digits of a number.
MOST_DIGITS = 7
_BLANKS = re.compile(r"[ \t]*")
#: Not \d: that takes the digits of every script.
_DIGITS = re.compile(r"[0-9]+")


class TextCursor:
    """Reads a text from left to right. at: index of the next character.

    refusal: the class of the errors. Raises it for a text over 4,096 characters.
    """

    def __init__(self, text: str, refusal: type[MarkedTextError]) -> None:
        self.text = text
        self.at = 0
        self._refusal = refusal
        if len(text) > LONGEST_TEXT:
            self.refuse(f"a text of over {LONGEST_TEXT:,} characters is not read", LONGEST_TEXT + 1)

    @property
    def column(self) -> int:
        """The column of the next character, counted from 1."""
        return self.at + 1

    def refuse(self, message: str, column: int | None = None) -> NoReturn:
        """Raise the error. column: counted from 1; that of the next character if None."""
        raise self._refusal(message, text=self.text, column=column or self.column)

    def skip_blanks(self) -> None:
        """Go to the next character that is neither a space nor a tab."""
        self.take_pattern(_BLANKS)

    def peek(self) -> str:
        """Return the next character after blanks, which are skipped; "" at the end."""
        self.skip_blanks()
        return self.text[self.at : self.at + 1]

    def take(self, character: str) -> bool:
        """Go past a character, after blanks, if it is the next one. True if it was."""
        if self.peek() != character:
            return False
        self.at += 1
        return True

    def take_pattern(self, pattern: re.Pattern[str]) -> str:
        """Go past what matches at this place; "" if nothing does."""
        found = pattern.match(self.text, self.at)
        if found is None:
            return ""
        self.at = found.end()
        return found[0]

    def take_number(self) -> int | None:
        """Go past a number, after blanks; None if there is none. Refuses one of over 7 digits."""
        self.skip_blanks()
        column = self.column
        digits = self.take_pattern(_DIGITS)
        if len(digits) > MOST_DIGITS:
            self.refuse(f"a number has at most {MOST_DIGITS} digits", column)
        return int(digits) if digits else None

    def next_as_said(self) -> str:
        """The next character after blanks in the words of a message: `'x'`, `the end`."""
        character = self.peek()
        return f"'{shown(character)}'" if character else "the end"
