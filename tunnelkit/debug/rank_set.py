"""The ranks of `tk loop --rank`, chosen before any rank exists: `0,2`, `0-3`, `all`."""

from __future__ import annotations

from typing import NoReturn

from tunnelkit.debug.ranks.selection import parse_selection
from tunnelkit.debug.ranks.terms import Everything, Numbers, Term
from tunnelkit.debug.ranks.text_errors import SelectionError
from tunnelkit.errors import UsageError
from tunnelkit.text_format import shown

_MAX_RANKS = 1_000_000
#: Characters of the user's text in a message.
_LONGEST_QUOTE = 60


def parse_ranks(text: str) -> list[int] | None:
    """The ranks of `text`, ascending; None for all. Raises UsageError for anything else.

    The grammar is that of selections, without what needs a running program.
    """
    if text.strip().lower() == "all":
        return None
    try:
        terms = parse_selection(text).terms
    except SelectionError as error:
        _refuse(text, f"{error.message} (column {error.column})")
    spans = [_span(term, text) for term in terms]
    if None in spans:
        return None
    chosen = [span for span in spans if span]
    if not chosen:
        _refuse(text, "it names no ranks")
    # Before anything is expanded.
    if max(span[-1] for span in chosen) >= _MAX_RANKS or sum(map(len, chosen)) > _MAX_RANKS:
        _refuse(text, f"there are at most {_MAX_RANKS:,} ranks")
    return sorted(set[int]().union(*chosen))


def _span(term: Term, text: str) -> range | None:
    """The ranks of a term; None for all. Refuses one that only a running program can answer."""
    what = term.what
    if not term.negated:
        if isinstance(what, Everything):
            return None
        if isinstance(what, Numbers) and what.stop is not None:
            return range(what.start, what.stop, what.step)
    return _refuse(text, f"at column {term.column}, numbers are needed: no program runs yet")


def _refuse(text: str, why: str) -> NoReturn:
    quote = shown(text)
    if len(quote) > _LONGEST_QUOTE:
        quote = quote[:_LONGEST_QUOTE] + "..."
    raise UsageError(
        f"--rank '{quote}': {why}", hint="for example: --rank 0,2 or --rank 0-3"
    ) from None
