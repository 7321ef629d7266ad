"""One run of a loop: the processes of it that can be debugged, and who may have it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine
from enum import Enum
from typing import Protocol

from tunnelkit.debug.adapter.adapter import Adapter
from tunnelkit.debug.adapter.adapter_on_demand import AdapterOnDemand
from tunnelkit.debug.ahead.habits import Habits
from tunnelkit.debug.dap.editor_port import Editor
from tunnelkit.debug.dap.exit_report import RunEnd
from tunnelkit.debug.debug_target import DebugTarget
from tunnelkit.debug.loop_log import still_ends, too_many
from tunnelkit.debug.shared_debuggee import RaisedException
from tunnelkit.debug.target_identity import TargetIdentity
from tunnelkit.errors import TunnelkitError
from tunnelkit.mux.tasks import cancel_all, first_of, start

#: The lowest rank is the one that F5 is on. If it has not come this long after another,
#: the lowest of those that are there takes its place.
_LOWEST_PATIENCE_S = 10.0
#: A debuggee that said goodbye to its editor has this long to exit by itself.
EXIT_GRACE_S = 5.0
#: With ranks, the launcher has yet to see the end of each, and has work of its own then.
_RANKS_GRACE_S = 30.0
#: Each may become a debug adapter on the laptop, and a node could invent any number.
MOST_TARGETS = 1024


class Reservation(Enum):
    """The editors that may have a generation now."""

    NOT_YET = "not yet"
    FREE = "free"
    TAKEN = "taken"
    SPENT = "spent"


class RunHost(Protocol):
    """The loop of a generation."""

    @property
    def ends_left_runs(self) -> bool:
        """True: an editor that leaves ends the program. False: it runs on, for the next editor."""
        ...

    @property
    def begins_again(self) -> bool:
        """False: no run follows this one."""
        ...

    @property
    def keeps_failures(self) -> bool:
        """True: with --post-mortem."""
        ...

    @property
    def habits(self) -> Habits | None:
        """The habits of its editors; None: nothing is read ahead for them."""
        ...

    @property
    def changed(self) -> asyncio.Event:
        """Set (and replaced) with every change."""
        ...

    def wake(self) -> None:
        """Something has changed."""
        ...

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run work that nobody waits for."""
        ...

    def announce_ranks(self, generation: Generation) -> None:
        """Open child sessions for the ranks that have none yet."""
        ...

    async def restart(self, reason: str, generation: int | None = None) -> None:
        """End the debuggee of that generation and arm the next."""
        ...

    async def report_attached(self, generation: int, editor: str) -> None:
        """Report to the agent that an editor has the program."""
        ...

    def rank_kept(
        self, generation: Generation, target: DebugTarget, raised: RaisedException
    ) -> None:
        """Report a rank that is kept at an uncaught exception."""
        ...

    def note(self, text: str) -> None:
        """Put a line into the loop's record."""
        ...

    def left_out(self, text: str) -> None:
        """Take text for the loop's record that an editor was not given."""
        ...

    def run_given_up(self, generation: Generation, why: str) -> None:
        """End a generation whose adapter is gone."""
        ...

    def run_abandoned(self, generation: Generation) -> None:
        """The last editor has left a generation that has ended."""
        ...


