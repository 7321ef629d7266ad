"""The ranks of `tk loop --rank`, chosen before any rank exists: `0,2`, `0-3`, `all`."""

from __future__ import annotations

from typing import NoReturn

from tunnelkit.debug.ranks.selection import parse_selection
from tunnelkit.debug.ranks.terms import Everything, InDimension, NodeName, Numbers, Term
from tunnelkit.debug.ranks.text_errors import SelectionError
from tunnelkit.errors import UsageError
from tunnelkit.text_format import shown

_MAX_RANKS = 1_000_000
#: Characters of the user's text in a message.
_LONGEST_QUOTE = 60
_NOT_YET = "no program runs yet"


def parse_ranks(text: str) -> list[int] | None:
    """The ranks of `text`, ascending; None for all. Raises UsageError for anything else.

    The grammar is that of selections, without what needs a running program: states, classes,
    nodes, and ranges without an end.
    """
    if text.strip().lower() == "all":
        return None
    try:
        terms = parse_selection(text).terms
    except SelectionError as error:
        _refuse(text, f"{error.message} (column {error.column})")
    taken = [span for term in terms if not term.negated for span in _spans(term, text)]
    left_out = [span for term in terms if term.negated for span in _spans(term, text)]
    if left_out and (None in taken or None in left_out or not taken):
        column = next(term.column for term in terms if term.negated)
        _refuse(text, f"at column {column}, which ranks are left is not known: {_NOT_YET}")
    if None in taken:
        return None
    chosen = [span for span in taken if span]
    # Before anything is expanded.
    if any(span[-1] >= _MAX_RANKS for span in chosen) or sum(map(len, chosen)) > _MAX_RANKS:
        _refuse(text, f"there are at most {_MAX_RANKS:,} ranks")
    ranks = set[int]().union(*chosen)
    ranks = {one for one in ranks if not any(span and one in span for span in left_out)}
    if not ranks:
        _refuse(text, "it names no ranks")
    return sorted(ranks)


def _spans(term: Term, text: str) -> list[range | None]:
    """The ranks of a term; None for all. Refuses one that only a running program can answer."""
    what = term.what
    if isinstance(what, Everything):
        return [None]
    values: tuple[Numbers | NodeName, ...] = ()
    if isinstance(what, Numbers):
        values = (what,)
    elif isinstance(what, InDimension) and what.name == "rank":
        values = what.values
    elif isinstance(what, InDimension):
        _refuse(text, f"at column {term.column}, where each rank will be is not known: {_NOT_YET}")
    spans = [
        range(one.start, one.stop, one.step)
        for one in values
        if isinstance(one, Numbers) and one.stop is not None
    ]
    if not spans or len(spans) < len(values):
        _refuse(text, f"at column {term.column}, numbers are needed: {_NOT_YET}")
    return [*spans]


def _refuse(text: str, why: str) -> NoReturn:
    quote = shown(text)
    if len(quote) > _LONGEST_QUOTE:
        quote = quote[:_LONGEST_QUOTE] + "..."
    raise UsageError(
        f"--rank '{quote}': {why}", hint="for example: --rank 0,2 or --rank 0-3"
    ) from None
