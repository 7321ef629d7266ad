"""The grammar of selections: text to terms, or an error with the column.

    SEL    = term { "," term }
    term   = "all" | "*" | number | range | word of a state | "@" CLASS | DIM "=" value | "!" term
    value  = item | "(" item { "," item } ")"
    item   = number | range | name of a node
    range  = number "-" number (inclusive) | [number] ":" [number] [":" [number]] (half open)

Blanks are free between its parts. A list has dimensions only, or other terms only.
"""

from __future__ import annotations

import re
from typing import NoReturn

from tunnelkit.debug.ranks.terms import (
    DIMENSIONS,
    EVERYTHING,
    FAILED,
    STATE_WORDS,
    WORD,
    Everything,
    InClass,
    InDimension,
    InState,
    NamedNumber,
    NodeName,
    Numbers,
    Term,
)
from tunnelkit.debug.ranks.text_cursor import TextCursor
from tunnelkit.debug.ranks.text_errors import SelectionError

_CLASS = re.compile(r"[A-Za-z0-9_]+")
_NODE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
#: Could be a node's name, but is read as a number or range.
_NUMERIC = re.compile(r"[0-9][0-9-]*")
_KNOWN_WORDS = ("all", *STATE_WORDS, FAILED)
#: Characters of a user's word, and of advice made of it, in a message.
_LONGEST_WORD = 40
_LONGEST_ADVICE = 90


def parse_terms(text: str) -> tuple[Term, ...]:
    """Read a selection's terms, one or more. Raises SelectionError."""
    return _Parser(text).terms()


