"""The session's client of an agent: one connection that continues over successive links."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping

from tunnelkit.errors import AllocationError, ConnectionFailed, TunnelkitError
from tunnelkit.link.base import ByteStream
from tunnelkit.messages.agent_calls import SHUTDOWN
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.hello import NoHello, exchange_hello
from tunnelkit.mux.mux import Mux
from tunnelkit.mux.rpc import Handler, RpcError, RpcPeer
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.session.agent.first_link import MOVE_S, Dial, FirstWays, Opening, discard, race
from tunnelkit.session.job.log_tail import HINT
from tunnelkit.wire.endpoint import Endpoint
from tunnelkit.wire.errors import ProtocolError
from tunnelkit.wire.handshake import NO_ID, Hello, HelloReader, Status

log = logging.getLogger("tunnelkit.session")

#: Exit status of `agent attach` if no such agent runs (agent/links/bridge.py).
NO_AGENT = 66
#: Python's error messages for a zip that is missing, truncated, or holds other bytes.
_BROKEN = re.compile(
    r"can't open file .*agent-|agent-\S+ did not come|can't find '__main__'|ZipImportError"
    r"|zlib\.error|No module named '?tunnelkit|marshal data|EOFError|SyntaxError|null bytes"
)
_HELLO_TIMEOUT_S = 30.0
#: Ping interval. A link that is silent for SILENCE_S is dropped; this detects a laptop's sleep and
#: Wi-Fi changes.
KEEPALIVE_S = 5.0
_MOST_NOTICES = 20
SILENCE_S = 15.0
MOST_PAUSE_S = 10.0
#: Limit for a new job: its agent and its node's sshd start within this time.
_FIRST_PATIENCE_S = 60.0


def attempt_pause_s(attempt: int, most_s: float) -> float:
    """Return the seconds until the next attempt, after `attempt` (0, 1, ...) has failed.

    Doubled each time, and jittered: many sessions that lost one login node must not all reconnect
    at once.
    """
    return min(most_s, 0.2 * 2.0 ** min(attempt, 10)) * random.uniform(0.5, 1.0)  # noqa: S311


class AgentGone(AllocationError):
    """Error: the agent no longer runs, because its job ended or its node went down."""


class AgentBroken(ConnectionFailed):
    """Error: the agent's file, which `agent attach` needs, is missing or damaged."""


