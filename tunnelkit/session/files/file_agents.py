"""The agent that receives the mirror's files: the node's, else one on the login host.

The latter is no daemon: one process at the end of one ssh stream, which ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from tunnelkit.errors import ConnectionFailed, TunnelkitError
from tunnelkit.link.base import ByteStream
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.session.agent.client import AgentClient, AgentGone

log = logging.getLogger("tunnelkit.session")
#: A node that comes within this time needs no stand-in, unless the first copy is big.
_PATIENCE_S = 3.0
#: Limit of a first copy's wait for an agent; rsync needs none.
_SOON_S = 5.0
_AGAIN_S = (5.0, 60.0)
_IN_USE_S = 0.5


class HeldFileAgent:
    """An agent, as the mirror uses it. Counts its open channels."""

    def __init__(self, client: AgentClient, *, is_node: bool) -> None:
        self.client = client
        self.is_node = is_node
        self._channels: list[Channel] = []

    @property
    def is_up(self) -> bool:
        """True while a link to the agent is attached."""
        return self.client.is_up

    @property
    def in_use(self) -> bool:
        """True if one of its channels is open."""
        return bool(self._still_open())

    async def call(self, method: str, **params: object) -> object:
        """Call the agent; wait while no link is attached. Raises TunnelkitError.

        An agent that has ended is a lost connection: the mirror goes on without it, or by the next
        one.
        """
        try:
            return await self.client.call(method, **params)
        except AgentGone as gone:
            raise ConnectionFailed(
                gone.message,
                cause=gone.cause,
                transient=True,
                hint="files are sent again by themselves; `tk status` shows the agent",
            ) from None

    def open(self, header: dict[str, object]) -> Channel:
        """Open a channel to the agent."""
        channel = self.client.open(header)
        # Each link cut may bring a new channel: closed ones must not pile up.
        self._channels = [*self._still_open(), channel]
        return channel

    def _still_open(self) -> list[Channel]:
        return [channel for channel in self._channels if not channel.is_over]


class FileAgents:
    """`run` keeps a stand-in on the login host while there is no node.

    dial: opens a stream to `agent files` there. arrived: called when another agent can be used.
    has_room: returns True if the login host gives a session beside that stream. repair: see
    AgentClient.
    """

    def __init__(
        self,
        dial: Callable[[], Awaitable[ByteStream]],
        *,
        arrived: Callable[[], None],
        has_room: Callable[[], Awaitable[bool]],
        repair: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._dial = dial
        self._repair = repair
        self._arrived = arrived
        self._has_room = has_room
        self._node: HeldFileAgent | None = None
        self._login: HeldFileAgent | None = None
        self._hurry = False
        #: True while no stand-in can be started
        self._refused = False
        self._news = asyncio.Event()

    def current(self) -> HeldFileAgent | None:
        """Return the current agent, or None."""
        if self._node_is_up():
            return self._node
        if self._login is not None and self._login.is_up:
            return self._login
        return None

    async def soon(self) -> None:
        """Wait until there is an agent, or until none can be started.

        Starts one on the login host if there is none.
        """
        self._hurry = True
        self._tell()
        await self._until(lambda: self.current() is not None or self._refused, _SOON_S)

    def node_is(self, client: AgentClient) -> None:
        """Use the node's agent, which has been reached."""
        self._node = HeldFileAgent(client, is_node=True)
        self._tell()
        self._arrived()

    def node_changed(self) -> None:
        """Note that the link to the node's agent broke, or is back."""
        self._tell()

    async def run(self) -> None:
        """Keep a stand-in while there is no node, until cancelled."""
        pause_s = _AGAIN_S[0]
        while True:
            await self._until(lambda: not self._node_is_up())
            if await self._until(self._node_is_up, _PATIENCE_S, but=lambda: self._hurry):
                continue
            self._refused = False
            try:
                await self._stand_in()
                pause_s = _AGAIN_S[0]
            except TunnelkitError as error:
                log.info("no file agent on the login host: %s", error.one_line())
            self._hurry, self._refused = False, True
            self._tell()
            await self._until(self._node_is_up, pause_s)
            pause_s = min(2 * pause_s, _AGAIN_S[1])

    async def _stand_in(self) -> None:
        """Keep one on the login host until the node takes over, or it is gone."""
        client = AgentClient(self._dial, on_channel=_unexpected, notices={}, repair=self._repair)
        await client.connect()
        life = asyncio.create_task(client.run())
        life.add_done_callback(lambda task: self._tell())
        try:
            # Else the commands that ask for the node would wait for it, and it for the node.
            if not await self._has_room():
                raise ConnectionFailed(
                    "the login host gives no session beside that of a file agent",
                    hint="files go by rsync until the node is there",
                )
            host = self._login = HeldFileAgent(client, is_node=False)
            self._tell()
            self._arrived()
            await self._until(lambda: life.done() or self._node_is_up())
            while not life.done() and host.in_use:  # its current work must not be started again
                await asyncio.wait([life], timeout=_IN_USE_S)
        finally:
            self._login = None
            await cancel_all(life)
            await client.close("it is not needed")
        if not life.cancelled() and not isinstance(life.exception(), AgentGone):
            life.result()

    def _node_is_up(self) -> bool:
        return self._node is not None and self._node.is_up

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _until(
        self,
        condition: Callable[[], bool],
        timeout_s: float | None = None,
        *,
        but: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Wait for the condition or for `but`; return True if the condition holds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not condition() and not but():
                    await self._news.wait()
        return condition()


def _unexpected(channel: Channel, header: dict[str, object]) -> None:
    channel.close({"error": "unexpected channel"})
