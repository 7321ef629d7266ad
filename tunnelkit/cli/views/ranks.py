"""`tk ranks`: ask the session, and print its answer.

The question goes out before all that the answer needs is loaded (ranks_text.py): the ranks are
looking meanwhile.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from tunnelkit.cli.terminal.context import find_session
from tunnelkit.cli.terminal.output import paint
from tunnelkit.session.runtime.blocking_client import ask
from tunnelkit.session.runtime.control_calls import Ranks

if TYPE_CHECKING:
    from tunnelkit.debug.ranks.selection import Selection
    from tunnelkit.session.runtime.control_answers import RanksAnswer
    from tunnelkit.session.runtime.paths import SessionPaths

_WATCH_S = 2.0
_GAP_S = 1.0
_ASKS_AGAIN = "asking again in a second, to see who moves ..."
#: Clears a terminal.
_CLEAR = "\x1b[H\x1b[2J"


class RanksOptions(NamedTuple):
    """The options of `tk ranks`."""

    selection: str | None
    each: bool
    full: bool
    watch: bool
    native: bool
    loop: int | None
    as_json: bool


def show_ranks(options: RanksOptions) -> None:
    """Ask the session, and print the answer; with `watch` again and again.

    On a terminal the first answer is there at once, and after a second both take its place.
    Raises UsageError for a selection that can't be read, or that selects nobody; MissingProgram.
    """
    selection = _parsed(options.selection) if options.selection is not None else None
    native = _native() if options.native else None
    request = Ranks(loop=options.loop, native=native, selection=options.selection)
    paths = find_session()
    live = sys.stdout.isatty() and not options.as_json
    if live and not options.watch and native is None:
        _show_twice(paths, selection, options)
        return
    while True:
        text = _text_of(ask(paths, request, meanwhile=_load), selection, options)
        if options.watch and live:
            sys.stdout.write(_CLEAR)
        print(text, flush=True)
        if not options.watch:
            return
        time.sleep(_WATCH_S)


def _parsed(selection: str) -> Selection:
    from tunnelkit.debug.ranks.selection import parse_selection

    return parse_selection(selection)


def _native() -> str:
    from tunnelkit.session.debugging.py_spy import find_binary

    return str(find_binary())


def _load() -> None:
    import tunnelkit.cli.views.ranks_text  # noqa: F401


def _text_of(answer: RanksAnswer, selection: Selection | None, options: RanksOptions) -> str:
    from tunnelkit.cli.views.ranks_text import text_of

    return text_of(
        answer,
        selection,
        each=options.each,
        full=options.full,
        native=options.native,
        as_json=options.as_json,
    )


def _show_twice(paths: SessionPaths, selection: Selection | None, options: RanksOptions) -> None:
    """Print the first answer, and after a second both in its place."""
    import shutil

    begun_s = time.monotonic()
    request = Ranks(loop=options.loop, gap_s=0, selection=options.selection)
    first = ask(paths, request, meanwhile=_load)
    lines = [*_text_of(first, selection, options).split("\n"), paint(_ASKS_AGAIN, "dim")]
    # A list that has left the screen can't be replaced.
    fits = len(lines) < shutil.get_terminal_size().lines
    if fits:
        print("\n".join(lines), flush=True)
    time.sleep(max(0.0, begun_s + _GAP_S - time.monotonic()))
    second = Ranks(loop=options.loop, gap_s=_GAP_S, selection=options.selection, again=True)
    text = _text_of(ask(paths, second), selection, options)
    if fits:
        sys.stdout.write(f"\x1b[{len(lines)}A\r\x1b[J")
    print(text, flush=True)
