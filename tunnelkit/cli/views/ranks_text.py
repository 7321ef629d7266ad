"""The text of `tk ranks`, from the session's answer."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from tunnelkit.cli.terminal.output import safe
from tunnelkit.cli.views.local_source import lines_of
from tunnelkit.debug.ranks.arrivals import arrivals, blocking_calls
from tunnelkit.debug.ranks.roster import Roster, RosterEntry
from tunnelkit.debug.ranks.sample import RankSample
from tunnelkit.debug.ranks.sample_json import from_json
from tunnelkit.debug.ranks.selection import Selection
from tunnelkit.debug.ranks.stacks import classify
from tunnelkit.debug.ranks_view.describe import describe
from tunnelkit.debug.ranks_view.rank_lines import rank_lines
from tunnelkit.debug.ranks_view.view import RanksView
from tunnelkit.debug.ranks_view.view_json import look_json

if TYPE_CHECKING:
    from tunnelkit.session.runtime.control_answers import RanksAnswer, RootInfo

_PIPED_COLUMNS = 100


def text_of(
    answer: RanksAnswer,
    selection: Selection | None,
    *,
    each: bool,
    full: bool,
    native: bool,
    as_json: bool,
) -> str:
    """Return the text, of the selected ranks only. The others are options of `tk ranks`.

    Raises SelectionError.
    """
    view = replace(view_of(answer, selection), native=native)
    if as_json:
        return safe(json.dumps(look_json(view)))
    columns = _PIPED_COLUMNS
    if sys.stdout.isatty():
        columns = shutil.get_terminal_size().columns
    if each:
        return safe("\n".join(rank_lines(view, columns)))
    return safe("\n".join(describe(view, columns, source_of(answer["roots"]), full=full)))


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
