"""A running loop in a terminal: a line for each change of state, the program's output between."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

from tunnelkit.cli.terminal.output import note, paint
from tunnelkit.mux.loop_records import EVENT, STDOUT, LoopRecord
from tunnelkit.session.debugging.loop_messages import at, ending, event_text, kept_at
from tunnelkit.text_format import all_shown

#: An event of a loop; the agent may send any fields.
Event = dict[str, Any]

#: A second Ctrl-C within this time quits.
_TWICE_S = 2.0
#: Imports that take less in sum are not shown.
_SLOW_IMPORTS_S = 2.0
#: After the last slow import: others may be under way, and belong into the same line.
_IMPORTS_OVER_S = 3.0
#: Limit of ranks and slow imports: a node could report any number.
_MOST_KEPT = 2048
#: Ranks that --post-mortem keeps, by a line each.
_MOST_KEPT_SHOWN = 4


class SlowImports:
    """The time of a run's imports, and once in a loop the advice to preload them."""

    def __init__(self) -> None:
        self._preloaded: list[str] = []
        self._took: dict[str, float] = {}
        self._said = False

    def preloaded(self, modules: list[str]) -> None:
        """Take the modules that are imported before the run."""
        self._preloaded = modules

    @property
    def has_preloaded(self) -> bool:
        """True with --preload."""
        return bool(self._preloaded)

    def add(self, event: Event) -> bool:
        """Take an `imported` event; return True if this run's imports are slow in sum."""
        module = str(event.get("module"))
        # The advice is a command to copy: a node may name no more than a module in it.
        if len(self._took) < _MOST_KEPT and all(map(str.isidentifier, module.split("."))):
            self._took[module] = float(event.get("duration_s", 0.0))
        return not self._said and sum(self._took.values()) >= _SLOW_IMPORTS_S

    def next_run(self) -> None:
        """Begin another run."""
        self._took = {}

    def advice(self) -> str | None:
        """Return the advice, once; then None."""
        total_s = sum(self._took.values())
        if self._said or total_s < _SLOW_IMPORTS_S:
            return None
        self._said = True
        slowest = sorted(self._took.items(), key=lambda one: -one[1])
        flag = ",".join([*self._preloaded, *(name for name, _ in slowest)])
        return (
            f"imports took {total_s:.1f} s ({durations(dict(slowest))}): "
            f"tk loop --preload {flag} makes the next F5 skip them"
        )


def durations(took: dict[str, float]) -> str:
    """Return modules with the seconds that each took."""
    return ", ".join(f"{name} {duration_s:.1f} s" for name, duration_s in took.items())


