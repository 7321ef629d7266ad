"""One line with the reason of a command's wait, while nothing comes from its session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tunnelkit.cli.terminal.output import StatusLine
from tunnelkit.errors import TunnelkitError
from tunnelkit.session.runtime.control_calls import Status

if TYPE_CHECKING:
    from tunnelkit.session.runtime.control_client import SessionClient
    from tunnelkit.session.runtime.status import SessionStatus

#: A shorter wait is not shown.
_QUIET_S = 1.0
#: Pauses between queries of the session's state: before anything came, and after.
_AGAIN_S = 1.0
_LATER_S = 5.0


class Waiting:
    """The line of one command. `watching` shows it, `heard` takes it away."""

    def __init__(self) -> None:
        self._line = StatusLine()
        self._heard = False

    @contextmanager
    def watching(self, session: SessionClient, *, until_heard: bool = False) -> Iterator[None]:
        """Query the session's state meanwhile; with until_heard only until something came."""
        task = asyncio.create_task(self._watch(session, until_heard))
        try:
            yield
        finally:
            task.cancel()
            self._line.clear()

    def heard(self) -> None:
        """Remove the line: output of the node follows."""
        self._heard = True
        self._line.clear()

    async def _watch(self, session: SessionClient, until_heard: bool) -> None:
        await asyncio.sleep(_QUIET_S)
        while not (until_heard and self._heard):
            try:
                status = await session.call(Status())
            except (TunnelkitError, OSError):
                return  # the command itself says that its session is gone
            if until_heard and self._heard:
                return
            text = waits_for(status)
            if text is None:
                self._line.clear()
            else:
                self._line.update(text)
            await asyncio.sleep(_LATER_S if self._heard and text is None else _AGAIN_S)


def waits_for(status: SessionStatus) -> str | None:
    """Return in words what a session of this status waits for; None: for nothing."""
    from tunnelkit.cli.views.startup import progress

    if status["state"] in ("ready", "ended", "failed"):
        return None
    words = progress(status["state"], status.get("detail") or "") or status["state"]
    return f"[tk] waiting for the session: {words}"