class AgentClient:
    """One connection to one agent. Call `connect`, then `run` until it ends.

    dial: returns a stream to `agent attach` on the node; called for every link.
    on_channel: called when the agent opens a channel (a debuggee, an exec's stderr).
    notices: handlers for messages that the agent sends without a call.
    on_link: called with True when a link is attached, with (False, reason, error or None) when not.
    on_stuck: called with the error when attempts stop until `retry`, with None after `retry`.
    repair: installs the agent's file again; `dial` is then called once more.
    most_pause_s: the longest pause between two attempts to attach a new link.
    first: the ways to the very first link, if not `dial`.
    """

    def __init__(
        self,
        dial: Dial,
        *,
        on_channel: Callable[[Channel, dict[str, object]], None],
        notices: dict[str, Handler],
        on_link: Callable[[bool, str, TunnelkitError | None], None] = lambda up, why, error: None,
        on_stuck: Callable[[TunnelkitError | None], None] = lambda error: None,
        repair: Callable[[], Awaitable[None]] | None = None,
        most_pause_s: float = MOST_PAUSE_S,
        first: FirstWays | None = None,
    ) -> None:
        self._dial = dial
        self._first = first
        self._most_pause_s = most_pause_s
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
        #: Moves the wire from an early link to a better one, and is set while it does.
        self._moving: asyncio.Task[None] | None = None
        self._between_links = False
        self._moved = asyncio.Event()

    async def connect(self) -> None:
        """Attach the first link. Raises AgentGone or ConnectionFailed."""
        first, self._first = self._first, None
        if first is None or not await self._connect_early(first):
            await self._connect_once()
        self._tasks = [
            asyncio.create_task(self._serve_calls()),
            asyncio.create_task(self.mux.keepalive(KEEPALIVE_S, SILENCE_S)),
        ]

    async def connect_patiently(self, has_ended: Callable[[bool], Awaitable[str | None]]) -> None:
        """Call `connect` until it succeeds, for at most `_FIRST_PATIENCE_S` (60 s).

        The agent may still be starting, or its node may not accept ssh yet.
        has_ended: called between attempts with True if the node reports that it has no such agent;
        returns why waiting is useless, or None.
        Raises AllocationError if has_ended gives a reason; after a minute, the last attempt's
        error.
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
        """Attach a new link after each loss; return the reason when the connection has ended.

        Raises AgentGone once it is known that the agent no longer runs.
        """
        while True:
            lost = self._lost
            assert lost is not None
            # Shielded: `tk down` cancels this loop, and still needs the link to ask the agent
            # to end.
            why = await asyncio.shield(lost)
            if self._between_links:
                await self._moved.wait()
            if self._lost is not lost and self.mux.ended is None:
                continue  # the wire has moved
            await self._end_move()
            await self._drop_stream()
            if self.mux.ended is not None:
                return self.mux.ended
            self._on_link(False, why, None)
            await self._reconnect()

    async def call(self, method: str, **params: object) -> object:
        """Call the agent's method; wait while no link is attached. Raises TunnelkitError."""
        try:
            return await self._rpc.call(method, **params)
        except RpcError as error:
            if error.data.get("gone"):
                raise AgentGone(
                    "the agent on the node has ended",
                    cause=self.mux.ended,
                    hint="`tk status` shows the state",
                ) from None
            hint = error.data.get("hint")
            raise TunnelkitError(str(error), hint=str(hint) if hint else None) from None

    def open(self, header: Mapping[str, object]) -> Channel:
        """Open a channel to the agent."""
        return self.mux.open(header)

    async def shut_down(self, reason: str) -> None:
        """Ask the agent to end its processes and itself, and wait until it has ended.

        The job is cancelled only after this: a scheduler would kill the agent during its cleanup.
        """
        with contextlib.suppress(AgentGone):
            await SHUTDOWN.ask(self, {"reason": reason})
            await self.wait_ended()

    async def wait_ended(self) -> None:
        """Return once the connection has ended: the agent said BYE, or this side ended it."""
        await self._rpc_channel.closed()

    @property
    def is_up(self) -> bool:
        """True while a link is attached, or the wire moves from one to the next."""
        return self.mux.is_up or self._between_links

    def retry(self) -> None:
        """Try again to reach the agent, if the attempts had stopped (see on_stuck)."""
        self._retry.set()

    def drop_link(self, why: str) -> None:
        """Detach the current link; `run` attaches a new one."""
        self.mux.detach(why)

    async def close(self, reason: str) -> None:
        """End the connection. The agent and its processes keep running."""
        self.mux.end(reason)
        await self._end_move()
        await cancel_all(*self._tasks)
        await self._drop_stream()

    async def _serve_calls(self) -> None:
        try:
            await self._rpc.serve()
        except RpcError as error:
            # Without RPC no call is answered: end with the reason instead of a silent hang.
            self.mux.end(f"the agent broke the protocol: {error}")
            self.mux.detach("the agent broke the protocol")

    async def _reconnect(self) -> None:
        attempt = 0
        while True:
            # Not after the attempt: `retry` may come meanwhile, once the job is known to be over.
            self._retry.clear()
            try:
                await self._connect_once()
                self._on_link(True, "", None)
                return
            except AgentGone:
                raise
            except TunnelkitError as error:
                self._on_link(False, error.one_line(), error)
                if not error.transient:
                    # Refused, not unreachable: the user must fix it, and is asked only once.
                    self._on_stuck(error)
                    await self._retry.wait()
                    self._on_stuck(None)
                    continue
            await asyncio.sleep(attempt_pause_s(attempt, self._most_pause_s))
            attempt += 1

    async def _connect_once(self) -> None:
        try:
            await self._connect_link(self._dial)
        except AgentBroken as error:
            if self._repair is None:
                raise
            try:
                await self._repair()
            except AllocationError as why:
                error.cause = f"{error.cause}; {why.one_line()}"
                raise error from why
            await self._connect_link(self._dial)

    async def _connect_early(self, first: FirstWays) -> bool:
        """Attach the first link by the quicker of two; False if `_dial` has to.

        Raises as `connect`."""
        better, stream = await race(first, self._connect_link)
        if better is not None:
            self._moving = asyncio.create_task(self._move(better))
        elif stream is not None:
            await self._attach(stream)
        else:
            return False
        return True

    async def _move(self, better: Opening) -> None:
        """Move the wire to the stream of `better`, without a loss and without a report of one."""
        try:
            stream = await better
        except TunnelkitError as error:
            self.drop_link(error.one_line())
            return
        except BaseException:
            await discard(better)
            raise
        if stream is None:
            return
        old, self._between_links = self._stream, True
        try:
            await self._attach(stream, MOVE_S)
        except TunnelkitError as error:
            log.info("the wire could not move to a better link: %s", error.one_line())
            return  # `run` hears of the old link's loss, and closes it
        finally:
            self._between_links = False
            self._moved.set()
        if old is not None:
            await old.close()

    async def _end_move(self) -> None:
        moving, self._moving = self._moving, None
        if moving is not None:
            await cancel_all(moving)

    async def _connect_link(self, dial: Dial) -> None:
        await self._attach(await dial())

    async def _attach(self, stream: ByteStream, most_s: float = _HELLO_TIMEOUT_S) -> None:
        try:
            async with asyncio.timeout(most_s):
                hello, rest = await self._shake_hands(stream)
            self._server_id = hello.server_id
            self._lost = self.mux.attach(stream.fileno(), stream.fileno(), hello, rest)
        except TimeoutError:
            await self._let_go(stream)
            raise ConnectionFailed(
                "the agent on the node does not answer",
                hint="is the node overloaded? `tk logs --session` shows more",
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
        mine = self.mux.hello(status, self._client_id, self._server_id)
        reader, fd = HelloReader(), stream.fileno()
        try:
            answer, rest = await exchange_hello(fd, fd, mine, reader)
        except (NoHello, OSError):
            raise await _why_no_hello(stream, reader.noise) from None
        if answer.status is Status.SUPERSEDED:
            raise AgentGone("another tk session took over this allocation")
        if answer.status is Status.UNKNOWN:
            raise AgentGone("the agent on the node was restarted; what it ran is gone")
        return answer, rest

    async def _drop_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await self._let_go(stream)

    async def _let_go(self, stream: ByteStream) -> None:
        # Detach before the close. Otherwise the event loop still watches this descriptor number,
        # and misses all events of the next descriptor that gets it.
        self.mux.detach("the link was given up")
        await stream.close()


def _few(handler: Handler) -> Handler:
    """Wrap a notice handler: drop calls after the first `_MOST_NOTICES`.

    Each notice comes once or twice per job. A misbehaving node must not fill the log.
    """
    told = 0

    async def take(params: dict[str, object]) -> None:
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
            hint="it is put there again; is the home there full? `tk doctor` shows it",
        )
    return ConnectionFailed(
        "the agent on the node could not be reached",
        cause=said or f"exit status {status}",
        transient=True,
        hint="tk tries again; `tk doctor` checks the way there",
    )
