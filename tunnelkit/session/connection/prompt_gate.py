"""Whether a person is there to be asked for a secret. Nothing that runs by itself may ask.

One action of a person (`tk up`, `tk auth`) opens a visit. It ends with the link up, with
the first refusal (so one action can cost an account one failed attempt, and no more) or
with the person's command. Outside of visits connections are made in BatchMode, which can
use keys, agents, certificates and tickets, and never sends a password or a code.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from tunnelkit.link.base import Prompter

#: So long a command that has started the session may take until it can ask: a host that is
#: near puts its question before a laptop under load has that command connected.
_COMES_WITHIN_S = 20.0
_LOOK_S = 0.02


class PromptGate:
    """Lets questions through to `prompter` while somebody visits.

    present: whether a command that could ask is connected right now.
    """

    def __init__(self, prompter: Prompter, present: Callable[[], bool]) -> None:
        self._prompter = prompter
        self._present = present
        self._open = False
        self._coming = False

    def is_open(self) -> bool:
        """True while what would ask may be tried."""
        return self._open and (self._coming or self._present())

    def arrive(self, *, coming: bool = False) -> None:
        """A person may be asked until `leave`, for as long as they are present; with `coming`
        also before their command has connected."""
        self._open, self._coming = True, coming

    def leave(self) -> None:
        """The visit is over. Idempotent."""
        self._open = False

    async def ask(self, text: str, echo: bool) -> str | None:
        """The link's Prompter: None, at once, while nobody visits."""
        await self._meet()
        return await self._prompter(text, echo) if self._open else None

    async def _meet(self) -> None:
        """Give the command that is still coming the time to connect."""
        deadline = time.monotonic() + _COMES_WITHIN_S
        while True:
            is_coming = self._open and self._coming and not self._present()
            if not is_coming or time.monotonic() > deadline:
                return
            await asyncio.sleep(_LOOK_S)
