"""The session's side of the agent: a conversation that goes on over one link after the other."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

from tunnelkit.errors import AllocationError, ConnectionFailed, TunnelkitError
from tunnelkit.link.base import ByteStream
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.fd_io import read_fd, write_fd
from tunnelkit.mux.mux import Mux
from tunnelkit.mux.rpc import Handler, RpcError, RpcPeer
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.session.job.log_tail import HINT
from tunnelkit.wire.endpoint import Endpoint
from tunnelkit.wire.errors import ProtocolError
from tunnelkit.wire.handshake import NO_ID, Hello, HelloReader, Status

#: Exit status of `agent attach` when there is no such agent (agent/links/bridge.py).
NO_AGENT = 66
#: What Python says of a zip that is gone, was cut short, or holds other bytes.
_BROKEN = re.compile(
    r"can't open file .*agent-|agent-\S+ did not come|can't find '__main__'|ZipImportError"
    r"|zlib\.error|No module named '?tunnelkit|marshal data|EOFError|SyntaxError|null bytes"
)
_HELLO_TIMEOUT_S = 30.0
#: A silent link is given up after this; sleep and Wi-Fi changes are noticed by it.
KEEPALIVE_S = 5.0
_MOST_NOTICES = 20
SILENCE_S = 15.0
_MAX_BACKOFF_S = 10.0
#: A job that just began: its agent, and its node's sshd, come up within this.
_FIRST_PATIENCE_S = 60.0

Dial = Callable[[], Awaitable[ByteStream]]


class AgentGone(AllocationError):
    """The agent no longer runs: its job ended, or its node went down."""


class AgentBroken(ConnectionFailed):
    """What starts `agent attach` lacks its file, or it is damaged."""


class AgentClient:
    """One conversation with one agent. `connect`, then `run` until it ends.

    dial: gives a stream to `agent attach` on the node; called for every link.
    on_channel: the agent opened a channel (a debuggee, an exec's stderr).
    notices: handlers for what the agent tells by itself.
    on_link: told True when a link carries the conversation, False when it is lost.
    on_stuck: told when nothing is tried until `retry`, and None once that has come.
    repair: puts the agent's file there again; `dial` is called once more then.
    """

    def __init__(
        self,
        dial: Dial,
        *,
        on_channel: Callable[[Channel, dict[str, Any]], None],
        notices: dict[str, Handler],
        on_link: Callable[[bool, str], None] = lambda up, why: None,
        on_stuck: Callable[[TunnelkitError | None], None] = lambda error: None,
        repair: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._dial = dial
        self._on_link = on_link
        self._on_stuck = on_stuck
        self._repair = repair
        self._client_id = os.urandom(16)
        self._server_id = NO_ID
        self.mux = Mux(Endpoint(client=True), on_channel)
        self._rpc_channel = self.mux.open({"type": "rpc"})
        few = {name: _few(handler) for name, handler in notices.items()}
        self._rpc = RpcPeer(self._rpc_channel, few)
        self._stream: ByteStream | None = None
        self._lost: asyncio.Future[str] | None = None
        self._retry = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def connect(self) -> None:
        """Make the first link. Raises AgentGone, ConnectionFailed."""
        await self._connect_once()
        self._tasks = [
            asyncio.create_task(self._serve_calls()),
            asyncio.create_task(self.mux.keepalive(KEEPALIVE_S, SILENCE_S)),
        ]

    async def connect_patiently(self, has_ended: Callable[[bool], Awaitable[str | None]]) -> None:
        """As `connect`, but the agent may need a moment to start, or its node to let us in.

        has_ended: asked now and then whether, and why, there is nothing to wait for any more; told
        whether the node says that it has no such agent.
        Raises AllocationError then; after a minute, what the last attempt failed with.
        """
        deadline = time.monotonic() + _FIRST_PATIENCE_S
        pause_s = 0.05
        while True:
            try:
                await self.connect()
                return
            except TunnelkitError as error:
                if not isinstance(error, AgentGone) and not error.transient:
                    raise
                if time.monotonic() > deadline:
                    raise
                no_agent = isinstance(error, AgentGone)
                ended = await has_ended(no_agent) if pause_s > 1.0 else None
                if ended:
                    raise AllocationError(
                        "the allocation ended at once",
                        cause=ended,
                        hint=HINT,
                    ) from None
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 2.0)

    async def run(self) -> str:
        """Keep the conversation going over new links; return why it ended for good.

        Raises AgentGone once it is known that the agent is no more.
        """
        while True:
            assert self._lost is not None
            # Shielded: cancelling this loop (to go down) must not take the link away, over which
            # the agent is told to end.
            why = await asyncio.shield(self._lost)
            await self._drop_stream()
            if self.mux.ended is not None:
                return self.mux.ended
            self._on_link(False, why)
            await self._reconnect()

    async def call(self, method: str, **params: Any) -> Any:
        """Call the agent; waits through link cuts. Raises TunnelkitError."""
        try:
            return await self._rpc.call(method, **params)
        except RpcError as error:
            if error.data.get("gone"):
                raise AgentGone("the agent on the node has ended") from None
            raise TunnelkitError(str(error), hint=error.data.get("hint")) from None

    def open(self, header: dict[str, Any]) -> Channel:
        """Open a channel to the agent."""
        return self.mux.open(header)

    async def shut_down(self, reason: str) -> None:
        """Have the agent end all that it runs and itself. Its goodbye comes when all is gone: the
        scheduler, told before, would kill it in the middle of that."""
        with contextlib.suppress(AgentGone):
            await self.call("shutdown", reason=reason)
            await self.wait_ended()

    async def wait_ended(self) -> None:
        """Return once the conversation is over, on the agent's side too if it said so."""
        await self._rpc_channel.closed()

    @property
    def is_up(self) -> bool:
        """True while a link carries the conversation."""
        return self.mux.is_up

    def retry(self) -> None:
        """Try once more to reach the agent, if that was given up."""
        self._retry.set()

    def drop_link(self, why: str) -> None:
        """Give up the link of the moment; `run` makes a new one."""
        self.mux.detach(why)

    async def close(self, reason: str) -> None:
        """End the conversation. The agent and what it runs live on."""
        self.mux.end(reason)
        await cancel_all(*self._tasks)
        await self._drop_stream()

    async def _serve_calls(self) -> None:
        try:
            await self._rpc.serve()
        except RpcError as error:
            # No call would be answered any more, and nobody would know why.
            self.mux.end(f"the agent broke the protocol: {error}")
            self.mux.detach("the agent broke the protocol")

    async def _reconnect(self) -> None:
        attempt = 0
        while True:
            try:
                await self._connect_once()
                self._on_link(True, "")
                return
            except AgentGone:
                raise
            except TunnelkitError as error:
                self._on_link(False, error.one_line())
                if not error.transient:
                    # Refused, not unreachable: a person must mend it, and is asked only once.
                    self._retry.clear()
                    self._on_stuck(error)
                    await self._retry.wait()
                    self._on_stuck(None)
                    continue
            # Jitter: many sessions that lost one login node must not come back as a storm.
            delay_s = min(_MAX_BACKOFF_S, 0.2 * 2**attempt) * random.uniform(0.5, 1.0)  # noqa: S311
            await asyncio.sleep(delay_s)
            attempt += 1

    async def _connect_once(self) -> None:
        try:
            await self._connect_link()
        except AgentBroken as error:
            if self._repair is None:
                raise
            try:
                await self._repair()
            except AllocationError as why:
                error.cause = f"{error.cause}; {why.one_line()}"
                raise error from why
            await self._connect_link()

    async def _connect_link(self) -> None:
        stream = await self._dial()
        try:
            async with asyncio.timeout(_HELLO_TIMEOUT_S):
                hello, rest = await self._shake_hands(stream)
            self._server_id = hello.server_id
            self._lost = self.mux.attach(stream.fileno(), stream.fileno(), hello, rest)
        except TimeoutError:
            await self._let_go(stream)
            raise ConnectionFailed(
                "the agent on the node does not answer",
                hint="is the node overloaded? `tk logs --session` tells more",
                transient=True,
            ) from None
        except ProtocolError as error:
            said = stream.diagnosis()
            await self._let_go(stream)
            if self._server_id != NO_ID:
                raise AgentGone("the debug connection can't be resumed", cause=str(error)) from None
            raise ConnectionFailed(
                "what answers on the node is no agent of this tk",
                cause=said or str(error),
                hint="tk down, then tk up",
            ) from None
        except BaseException:
            await self._let_go(stream)
            raise
        self._stream = stream

    async def _shake_hands(self, stream: ByteStream) -> tuple[Hello, bytes]:
        status = Status.FRESH if self._server_id == NO_ID else Status.RESUME
        endpoint = self.mux.endpoint
        hello = Hello(
            status, self._client_id, self._server_id, endpoint.received, endpoint.window_bytes
        )
        reader = HelloReader()
        # A far end that is gone shows as end of stream, whichever call meets it first.
        with contextlib.suppress(OSError):
            await write_fd(stream.fileno(), hello.encode())
        while True:
            try:
                data = await read_fd(stream.fileno())
            except OSError:
                data = b""
            if not data:
                raise await _why_no_hello(stream, reader.noise)
            answer = reader.feed(data)
            if answer is not None:
                break
        if answer.status is Status.SUPERSEDED:
            raise AgentGone("another tk session took over this allocation")
        if answer.status is Status.UNKNOWN:
            raise AgentGone("the agent on the node was restarted; what it ran is gone")
        return answer, reader.rest

    async def _drop_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await self._let_go(stream)

    async def _let_go(self, stream: ByteStream) -> None:
        # Before the close: the event loop would take the next descriptor with that number for
        # one that it watches already, and nobody would ever hear of it.
        self.mux.detach("the link was given up")
        await stream.close()


def _few(handler: Handler) -> Handler:
    """Each is told once or twice in a job's life; a node that lies must not fill the log."""
    told = 0

    async def take(params: dict[str, Any]) -> Any:
        nonlocal told
        told += 1
        if told <= _MOST_NOTICES:
            await handler(params)

    return take


async def _why_no_hello(stream: ByteStream, noise: bytes) -> TunnelkitError:
    status = await stream.wait()
    said = stream.diagnosis() or noise.decode("utf-8", "replace").strip()[-300:]
    if status == NO_AGENT:
        return AgentGone("there is no agent on the node any more", cause=said or None)
    if _BROKEN.search(said):
        return AgentBroken(
            "the agent's file on the cluster is gone or damaged",
            cause=said,
            transient=True,
            hint="it is put there again; is the home there full? `tk doctor` tells",
        )
    return ConnectionFailed(
        "the agent on the node could not be reached",
        cause=said or f"exit status {status}",
        transient=True,
        hint="tk tries again; `tk doctor` checks the way there",
    )