class LoopView:
    """Prints records; turns Ctrl-C into restart (once) and quit (twice)."""

    def __init__(self) -> None:
        self.where: Event = {}
        #: True if the allocation ended, and so the loop.
        self.lost = False
        #: True if the loop ended with its node, and there will be another one.
        self.starts_again = False
        self.quit = asyncio.Event()
        #: Set by Ctrl-C while the loop is being ended.
        self.leave = asyncio.Event()
        #: True after TERM or a hang-up: nobody reads or answers.
        self.hung_up = False
        self._restart: Callable[[], Awaitable[object]] | None = None
        self._last_interrupt = 0.0
        self._tasks: set[asyncio.Future[object]] = set()
        self._imports = SlowImports()
        #: The ranks of the run that have dialled in: their nodes and pids.
        self._ranks: dict[int, tuple[str, object]] = {}
        self._ranks_kept = 0
        self._advising: asyncio.TimerHandle | None = None

    def begin_again(self) -> None:
        """Forget the loop that has ended: the next one is another."""
        self.where, self.starts_again = {}, False

    def mind_signals(self, restart: Callable[[], Awaitable[object]]) -> None:
        """Take over Ctrl-C, TERM and a hang-up of the terminal."""
        self._restart = restart
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupted)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._hang_up)

    def show(self, record: LoopRecord) -> None:
        """Print one record."""
        if record.kind == EVENT:
            text = self._words(record.event())
            if text:
                self._line(text)
            return
        stream = sys.stdout if record.kind == STDOUT else sys.stderr
        stream.flush()
        _write_all(stream.fileno(), record.payload)

    def _words(self, event: Event) -> str | None:
        # A node's words begin no line, and have none of tk's colours.
        event = cast("Event", all_shown(event))
        try:
            return self.describe(event)
        except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError):
            return event_text(event)  # from a hostile agent, or one of another version

    def describe(self, event: Event) -> str | None:
        """Return a change of state in words; None for one that is not shown."""
        name, number = event.get("event"), event.get("generation")
        if name == "loop":
            again, self.where = bool(self.where), event
            for text in event.get("notes", ()):
                self._line(text)
            return "the session is back" if again else None
        if name in ("starting", "ended") and not event.get("ahead"):
            self._advise()
        if name == "starting":
            self._imports.next_run()
            self._ranks = {}
            self._ranks_kept = 0
            return f"{at(event)} run {number} · {self._starting(event)}"
        if name == "armed":
            return f"run {number} · {paint('armed', 'green', sys.stderr)}: press F5"
        if name == "rank":
            return self._rank(event)
        if name == "no-relay":
            return f"ranks on other nodes run free, not debugged: {event.get('why')}"
        if name == "node-lost":
            return f"{event.get('node')} is lost, with the ranks there: {event.get('why')}"
        if name == "part-ended":
            return f"run {number} · {event['node']} ended: {ending(event)}"
        if name == "attached":
            return f"run {number} · attached: {event.get('client') or 'an editor'}"
        if name == "kept":
            return f"run {number} · {kept_at(event)}: press F5"
        if name == "rank-kept":
            return self._rank_kept(event)
        if name == "ended" and event.get("ahead"):
            return f"run {number}, which stood by, ended: {ending(event)}"
        if name == "ended":
            return f"run {number} · ended{_on(event)}: {ending(event)}"
        if name == "imported":
            self._imported(event)
        if name in ("preloading", "fork-server", "stale", "no-standby"):
            return self._of_server(event)
        if name == "notice":
            return str(event.get("text"))
        if name == "waiting":
            return f"next try in {event.get('delay_s'):.1f} s (Ctrl-C: now; twice: quit)"
        if name == "time-limit":
            return paint(str(event.get("text")), "yellow", sys.stderr)
        if name == "lost" and event.get("again") is True:
            self.starts_again = True
            return f"the loop waits for another node, and starts again there: {event.get('why')}"
        if name == "lost":
            self.lost = True
            return f"the loop has ended: {event.get('why')}"
        if name == "skipped":
            return f"... {event.get('records')} pieces of output skipped ..."
        return None

    def _starting(self, event: Event) -> str:
        node, nodes = self.where.get("node"), event.get("nodes")
        port = f"port {self.where.get('port')} · starting"
        if isinstance(nodes, list):
            return f"{port} in {len(nodes)} pods"
        return f"{port} (pid {event.get('pid')} {f'on {node}' if node else 'here'})"

    def _rank(self, event: Event) -> str | None:
        """Return a line once all ranks are there."""
        number, process = int(event["rank"]), (str(event["node"]), event.get("pid"))
        if self._ranks.get(number, process) != process:
            # The launcher starts its ranks again.
            self._ranks = {}
        if len(self._ranks) < _MOST_KEPT:
            self._ranks[number] = process
        if len(self._ranks) != event.get("wanted") or len(self._ranks) < 2:
            return None
        by_node: dict[str, list[int]] = {}
        for rank in sorted(self._ranks):
            by_node.setdefault(self._ranks[rank][0], []).append(rank)
        where = ", ".join(f"{node}: {spans(ranks)}" for node, ranks in by_node.items())
        return f"run {event.get('generation')} · all {len(self._ranks)} ranks wait ({where})"

    def _rank_kept(self, event: Event) -> str | None:
        """Return a line for each of the first ranks that are kept, and one for all others."""
        self._ranks_kept += 1
        if self._ranks_kept > _MOST_KEPT_SHOWN + 1:
            return None
        run, rank = f"run {event.get('generation')}", event["rank"]
        if self._ranks_kept > _MOST_KEPT_SHOWN:
            return f"{run} · more ranks are kept: tk ranks failed"
        return f"{run} · rank {rank} · {event['node']} {kept_at(event)}: tk console {rank}"

    def _of_server(self, event: Event) -> str | None:
        """Return in words what the fork server does; without --preload only failures are shown."""
        if event["event"] == "preloading":
            self._imports.preloaded(list(event["modules"]))
            return f"reading {', '.join(event['modules'])} once for all runs ..."
        if event["event"] == "fork-server":
            took = event.get("imports") or {}
            mib = int(event.get("rss_bytes", 0)) // 2**20
            return f"read {durations(took)} ({mib} MiB): each F5 starts there" if took else None
        if event["event"] == "stale":
            return f"{event.get('why')}: reading it again"
        own = "; each run imports for itself" if self._imports.has_preloaded else ""
        return f"no run stands by: {event.get('why')}{own}"

    def _imported(self, event: Event) -> None:
        """Show slow imports together: after a pause, or at the end of the run."""
        if self._imports.add(event):
            if self._advising is not None:
                self._advising.cancel()
            loop = asyncio.get_running_loop()
            self._advising = loop.call_later(_IMPORTS_OVER_S, self._advise)

    def _advise(self) -> None:
        if self._advising is not None:
            self._advising.cancel()
            self._advising = None
        text = self._imports.advice()
        if text is not None:
            self._line(text)

    def _line(self, text: str) -> None:
        sys.stdout.flush()
        note(f"{paint('[tk]', 'cyan', sys.stderr)} {text}")

    def _hang_up(self) -> None:
        self.hung_up = True
        self.quit.set()
        self.leave.set()

    def _interrupted(self) -> None:
        if self.quit.is_set():
            self.leave.set()
            return
        if "id" not in self.where:
            self._line("nothing was started; the session stays as it is")
            self.quit.set()
            return
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

    def _restarted(self, task: asyncio.Future[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._line(f"could not restart: {task.exception()}")


def _on(event: Event) -> str:
    """Return the node on which a run of several nodes failed."""
    failed = event.get("node") and (event.get("code") or event.get("signal") or event.get("error"))
    return f" on {event['node']}" if failed else ""


def _write_all(stream: int, data: bytes) -> None:
    """Write all bytes; a signal may end a write in the middle."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(stream, rest) :]


def spans(numbers: list[int]) -> str:
    """Return sorted numbers as text, with ranges: `0-3,7`."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][-1] == number - 1:
            found[-1].append(number)
        else:
            found.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in found)
