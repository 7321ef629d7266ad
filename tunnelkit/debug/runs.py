"""The runs of one loop in their order, and an adapter for the next one.

Rules of this file: generations are taken in their order. One that stands by is nobody's before
all earlier ones are spent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial

from tunnelkit.debug.adapter.adapter import AdapterAhead, Adapters
from tunnelkit.debug.dap.editor_port import Editor
from tunnelkit.debug.dap.exit_report import RunEnd
from tunnelkit.debug.debug_target import DebugTarget
from tunnelkit.debug.generation import Generation, Reservation, RunHost
from tunnelkit.mux.tasks import start

_GENERATIONS_AHEAD = 2  # of their turn, beside the one in front: the agent never has more


class Runs:
    """The generations that have not ended. `close` at the end.

    front: the number of the generation whose turn it is.
    """

    def __init__(self, adapters: Adapters, host: RunHost) -> None:
        self.front = 0
        self._host = host
        self._generations: dict[int, Generation] = {}
        self._ahead = AdapterAhead(adapters)
        #: Never cancelled: an adapter that gets no end lives on.
        self._closing: set[asyncio.Task[None]] = set()

    def prepare(self) -> None:
        """Start an adapter ahead of the first run."""
        self._ahead.prepare()

    def in_order(self) -> list[Generation]:
        """Return all of them, the oldest first."""
        return [self._generations[number] for number in sorted(self._generations)]

    def first(self) -> Generation | None:
        """Return the first generation that is not spent: the one that an F5 of now is about."""
        return next((one for one in self.in_order() if one.claim is not Reservation.SPENT), None)

    def with_new_child(self) -> DebugTarget | None:
        """Return the target of a spent run whose program has just started a child process."""
        spent = (one for one in self.in_order() if one.claim is Reservation.SPENT)
        targets = (target for one in spent if not one.ended for target in one.targets)
        return next((one for one in targets if one.has_new_child), None)

    @property
    def editor(self) -> Editor | None:
        """The first editor that is on any of them."""
        return next((one.editor for one in self.in_order() if one.editor is not None), None)

    def get_or_add(
        self, number: int, *, ranked: bool, only: Collection[int] | None
    ) -> Generation | None:
        """Return the generation of that number, a new one if need be.

        None if it is over, or none that the loop can have yet: each costs a debug adapter on this
        machine.
        """
        ahead = sum(one > self.front for one in self._generations)
        room = number == self.front or ahead < _GENERATIONS_AHEAD
        if number not in self._generations and number >= self.front and room:
            # A run of ranks takes long to start: its first adapter is there in time.
            make = partial(self._ahead.take, another=not ranked)
            self._generations[number] = Generation(
                number, make, self._host, ranked=ranked, only=only
            )
        return self._generations.get(number)

    def end(self, number: int, how: RunEnd, *, ahead: bool) -> None:
        """Note the end of a generation; all before it end, too, unless it was ahead."""
        if number in self._generations:
            self._generations[number].end(how)
        for one in self.in_order():
            if one.number == number or (one.number < number and not ahead):
                one.ended = True
                if one.editor is None:
                    self.drop(one)

    def drop(self, generation: Generation) -> None:
        """Close a generation that nobody wants any more."""
        if self._generations.pop(generation.number, None) is not None:
            start(self._closing, generation.close())

    async def close(self, lost: str = "") -> None:
        """End all adapters. lost: the reason for editors."""
        for generation in self._generations.values():
            if lost:
                generation.end(RunEnd(lost=lost))
            await generation.close()
        await asyncio.gather(*self._closing, return_exceptions=True)
        await self._ahead.close()