class Generation:
    """A run as the laptop sees it: one target, or one for each rank.

    only: the ranks that are debugged, None for all. make: starts an adapter.
    """

    def __init__(
        self,
        number: int,
        make: Callable[[], asyncio.Task[Adapter]],
        host: RunHost,
        *,
        ranked: bool = False,
        only: Collection[int] | None = None,
    ) -> None:
        self.number = number
        self.ranked = ranked
        self.only = None if only is None else frozenset(only)
        self.ended = False
        #: Given up: its processes are being ended.
        self.left = False
        #: Its exit status, once the agent has reported it.
        self.ending: asyncio.Future[RunEnd] = asyncio.get_running_loop().create_future()
        self.targets: list[DebugTarget] = []
        self._make = make
        self._host = host
        self._settled = False
        self._timer: asyncio.TimerHandle | None = None
        self._next_wanted = asyncio.Event()
        self._said_too_many = False
        self._closing: set[asyncio.Task[None]] = set()
        if not ranked:
            self._add(TargetIdentity())

    # -- its targets ------------------------------------------------------

    def target_for(self, who: TargetIdentity) -> DebugTarget | None:
        """The target that a process which dialled in belongs to; a new one for a new rank.

        None: there are too many, and it must run free.
        """
        if not self.ranked:
            self.targets[0].who = self.targets[0].who if self.targets[0].who.pid else who
            return self.targets[0]
        found = self._kin(who)
        if found is None:
            self._drop_older(who.rank)
            if len(self.targets) < MOST_TARGETS:
                return self._add(who)
            if not self._said_too_many:
                self._host.note(too_many(self.number, MOST_TARGETS))
            self._said_too_many = True
        return found

    def rank(self, number: int) -> DebugTarget | None:
        """The target of that rank, if it is there.

        The newest, as a launcher may start a rank again.
        """
        of_rank = [one for one in self.targets if one.who.rank == number]
        return of_rank[-1] if of_rank else None

    @property
    def primary(self) -> DebugTarget | None:
        """The target that F5 is on; None: it has not come yet."""
        if not self.ranked:
            return self.targets[0]
        lowest = self.rank(min(self.only) if self.only else 0)
        if lowest is None and self._settled:
            lowest = min(self.targets, key=lambda one: (one.who.rank is None, one.who.rank or 0))
        return lowest

    @property
    def claim(self) -> Reservation:
        """The answer for an editor that comes now and wants the primary."""
        primary = self.primary
        if self.ended or self.left or (primary is not None and primary.left):
            return Reservation.SPENT
        if self.targets and all(one.over for one in self.targets):
            return Reservation.SPENT
        if primary is None or not primary.armed:
            return Reservation.NOT_YET
        return (
            Reservation.FREE if primary.editor is None and not primary.over else Reservation.TAKEN
        )

    @property
    def keeps_failures(self) -> bool:
        """True: its ranks stop at uncaught exceptions, with or without an editor.

        A program by itself keeps itself (debuggee/postmortem.py).
        """
        return self.ranked and self._host.keeps_failures

    @property
    def habits(self) -> Habits | None:
        """The loop's."""
        return self._host.habits

    @property
    def world_size(self) -> int:
        """The number of ranks; 0: unknown."""
        return max((one.who.world_size for one in self.targets), default=0)

    @property
    def editor(self) -> Editor | None:
        """The first editor that is on it."""
        return next((one.editor for one in self.targets if one.editor is not None), None)

    @property
    def terminated(self) -> bool:
        """All of its processes have said goodbye."""
        return bool(self.targets) and all(one.terminated for one in self.targets)

    async def tell(self, text: str) -> None:
        """Send a line to the debug console of every editor that is on it."""
        for target in self.targets:
            if target.editor is not None:
                await target.send_to_editor([target.editor.session.console(text, "important")])

    async def close(self) -> None:
        """End its adapters."""
        if self._timer is not None:
            self._timer.cancel()
        for target in self.targets:
            await target.close()
        await asyncio.gather(*self._closing)

    # -- what its editors do ------------------------------------------------

    def target_armed(self, target: DebugTarget) -> None:
        """Note that a process of the target has dialled in."""
        self._host.wake()
        self.target_heard(target)

    def target_heard(self, target: DebugTarget) -> None:
        """Offer the other ranks to the editor on the primary."""
        if self.ranked:
            self._host.announce_ranks(self)

    def target_gone(self, target: DebugTarget) -> None:
        """Let consoles see that a rank is gone: one that is killed says nothing."""
        self._host.wake()

    def target_attached(self, target: DebugTarget) -> None:
        """Report to the agent that an editor has the program."""
        self._host.wake()
        name = target.editor.name if target.editor is not None else "a console"
        self._host.spawn(self._host.report_attached(self.number, name))

    def target_terminated(self, target: DebugTarget) -> None:
        """See that the processes end once all have said goodbye."""
        if self.terminated:
            self._host.spawn(self._end_later())

    def target_raised(self, target: DebugTarget, raised: RaisedException) -> None:
        """Report a rank that is kept at an exception."""
        if raised.uncaught and self.keeps_failures:
            self._host.rank_kept(self, target, raised)

    def target_left_out(self, text: str) -> None:
        """Pass on text that an editor was not given."""
        self._host.left_out(text)

    async def target_left(self, target: DebugTarget) -> None:
        """End the debuggee where it stands, if that is the policy."""
        if self.terminated or self.ended or target is not self.primary or target.terminated:
            # Other ranks stay where they are.
            target.left = target.left and not (target.watched or self.keeps_failures)
            return
        again = target.restarts and self._host.begins_again
        if not again and (not self._host.ends_left_runs or target.watched):
            # It runs on, or stands where it is, and is the next editor's again.
            target.left = False
            return
        with contextlib.suppress(TunnelkitError, TimeoutError):
            async with asyncio.timeout(EXIT_GRACE_S):
                await self._host.restart("editor left", self.number)
                await self._wait_ended()

    def editor_gone(self, target: DebugTarget) -> None:
        """Note that the main editor has hung up."""
        self._host.wake()
        if self.ended:
            if self.editor is None:
                self._host.run_abandoned(self)
        elif target.terminated or not target.attached:
            pass
        elif target.watched:
            target.left = False
        elif target is not self.primary:
            # One rank was let go: it runs on, the others are still debugged.
            target.left = not self.keeps_failures
        elif self._host.ends_left_runs:
            target.left = True
            self._host.spawn(self._host.restart("editor left", self.number))
        else:
            target.left = False
            target.attached = False

    def give_up(self, why: str) -> None:
        """End the run: its adapter is gone."""
        self.left = True
        self._host.run_given_up(self, why)

    def next_is_wanted(self) -> None:
        """Note that somebody waits for the next run, if this one has only to exit."""
        if self.terminated and not self.ended:
            self._next_wanted.set()

    def end(self, how: RunEnd) -> None:
        """Note the exit status; the first one counts."""
        if not self.ending.done():
            self.ending.set_result(how)

    # -- inside -----------------------------------------------------------

    async def _wait_ended(self) -> None:
        while not self.ended:
            await self._host.changed.wait()

    async def _end_later(self) -> None:
        """End a debuggee that has ended its debug session and hangs, once an editor wants the next.

        It may also be at work: pydevd ends the session before the program's atexit functions
        run, and before Python waits for the program's child processes. Ranks that the launcher
        starts again meanwhile are no end."""
        next_wanted = self._next_wanted
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_RANKS_GRACE_S if self.ranked else EXIT_GRACE_S):
                await self._wait_ended()
        if self.ended or next_wanted is not self._next_wanted:
            return
        self._host.wake()
        if not next_wanted.is_set():
            self._host.note(still_ends(self.number))
        wanted = asyncio.ensure_future(next_wanted.wait())
        ended = asyncio.ensure_future(self._wait_ended())
        try:
            await first_of(wanted, ended)
        finally:
            await cancel_all(wanted, ended)
        if not self.ended:
            await self._host.restart("hung at exit", self.number)

    def _kin(self, who: TargetIdentity) -> DebugTarget | None:
        """The target that this process is, or descends from."""
        for target in reversed(self.targets):
            is_same = who.pid == target.who.pid or target.who.pid in who.ancestors
            # Each pod counts its processes from 1.
            if is_same and not target.over and who.node == target.who.node:
                return target
        if who.rank is None and self.targets:
            return self.primary or self.targets[0]
        known = None if who.rank is None else self.rank(who.rank)
        if known is not None and known.armed and known.asked is None:
            # It was killed, so it could not say goodbye, and the launcher has started it again.
            known.terminated = True
        # Another process of a rank that lives: a child whose parents are gone.
        return known if known is not None and not known.over else None

    def _drop_older(self, rank: int | None) -> None:
        """Forget those of a rank that have ended, as its launcher starts it again."""
        for target in list(self.targets):
            if target.who.rank == rank and target.over and not target.in_use:
                self.targets.remove(target)
                start(self._closing, target.close())

    def _add(self, who: TargetIdentity) -> DebugTarget:
        target = DebugTarget(AdapterOnDemand(self._make), self, who)
        self.targets.append(target)
        self._next_wanted = asyncio.Event()  # the run goes on: nobody waits for its end any more
        self._prepare_primary()
        if self.ranked and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LOWEST_PATIENCE_S, self._settle)
        return target

    def _prepare_primary(self) -> None:
        """Start the adapter that F5 takes; other ranks get theirs when an editor asks."""
        primary = self.primary
        if primary is not None:
            primary.adapter.want()

    def _settle(self) -> None:
        self._settled = True
        self._prepare_primary()
        self._host.wake()
