"""One line about jobs that are kept, so that nobody pays for them without knowing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tunnelkit.cli.terminal.output import note, safe
from tunnelkit.session.runtime import kept_note

if TYPE_CHECKING:
    from collections.abc import Sequence

#: These show it themselves, or their output is for programs.
_SILENT = frozenset(("keep", "status", "up", "submit", "help", "lab", "demo"))


def notice(words: Sequence[str]) -> None:
    """Say before another command, to a user at a terminal, which jobs are kept.

    Only the note on this laptop is read; nothing is written, asked or started."""
    if not words or words[0].startswith("-") or words[0] in _SILENT or "--json" in words:
        return
    for line in lines():
        note(line)


def lines() -> list[str]:
    """Return a line for each job that is kept, as far as this laptop knows."""
    return [_line(one) for one in kept_note.kept_now()]


def _line(one: kept_note.NotedJob) -> str:
    since = f" since {_clock(one['since_s'])}" if one["since_s"] is not None else ""
    node = f" on {one['node']}" if one["node"] else ""
    until = f" until {_clock(one['until_s'])}" if one["until_s"] is not None else ""
    costs = ""
    for name, unit in (("gpus", "GPU"), ("cpus", "CPU")):
        count = one["gpus"] if name == "gpus" else one["cpus"]
        if count:
            costs = f", costs {count:.0f} {unit}{'s' if count != 1 else ''}{until}"
            break
    return safe(f"job {one['job']} is kept{since}{node}{costs or until}: tk keep")


def _clock(at_s: float) -> str:
    return time.strftime("%H:%M", time.localtime(at_s))
