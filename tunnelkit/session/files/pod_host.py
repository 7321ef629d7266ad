"""A further pod as its mirrors use it: they send by its own agent, and it proves what it has."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping

from tunnelkit.messages.agent_calls import MIRROR_DIFFERING
from tunnelkit.mirror.api import DigestCheck, MirrorStatus, PassRecord
from tunnelkit.session.agent.client import AgentClient
from tunnelkit.session.files import mirror_json
from tunnelkit.session.files.file_agents import HeldFileAgent
from tunnelkit.session.files.mirror_json import Tell

log = logging.getLogger("tunnelkit.session")
_SOON_S = 5.0


class PodHost:
    """The `MirrorHost` of one pod's mirrors.

    pod: its name. prepared: returns once the cluster is known to be usable. changed: called with
    each new status. tell: takes events for those who watch.
    """

    def __init__(
        self,
        pod: str,
        *,
        prepared: Callable[[], Awaitable[None]],
        changed: Callable[[], None],
        tell: Tell,
    ) -> None:
        self.pod = pod
        #: Number of roots that are there: each mirror makes its own before it asks `may_write`.
        self.roots = 0
        self._prepared = prepared
        self._changed = changed
        self._tell = tell
        self._held: HeldFileAgent | None = None
        self._news = asyncio.Event()

    @property
    def is_up(self) -> bool:
        """True while the pod's agent can be reached."""
        return self._held is not None and self._held.is_up

    def agent_is(self, client: AgentClient | None) -> None:
        """Use this agent from now on; None: there is none, or its link is lost."""
        if client is None or self._held is None or self._held.client is not client:
            self._held = None if client is None else HeldFileAgent(client, is_node=True)
        self.poke()

    def poke(self) -> None:
        """Have all who wait look again."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition; `poke` makes it be looked at."""
        while not condition():
            await self._news.wait()

    # -- as the mirrors' host ---------------------------------------------

    def file_agent(self) -> HeldFileAgent | None:
        """Return the pod's agent, None while it can't be reached."""
        return self._held if self.is_up else None

    async def file_agent_soon(self) -> None:
        """Return once the agent can be reached, or after a moment."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SOON_S):
                await self.until(lambda: self.is_up)

    async def may_write(self) -> None:
        """Note that one more root is there."""
        self.roots += 1
        self.poke()
        await self._prepared()

    def digest_check(self, root: str) -> DigestCheck:
        """Return the check by which the pod reads files below a root. It waits for the agent."""

        async def check(expected: Mapping[str, str]) -> list[str]:
            await self.until(lambda: self.is_up)
            assert self._held is not None
            return await MIRROR_DIFFERING.ask(
                self._held.client, {"root": root, "expected": dict(expected)}
            )

        return check

    def mirror_changed(self, name: str, status: MirrorStatus) -> None:
        """Tell those who watch the new status."""
        self._changed()
        self._tell(mirror_json.state_event(name, status, self.pod))

    def mirror_sent(self, name: str, batch: PassRecord) -> None:
        """Tell those who watch. The loops go by the first pod."""
        self._tell(mirror_json.batch_event(name, batch, self.pod))

    def mirror_warns(self, name: str, text: str) -> None:
        """Log a warning about the laptop's files: the first pod's mirror has shown it."""
        log.debug("%s: %s %s", self.pod, name, text)

    def say(self, text: str) -> None:
        """Log a message: the first pod's mirror has said much the same."""
        log.info("%s: %s", self.pod, text)
