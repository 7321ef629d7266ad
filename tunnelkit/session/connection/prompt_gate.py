"""Gate for prompts: the user is asked for a secret only during a visit, never by background tasks.

A user's action (`tk up`, `tk auth`) opens a visit. The visit ends when the link is up, at the
first refusal, or when the user's command ends. So one action costs an account at most one failed
attempt. Outside of visits connections are made in BatchMode. That can use keys, agents,
certificates and tickets, and never sends a password or a code.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from tunnelkit.link.base import Prompter

#: Limit for the command that started the session to connect. A nearby host may prompt before a
#: loaded laptop has that command connected.
_COMES_WITHIN_S = 20.0
_LOOK_S = 0.02


class PromptGate:
    """Passes questions to `prompter` during a visit.

    present: returns True while a command is connected that could prompt the user.
    """

    def __init__(self, prompter: Prompter, present: Callable[[], bool]) -> None:
        self._prompter = prompter
        self._present = present
        self._open = False
        self._coming = False

    def is_open(self) -> bool:
        """True while authentication methods that prompt may be tried."""
        return self._open and (self._coming or self._present())

    def arrive(self, *, coming: bool = False) -> None:
        """Allow prompts until `leave`, while the user's command is connected.

        coming: also allow them before that command has connected."""
        self._open, self._coming = True, coming

    def leave(self) -> None:
        """Forbid prompts: the visit is over. Idempotent."""
        self._open = False

    async def ask(self, text: str, echo: bool) -> str | None:
        """Prompt the user (the link's Prompter); return None at once outside of a visit."""
        await self._meet()
        return await self._prompter(text, echo) if self._open else None

    async def _meet(self) -> None:
        """Wait until the command that started the session has connected (see `_COMES_WITHIN_S`)."""
        deadline = time.monotonic() + _COMES_WITHIN_S
        while True:
            is_coming = self._open and self._coming and not self._present()
            if not is_coming or time.monotonic() > deadline:
                return
            await asyncio.sleep(_LOOK_S)
