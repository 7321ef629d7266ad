"""The ranks as `tk ranks` prints them."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from tunnelkit.cli.terminal.context import find_session
from tunnelkit.cli.terminal.output import paint, safe
from tunnelkit.cli.views.local_source import lines_of
from tunnelkit.debug.ranks.arrivals import arrivals, blocking_calls
from tunnelkit.debug.ranks.roster import Roster, RosterEntry
from tunnelkit.debug.ranks.sample import RankSample
from tunnelkit.debug.ranks.sample_json import from_json
from tunnelkit.debug.ranks.selection import Selection, parse_selection
from tunnelkit.debug.ranks.stacks import classify
from tunnelkit.debug.ranks_view.describe import describe
from tunnelkit.debug.ranks_view.rank_lines import rank_lines
from tunnelkit.debug.ranks_view.view import RanksView
from tunnelkit.debug.ranks_view.view_json import look_json
from tunnelkit.session.runtime.blocking_client import ask
from tunnelkit.session.runtime.control_calls import Ranks

if TYPE_CHECKING:
    from tunnelkit.session.runtime.control_answers import RanksAnswer, RootInfo
    from tunnelkit.session.runtime.paths import SessionPaths

_WATCH_S = 2.0
_GAP_S = 1.0
_ASKS_AGAIN = "asking again in a second, to see who moves ..."
_PIPED_COLUMNS = 100
#: Clears a terminal.
_CLEAR = "\x1b[H\x1b[2J"


@dataclass(frozen=True)
class RanksOptions:
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
    selection = parse_selection(options.selection) if options.selection is not None else None
    native = _native() if options.native else None
    request = Ranks(loop=options.loop, native=native, selection=options.selection)
    paths = find_session()
    live = sys.stdout.isatty() and not options.as_json
    if live and not options.watch and native is None:
        _show_twice(paths, selection, options)
        return
    while True:
        text = _text_of(ask(paths, request), selection, options)
        if options.watch and live:
            sys.stdout.write(_CLEAR)
        print(text, flush=True)
        if not options.watch:
            return
        time.sleep(_WATCH_S)


def _native() -> str:
    from tunnelkit.session.debugging.py_spy import find_binary

    return str(find_binary())


def _show_twice(paths: SessionPaths, selection: Selection | None, options: RanksOptions) -> None:
    """Print the first answer, and after a second both in its place."""
    begun_s = time.monotonic()
    request = Ranks(loop=options.loop, gap_s=0, selection=options.selection)
    first = ask(paths, request)
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


def _text_of(answer: RanksAnswer, selection: Selection | None, options: RanksOptions) -> str:
    view = replace(view_of(answer, selection), native=options.native)
    if options.as_json:
        return safe(json.dumps(look_json(view)))
    return safe("\n".join(_lines(view, source_of(answer["roots"]), options)))


def _lines(
    view: RanksView, source: Callable[[str, int], str | None], options: RanksOptions
) -> list[str]:
    columns = _PIPED_COLUMNS
    if sys.stdout.isatty():
        columns = shutil.get_terminal_size().columns
    if options.each:
        return rank_lines(view, columns)
    return describe(view, columns, source, full=options.full)


def view_of(answer: RanksAnswer, selection: Selection | None = None) -> RanksView:
    """Return the session's answer as a view of the selected ranks.

    Raises SelectionError.
    """
    roots = [one["remote"] for one in answer["roots"]]
    looks = [[from_json(one) for one in look["samples"]] for look in answer["looks"]]
    first, last = looks[0], looks[-1]
    again = last if len(looks) > 1 else None
    gap_s = answer["looks"][-1]["time_s"] - answer["looks"][0]["time_s"]
    classes = classify(first, again, roots, gap_s)
    absent = answer["absent"]
    late = arrivals(first, last, roots, absent) if again is not None else []
    if selection is not None:
        roster = _roster(last, {one.name: one.ranks for one in classes})
        chosen = set(selection.resolve(roster))
        # A choice among those that are there says nothing of others.
        absent = absent if len(chosen) == len(last) else []
        first, last = _of(chosen, first), _of(chosen, last)
        names = {rank: one.name for one in classes for rank in one.ranks}
        # `@B` is the same class in each list.
        classes = [
            replace(one, name=names[one.ranks[0]])
            for one in classify(first, last if again is not None else None, roots, gap_s)
        ]
        late = [one for one in late if chosen & {rank.rank for rank in one.late}]
    return RanksView(
        samples=last,
        classes=classes,
        arrivals=late,
        roots=roots,
        program=answer["command"],
        took_s=answer["looks"][-1]["took_s"],
        clock=time.strftime("%H:%M:%S"),
        notes=answer["notes"],
        still_s={int(rank): seconds for rank, seconds in answer["still_s"].items()},
        # torch's own numbers say more.
        absent=absent,
        calls=None if late else blocking_calls(last, source_of(answer["roots"])),
    )


def _of(chosen: set[int], samples: Sequence[RankSample]) -> list[RankSample]:
    return [one for one in samples if one.rank in chosen]


def _roster(samples: Sequence[RankSample], classes: dict[str, tuple[int, ...]]) -> Roster:
    entries = (
        RosterEntry(one.rank, one.node, one.local_rank, one.state, failed=one.failure is not None)
        for one in samples
    )
    return Roster(tuple(entries), classes)


def source_of(roots: Sequence[RootInfo]) -> Callable[[str, int], str | None]:
    """Return what reads a line of a mirrored file from the laptop's copy."""

    def source(file: str, line: int) -> str | None:
        for root in roots:
            # The node names the file: it must not lead out of the project.
            if PurePosixPath(file).is_relative_to(root["remote"]) and ".." not in file.split("/"):
                below = PurePosixPath(file).relative_to(root["remote"])
                found = lines_of(str(Path(root["local"], below))) or []
                return found[line - 1].strip() if 0 < line <= len(found) else None
        return None

    return source
