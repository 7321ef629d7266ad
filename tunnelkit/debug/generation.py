"""One run of a loop: the processes of it that can be debugged, and who may have it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from enum import Enum
from typing import Any

from tunnelkit.debug.adapter.adapter import Adapter
from tunnelkit.debug.dap.editor_port import Editor
from tunnelkit.debug.debug_target import DebugTarget, TargetEvents, TargetIdentity
from tunnelkit.errors import DebugError

#: The lowest rank is the one that F5 is on. If it has not come this long after another,
#: the lowest of those that are there takes its place.
_LOWEST_PATIENCE_S = 10.0
#: A debuggee that said goodbye to its editor has this long to exit by itself.
EXIT_GRACE_S = 5.0
#: With ranks, the launcher has yet to see the end of each, and has work of its own then.
_RANKS_GRACE_S = 30.0
#: Each is a debug adapter on the laptop, and a node could invent any number.
MOST_TARGETS = 1024


class Reservation(Enum):
    """The editors that may have a generation now."""

    NOT_YET = "not yet"
    FREE = "free"
    TAKEN = "taken"
    SPENT = "spent"


class Generation:
    """A run as the laptop sees it: one target, or one for each rank.

    only: the ranks that are debugged, None for all. make: starts an adapter. changed: called
    when a while has made a difference.
    """

    def __init__(
        self,
        number: int,
        make: Callable[[], asyncio.Task[Adapter]],
        *,
        ranked: bool = False,
        only: Collection[int] | None = None,
        events: TargetEvents | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.number = number
        self.ranked = ranked
        self.only = None if only is None else frozenset(only)
        self.ended = False
        #: Given up: its processes are being ended.
        self.left = False
        #: Its exit status, once the agent has reported it.
        self.ending: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.targets: list[DebugTarget] = []
        self._make = make
        self._events = events or TargetEvents()
        self._changed = changed
        self._settled = False
        self._timer: asyncio.TimerHandle | None = None
        if not ranked:
            self._add(TargetIdentity())

    # -- its targets ------------------------------------------------------

    def target_for(self, who: TargetIdentity) -> DebugTarget:
        """The target that a process which dialled in belongs to; a new one for a new rank. Raises
        DebugError if there are too many."""
        if not self.ranked:
            self.targets[0].who = self.targets[0].who if self.targets[0].who.pid else who
            return self.targets[0]
        found = self._kin(who)
        if found is None and len(self.targets) >= MOST_TARGETS:
            raise DebugError(
                f"more than {MOST_TARGETS} ranks have dialled in",
                hint="debug some of them: tk loop --rank 0 ...",
            )
        return found if found is not None else self._add(who)

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
    def world_size(self) -> int:
        """The number of ranks; 0: unknown."""
        return max((one.who.world_size for one in self.targets), default=0)

    @property
    def editor(self) -> Editor | None:
        """The first editor that is on it."""
        return next((one.editor for one in self.targets if one.editor is not None), None)

    @property
    def attached(self) -> bool:
        """An editor has (or had) its program."""
        return any(one.attached for one in self.targets)

    @property
    def terminated(self) -> bool:
        """All of its processes have said goodbye."""
        return bool(self.targets) and all(one.terminated for one in self.targets)

    @property
    def exit_grace_s(self) -> float:
        """Seconds that its processes may take to exit once all have said goodbye."""
        return _RANKS_GRACE_S if self.ranked else EXIT_GRACE_S

    async def tell(self, text: str) -> None:
        """A line for the debug console of every editor that is on it."""
        for target in self.targets:
            view = target.editor.view if target.editor is not None else None
            if view is not None:
                await target.tell([view.console(text, "important")])

    async def close(self) -> None:
        """End its adapters."""
        if self._timer is not None:
            self._timer.cancel()
        for target in self.targets:
            await target.close()

    # -- inside -----------------------------------------------------------

    def _kin(self, who: TargetIdentity) -> DebugTarget | None:
        """The target that this process is, or descends from."""
        for target in reversed(self.targets):
            if not target.over and (who.pid == target.who.pid or target.who.pid in who.ancestors):
                return target
        if who.rank is None and self.targets:
            return self.primary or self.targets[0]
        known = None if who.rank is None else self.rank(who.rank)
        # Another process of a rank that lives: a child whose parents are gone.
        return known if known is not None and not known.over else None

    def _add(self, who: TargetIdentity) -> DebugTarget:
        target = DebugTarget(self._make(), self.ending, self._events, who, hold_end=not self.ranked)
        self.targets.append(target)
        if self.ranked and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_LOWEST_PATIENCE_S, self._settle)
        return target

    def _settle(self) -> None:
        self._settled = True
        self._changed()


class Closing:
    """Generations that nobody wants any more, until their adapters have ended.

    Never cancel it: an adapter that gets no end lives on.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, generation: Generation) -> None:
        """Close it."""
        task = asyncio.create_task(generation.close())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self) -> None:
        """Return once all are closed."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
