"""Which agent the mirror's files go to: the node's, or, while there is none, one on the login host.

The latter is no daemon: one process at the end of one ssh stream, which ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from tunnelkit.errors import TunnelkitError
from tunnelkit.link.base import ByteStream
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.waiting import cancel_all
from tunnelkit.session.agent_client import AgentClient, AgentGone

log = logging.getLogger("tunnelkit.session")
#: A node that comes within this needs no stand-in.
_PATIENCE_S = 3.0
_AGAIN_S = (5.0, 60.0)


class FileHost:
    """An agent as the mirror knows it."""

    def __init__(self, client: AgentClient, *, is_node: bool) -> None:
        self.client = client
        self.is_node = is_node

    @property
    def is_up(self) -> bool:
        return self.client.is_up

    def open(self, header: dict[str, Any]) -> Channel:
        return self.client.open(header)

    async def call(self, method: str, **params: Any) -> Any:
        return await self.client.call(method, **params)


class FileHosts:
    """`run` keeps a stand-in on the login host while there is no node; `close` ends it.

    dial: a stream to `agent files` there. arrived: told that another agent can be used.
    """

    def __init__(
        self, dial: Callable[[], Awaitable[ByteStream]], *, arrived: Callable[[], None]
    ) -> None:
        self._dial = dial
        self._arrived = arrived
        self._node: FileHost | None = None
        self._login: FileHost | None = None
        self._changed = asyncio.Event()

    def current(self) -> FileHost | None:
        """The agent of this moment; None: there is none."""
        if self._node is not None and self._node.is_up:
            return self._node
        if self._login is not None and self._login.is_up:
            return self._login
        return None

    def node_is(self, client: AgentClient) -> None:
        """The node's agent has been reached."""
        self._node = FileHost(client, is_node=True)
        self._changed.set()
        self._arrived()

    def node_changed(self) -> None:
        """Its link broke, or is back."""
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        pause_s = _AGAIN_S[0]
        while True:
            self._changed.clear()
            if self._node is not None and self._node.is_up:
                await self._changed.wait()
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE_S):
                    await self._changed.wait()
                    continue
            try:
                await self._stand_in()
                pause_s = _AGAIN_S[0]
            except TunnelkitError as error:
                log.info("no file agent on the login host: %s", error.one_line())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._changed.wait()
            pause_s = min(2 * pause_s, _AGAIN_S[1])

    async def _stand_in(self) -> None:
        """Have one on the login host until the node is there, or it is gone."""
        client = AgentClient(self._dial, on_channel=_unexpected, notices={})
        await client.connect()
        self._login = FileHost(client, is_node=False)
        life = asyncio.create_task(client.run())
        try:
            self._arrived()
            while not life.done() and not (self._node is not None and self._node.is_up):
                self._changed.clear()
                news = asyncio.create_task(self._changed.wait())
                await asyncio.wait([life, news], return_when=asyncio.FIRST_COMPLETED)
                await cancel_all(news)
        finally:
            self._login = None
            await cancel_all(life)
            await client.close("the node is there")
        if life.done() and not life.cancelled() and not isinstance(life.exception(), AgentGone):
            life.result()


def _unexpected(channel: Channel, header: dict[str, Any]) -> None:
    channel.close({"error": "unexpected channel"})
