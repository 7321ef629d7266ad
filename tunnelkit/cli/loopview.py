"""A running loop in a terminal: a line for each change of state, the program's output between."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from tunnelkit.cli.console import paint
from tunnelkit.mux.records import EVENT, STDOUT, Record

#: A second Ctrl-C within this time quits.
_TWICE_S = 2.0


class LoopView:
    """Prints records; turns Ctrl-C into restart (once) and quit (twice)."""

    def __init__(self) -> None:
        self.where: dict[str, Any] = {}
        self.quit = asyncio.Event()
        self._restart: Callable[[], Awaitable[Any]] | None = None
        self._last_interrupt = 0.0
        self._tasks: set[asyncio.Future[Any]] = set()

    def mind_signals(self, restart: Callable[[], Awaitable[Any]]) -> None:
        """Take over Ctrl-C, TERM and a hang-up of the terminal."""
        self._restart = restart
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupted)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.quit.set)

    def show(self, record: Record) -> None:
        """Print one record."""
        if record.kind == EVENT:
            text = self.describe(record.event())
            if text:
                self._line(text)
            return
        stream = sys.stdout if record.kind == STDOUT else sys.stderr
        stream.flush()
        os.write(stream.fileno(), record.payload)

    def describe(self, event: dict[str, Any]) -> str | None:
        """A change of state in words; None if it is not worth a line."""
        name, number = event.get("event"), event.get("generation")
        if name == "loop":
            again, self.where = bool(self.where), event
            for text in event.get("notes", ()):
                self._line(text)
            return "the session is back" if again else None
        if name == "starting":
            date = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.get("time")))
            node = self.where.get("node") or "here"
            return (
                f"{date} run {number} · port {self.where.get('port')} · starting "
                f"(pid {event.get('pid')} on {node})"
            )
        if name == "armed":
            return f"run {number} · {paint('armed', 'green', sys.stderr)}: press F5"
        if name == "attached":
            return f"run {number} · attached: {event.get('client') or 'an editor'}"
        if name == "ended":
            return f"run {number} · ended: {ending(event)}"
        if name == "waiting":
            return f"next try in {event.get('delay_s'):.1f} s (Ctrl-C: now; twice: quit)"
        if name == "skipped":
            return f"... {event.get('records')} pieces of output skipped ..."
        return None

    def _line(self, text: str) -> None:
        sys.stdout.flush()
        print(f"{paint('[tk]', 'cyan', sys.stderr)} {text}", file=sys.stderr, flush=True)

    def _interrupted(self) -> None:
        now = time.monotonic()
        twice = now - self._last_interrupt < _TWICE_S
        self._last_interrupt = now
        if twice or self._restart is None:
            self._line("ending the loop")
            self.quit.set()
            return
        self._line("restarting (Ctrl-C again: quit)")
        task = asyncio.ensure_future(self._restart())
        self._tasks.add(task)
        task.add_done_callback(self._restarted)

    def _restarted(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._line(f"could not restart: {task.exception()}")


def ending(event: dict[str, Any]) -> str:
    """How a run ended, in words."""
    if event.get("error"):
        return str(event["error"])
    how = f"signal {event['signal']}" if event.get("signal") else f"exit code {event.get('code')}"
    why = event.get("why")
    because = "" if why in (None, "ended") else f" ({why})"
    took = f" after {event.get('duration_s', 0.0):.1f} s"
    return f"{how}{because}{took}, peak {event.get('peak_rss_bytes', 0) // 2**20} MiB"
