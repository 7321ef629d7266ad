"""The ranks that were attached to, one by one, as one program: for a console over all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from tunnelkit.debug.attachment import Attachment
from tunnelkit.debug.debug_target import DebugTarget
from tunnelkit.debug.loop import DebugLoop
from tunnelkit.messages.agent_calls import LoopInfo
from tunnelkit.mux.tasks import cancel_all, first_of

if TYPE_CHECKING:
    from tunnelkit.session.debugging.loops import Loops

#: Returns after something of the session has changed.
WaitChange = Callable[[], Awaitable[None]]


def loop_for_console(
    loops: Loops, wanted: int | None, wait_change: WaitChange
) -> DebugLoop | AttachedRanks:
    """Return a loop by its id; None: the newest, or else all ranks that were attached to.

    A process that is no rank has a console of its own. Raises DebugError.
    """
    loop = loops.get(wanted).loop
    if wanted is None and isinstance(loop, Attachment) and not _is_no_rank(loop):
        together = AttachedRanks(loops, loop, wait_change)
        if together.targets:
            return together
    return loop


class AttachedRanks:
    """All ranks that are attached to, with the part of a loop and of its run that consoles use.

    newest: one of them, whose command and id stand for all.
    """

    #: No run follows: tk starts none of them again.
    number = 1
    ranked = False
    keeps_failures = False

    def __init__(self, loops: Loops, newest: DebugLoop, wait_change: WaitChange) -> None:
        self.id = newest.id
        self.info: LoopInfo = newest.info
        self._loops = loops
        self._wait_change = wait_change

    @property
    def changed(self) -> AttachmentChange:
        """The next change of any of them."""
        return AttachmentChange(self.attachments, self._wait_change)

    def attachments(self) -> Sequence[Attachment]:
        """Return all attachments, those that may become ranks included; oldest first."""
        return self._loops.attachments()

    def first(self) -> AttachedRanks:
        """Return the run: there is only one."""
        return self

    @property
    def targets(self) -> list[DebugTarget]:
        """The ranks."""
        targets = [target for one in self.attachments() for target in _targets(one)]
        return [one for one in targets if one.who.rank is not None]

    @property
    def world_size(self) -> int:
        """The number of ranks, attached to or not; 0: unknown."""
        return max((one.who.world_size for one in self.targets), default=0)


class AttachmentChange:
    """The next change of attachments, from when this was made, or a new attachment."""

    def __init__(
        self, attachments: Callable[[], Sequence[Attachment]], wait_change: WaitChange
    ) -> None:
        self._attachments = attachments
        self._wait_change = wait_change
        self._known = list(attachments())
        self._events = [one.changed for one in self._known]

    async def wait(self) -> None:
        """Return once it has come."""
        waiting = [asyncio.ensure_future(one.wait()) for one in self._events]
        others = asyncio.ensure_future(self._until_others())
        try:
            await first_of(others, *waiting)
        finally:
            await cancel_all(others, *waiting)

    async def _until_others(self) -> None:
        while list(self._attachments()) == self._known:
            await self._wait_change()


def _targets(loop: DebugLoop) -> Sequence[DebugTarget]:
    run = loop.first()
    return run.targets if run is not None else ()


def _is_no_rank(loop: DebugLoop) -> bool:
    """Tell whether its process is known, and no rank."""
    return any(one.who.pid and one.who.rank is None for one in _targets(loop))
