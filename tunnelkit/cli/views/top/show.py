"""`tk top`: once as text or JSON, or live."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tunnelkit.cli.terminal.output import paint, say
from tunnelkit.cli.terminal.wait_line import asking
from tunnelkit.cli.views.top.frames import TopSource, frames
from tunnelkit.cli.views.top.tables import (
    Recent,
    Show,
    headline,
    history_lines,
    notes,
    plain_lines,
    table_of,
)
from tunnelkit.errors import MissingProgram, SchedulerError

if TYPE_CHECKING:
    from tunnelkit.diagnosis.top.frame import TopInfo

#: A node that has not answered by then is shown as silent.
_PATIENCE_S = 15.0
_SILENT = "no answer yet"


@dataclass(frozen=True)
class TopOptions:
    """The words of `tk top`."""

    source: TopSource
    show: Show
    once: bool
    history: bool
    as_json: bool


def show_top(options: TopOptions) -> None:
    """Print one frame, or show them live on a terminal. Raises TunnelkitError."""
    from tunnelkit.cli.terminal.context import run

    live = not (options.once or options.as_json or options.history)
    if live and sys.stdout.isatty() and sys.stdin.isatty():
        run(_live(options))
        return
    frame = run(_one(options.source))
    if options.as_json:
        say(json.dumps(frame))
        return
    for line in text_of(frame, options.show, history=options.history):
        say(line)


def text_of(frame: TopInfo, show: Show, *, history: bool) -> list[str]:
    """Return a frame as lines."""
    recent = Recent()
    recent.add(frame)
    table = table_of(frame, show, recent)
    lines = plain_lines(table)
    marked = {at + 1 for at in table.worst if table.rows}
    body = [paint(line, "yellow") if at in marked else line for at, line in enumerate(lines)]
    found = [headline(frame), *(f"  {one}" for one in notes(frame)), *body]
    return [*found, *history_lines(frame)] if history else found


async def _one(source: TopSource) -> TopInfo:
    """Return the first frame of which all nodes have answered."""
    found: TopInfo | None = None
    try:
        with asking("the job's nodes are sampled"):
            async with asyncio.timeout(_PATIENCE_S), aclosing(frames(source)) as asked:
                async for found in asked:
                    if not any(one["problem"] == _SILENT for one in found["nodes"]):
                        return found
    except TimeoutError:
        pass
    if found is None:
        raise SchedulerError(
            f"no node has answered within {_PATIENCE_S:.0f} s", hint="tk why JOB says more"
        )
    return found


def _install_textual(python: str) -> str:
    """Return the command that adds it where tk is installed. python: `sys.executable`."""
    if "/pipx/" in python:
        return "pipx inject tunnelkit textual"
    if "/uv/tools/" in python:  # `uv tool install` would take tunnelkit from an index
        return f"uv pip install --python {shlex.quote(python)} textual"
    return "pip install 'tunnelkit[top]'"


async def _live(options: TopOptions) -> None:
    try:
        from tunnelkit.cli.views.top.screen import TopApp
    except ImportError:
        raise MissingProgram(
            "the live screen of `tk top` needs textual",
            hint=f"{_install_textual(sys.executable)}, or tk top --once",
        ) from None
    app = TopApp(options.source, options.show)
    await app.run_async()
    if app.failure is not None:
        raise app.failure
    if app.last_words:
        say(app.last_words)