class _Parser:
    def __init__(self, text: str) -> None:
        self._cursor = TextCursor(text, SelectionError)

    def terms(self) -> tuple[Term, ...]:
        found = [self._term()]
        while self._cursor.peek():
            comma_at = self._cursor.at
            if not self._cursor.take(","):
                self._refuse_after(found[-1].what)
            found.append(self._term())
            self._check_kind(found, comma_at)
            self._check_dimension(found)
        return tuple(found)

    def _term(self) -> Term:
        cursor = self._cursor
        cursor.skip_blanks()
        column = cursor.column
        negated = False
        while cursor.take("!"):
            negated = not negated
        numbers = self._numbers()
        if numbers is not None:
            return Term(numbers, negated, column)
        if cursor.take("*"):
            return Term(Everything(), negated, column)
        if cursor.take("@"):
            name = cursor.take_pattern(_CLASS)
            if not name:
                cursor.refuse("the name of a class is missing after @: @B")
            return Term(InClass(name), negated, column)
        return Term(self._word(), negated, column)

    def _word(self) -> Everything | InState | InDimension:
        cursor = self._cursor
        cursor.skip_blanks()
        start = cursor.at
        word = cursor.take_pattern(WORD)
        if not word:
            self._refuse_start()
        if cursor.take("="):
            return self._dimension(word)
        if word not in _KNOWN_WORDS:
            self._refuse_word(word, start + 1)
        return Everything() if word in EVERYTHING else InState(word)

    # -- dimensions -------------------------------------------------------

    def _dimension(self, word: str) -> InDimension:
        cursor = self._cursor
        in_brackets = cursor.take("(")
        cursor.skip_blanks()
        start = cursor.at
        values = [self._value(word)]
        while in_brackets and cursor.take(","):
            values.append(self._value(word))
        written = cursor.text[start : cursor.at].strip()
        if in_brackets and not cursor.take(")"):
            self._refuse_odd_range(values[-1])
            cursor.refuse(f"a comma or ) must follow, not {cursor.next_as_said()}")
        return InDimension(word, DIMENSIONS.get(word, word), tuple(values), written)

    def _value(self, word: str) -> Numbers | NodeName:
        cursor = self._cursor
        cursor.skip_blanks()
        start = cursor.at
        name = cursor.take_pattern(_NODE)
        if name and not _NUMERIC.fullmatch(name):
            return NodeName(name, start + 1)
        cursor.at = start
        numbers = self._numbers()
        if numbers is None:
            cursor.refuse(
                f"a value of {quoted(word)} is missing before {cursor.next_as_said()}: "
                f"{quoted(word)}=1"
            )
        return numbers

    # -- numbers ----------------------------------------------------------

    def _numbers(self) -> Numbers | None:
        """A number or a range; None if the next character begins neither."""
        cursor = self._cursor
        cursor.skip_blanks()
        column = cursor.column
        first = cursor.take_number()
        if cursor.take(":"):
            return self._half_open(first or 0)
        if first is None:
            return None
        named = NamedNumber(first, column)
        if cursor.take("-"):
            return self._inclusive(named)
        return Numbers(first, first + 1, named=(named,))

    def _inclusive(self, first: NamedNumber) -> Numbers:
        cursor = self._cursor
        cursor.skip_blanks()
        column = cursor.column
        last = cursor.take_number()
        if last is None:
            cursor.refuse(f"the last number of the range is missing: {first.value}-N")
        if last < first.value:
            cursor.refuse(f"a range goes up: {last}-{first.value}", column)
        step = self._step_after_slash()
        ends = (first, NamedNumber(last, column))
        return Numbers(first.value, last + 1, step, named=ends)

    def _step_after_slash(self) -> int:
        """The step as tk prints folded ranks: `0-12/4`."""
        cursor = self._cursor
        if not cursor.take("/"):
            return 1
        column = cursor.column
        step = cursor.take_number()
        if not step:
            cursor.refuse("the step of a range is at least 1", column)
        return step

    def _half_open(self, start: int) -> Numbers:
        cursor = self._cursor
        stop = cursor.take_number()
        if not cursor.take(":"):
            return Numbers(start, stop)
        cursor.skip_blanks()
        column = cursor.column
        step = cursor.take_number()
        if step == 0:
            cursor.refuse("the step of a range is at least 1", column)
        if cursor.peek() == ":":
            cursor.refuse("a range has at most start:stop:step")
        return Numbers(start, stop, step or 1)

    # -- refusals ---------------------------------------------------------

    def _check_kind(self, terms: list[Term], comma_at: int) -> None:
        """Refuse the newest term if it is a dimension and the first one not, or the reverse."""
        newest = terms[-1]
        if isinstance(newest.what, InDimension) == isinstance(terms[0].what, InDimension):
            return
        text = self._cursor.text
        written = text[newest.column - 1 : self._cursor.at].strip()
        advice = "write only dimensions (node=1, local=2), or none"
        last = terms[-2].what
        if isinstance(last, InDimension) and isinstance(newest.what, Numbers):
            sign = "!" if terms[-2].negated else ""
            values = f"{last.word}=({last.written},{written.lstrip('! ')})"
            advice = f"for several values write {sign}{values}"
        elif all(isinstance(term.what, Numbers) and not term.negated for term in terms[:-1]):
            advice = f"for what is in both write rank=({text[:comma_at].strip()}), {written}"
        if len(advice) > _LONGEST_ADVICE:
            advice = "for several values write brackets: node=(1,2)"
        message = f"dimensions and other terms don't mix in a list: {advice}"
        self._cursor.refuse(message, newest.column)

    def _check_dimension(self, terms: list[Term]) -> None:
        """Refuse the newest term if an earlier one names the same dimension."""
        newest = terms[-1].what
        if not isinstance(newest, InDimension):
            return
        names = (term.what.name for term in terms[:-1] if isinstance(term.what, InDimension))
        if newest.name in names:
            self._cursor.refuse(
                f"the dimension {quoted(newest.name)} is given twice: for several values write "
                "brackets: node=(1,2)",
                terms[-1].column,
            )

    def _refuse_after(self, what: object) -> NoReturn:
        """Refuse what follows a complete term."""
        self._refuse_odd_range(what)
        cursor = self._cursor
        if isinstance(what, InDimension) and WORD.match(cursor.peek()):
            cursor.refuse("a comma must stand before the next dimension")
        cursor.refuse(f"a comma or the end must follow, not {cursor.next_as_said()}")

    def _refuse_odd_range(self, what: object) -> None:
        """Refuse what makes a range of another kind out of the numbers before: `0..3`, `0-3:2`."""
        if isinstance(what, Numbers) and self._cursor.peek() in tuple(".:-"):
            self._cursor.refuse("a range is written 0-3 (with 3) or 0:4:2 (without 4)")

    def _refuse_word(self, word: str, column: int) -> NoReturn:
        """Refuse a word that has no = behind it and selects nothing without."""
        if word in DIMENSIONS or self._cursor.peek() not in ("", ","):
            self._cursor.refuse(f"after the dimension {quoted(word)} comes = and a value: node=1")
        words = ", ".join(_KNOWN_WORDS)
        self._cursor.refuse(
            f"{quoted(word)} alone selects nothing; the words are {words}, and a dimension needs a "
            "value: node=1",
            column,
        )

    def _refuse_start(self) -> NoReturn:
        """Refuse what begins no term."""
        cursor = self._cursor
        following = cursor.peek()
        if following in ("", ","):
            cursor.refuse(f"ranks are missing before {cursor.next_as_said()}: 0-3")
        if following == "(":
            cursor.refuse("brackets stand only after a dimension: node=(1,2)")
        if following == "-":
            cursor.refuse("a number has no sign: ranks count from 0")
        if following == "=":
            cursor.refuse("the name of a dimension is missing before =: node=1")
        if following.isnumeric():
            cursor.refuse("a number has only the digits 0 to 9")
        cursor.refuse(f"{cursor.next_as_said()} has no meaning here")


def quoted(word: str) -> str:
    """A word of the user within a message, cut if it is long."""
    return word if len(word) <= _LONGEST_WORD else word[:_LONGEST_WORD] + "..."
