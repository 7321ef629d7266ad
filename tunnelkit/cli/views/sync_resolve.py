"""`tk sync --ours|--theirs PATH...`: conflicts between the laptop and the cluster."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tunnelkit.cli.terminal.context import absolute, find_session
from tunnelkit.cli.terminal.output import note, report, say
from tunnelkit.cli.views.status import printable
from tunnelkit.errors import UsageError
from tunnelkit.session.runtime.blocking_client import ask
from tunnelkit.session.runtime.control_calls import SyncResolve

if TYPE_CHECKING:
    from tunnelkit.session.runtime.control_answers import ResolveAnswer


def settle(
    paths: list[str], *, ours: bool, theirs: bool, timeout_s: float, as_json: bool = False
) -> None:
    """Settle the conflicts at or below these paths, and say what was done."""
    if ours == theirs:
        raise UsageError(
            "give one of --ours and --theirs",
            hint="tk sync --ours PATH... or tk sync --theirs PATH...",
        )
    if not paths:
        raise UsageError(
            "no path is named",
            hint="name the files (or `.` for all); `tk status` lists the conflicts",
        )
    request = SyncResolve(files=absolute(paths), theirs=theirs, timeout_s=timeout_s)
    report(ask(find_session(), request), partial(show, theirs=theirs), as_json=as_json)


def show(answer: ResolveAnswer, *, theirs: bool) -> None:
    """Print which version was replaced, and where it is now."""
    side, there = ("the cluster's", "here") if theirs else ("the laptop's", "there")
    count = len(answer["replaced"])
    say(f"{side} version wins in {count} file{'' if count == 1 else 's'}")
    if answer["replaced"]:
        note(f"the other one is {there}, in {printable(answer['replaced_dir'] or '')}:")
        for path in answer["replaced"]:
            note(f"  {printable(path)}")
    if answer["conflicts"]:
        note(f"still in conflict: {', '.join(map(printable, answer['conflicts']))}")
