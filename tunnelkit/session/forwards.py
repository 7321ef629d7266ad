"""Forwards of a session: by ssh if the node can be reached by ssh, else by the wire."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace

from tunnelkit.debug.agent_api import AgentApi
from tunnelkit.errors import ConnectionFailed, TunnelkitError, UsageError
from tunnelkit.link.base import Link
from tunnelkit.messages.agent_calls import INFO, TCP_LISTENING, HostPort
from tunnelkit.model import LocalForward
from tunnelkit.mux.listener import Listener
from tunnelkit.mux.peer_credentials import network
from tunnelkit.mux.splice import splice
from tunnelkit.mux.tasks import cancel_all, start
from tunnelkit.session.agent.client import AgentGone
from tunnelkit.session.runtime.control_answers import ForwardAnswer
from tunnelkit.session.runtime.status import ForwardInfo

#: A forward without a server behind it accepts and then closes, within this time.
_HANGUP_S = 0.3
#: The route of a forward whose both ends are one port.
SAME_MACHINE = "none"
#: The route of a forward that its link has lost and not put back yet.
LOST = "lost"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
#: Limit for closing a forward to a node that may be dead.
_LET_GO_S = 5.0


class WireForward:
    """127.0.0.1:bind_port carried over the agent's wire."""

    def __init__(self, forward: LocalForward, agent: Callable[[], AgentApi]) -> None:
        self._forward = forward
        self._agent = agent
        self._listener = Listener(self._connected, shared=forward.shared)
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Bind and listen. Raises UsageError if the port is taken."""
        try:
            self._listener.open(self._forward.bind_port)
        except OSError as error:
            raise UsageError(
                f"local port {self._forward.bind_port} can't be opened",
                cause=error.strerror,
                hint="choose another: tk forward LOCAL:REMOTE",
            ) from None

    async def close(self) -> None:
        """Stop listening and end all connections."""
        self._listener.close()
        await cancel_all(*self._tasks)

    def _connected(self, sock: socket.socket) -> None:
        channel = self._agent().open(
            {"type": "tcp", "host": self._forward.host, "port": self._forward.port}
        )
        start(self._tasks, splice(sock, channel))


@dataclass
class _Entry:
    forward: LocalForward
    route: str
    wire: WireForward | None = None
    #: True if the user asked for the wire.
    by_wire: bool = False


@dataclass
class SessionForwards:
    """All forwards of a session. node: returns None if the login host is the node."""

    link: Link
    agent: Callable[[], AgentApi]
    node: Callable[[], str | None]
    by_link: Callable[[], Awaitable[bool]]
    _entries: dict[int, _Entry] = field(default_factory=dict)
    #: What `open_all` or `put_back` will open, and whether by the wire; it stays if the agent ends.
    _unopened: list[tuple[LocalForward, bool]] = field(default_factory=list)

    async def add(self, forward: LocalForward, *, wire: bool = False) -> ForwardAnswer:
        """Open a forward; return its route, and if a server answers behind it.

        Raises UsageError if the local port is taken.
        """
        known = self._entries.get(forward.bind_port)
        if known is not None and known.forward == forward:
            if self._route(known) == LOST:
                if wire:
                    await self._close(known)
                self._entries[forward.bind_port] = known = await self._open(forward, wire)
            return await self._describe(known)
        if known is not None and replace(known.forward, shared=forward.shared) == forward:
            raise UsageError(
                f"{forward} is open already, for {'all users' if known.forward.shared else 'you'}",
                hint=f"tk forward --cancel {forward.bind_port} first",
            )
        if known is not None:
            raise UsageError(
                f"local port {forward.bind_port} is forwarded to"
                f" {known.forward.host}:{known.forward.port} already",
                hint=f"tk forward --cancel {forward.bind_port}, or choose another local port",
            )
        if await self._is_here(forward):
            entry = _Entry(forward, SAME_MACHINE, by_wire=wire)
        else:
            entry = await self._open(forward, wire)
        self._entries[forward.bind_port] = entry
        return await self._describe(entry)

    async def open_all(self, wanted: Iterable[LocalForward], say: Callable[[str], None]) -> None:
        """Open these forwards, and say each one's route. Raises as `add`.

        If the agent ends, the rest is left to `take`: there may be another node for them.
        """
        self._unopened = [(forward, False) for forward in wanted]
        with contextlib.suppress(AgentGone):
            while self._unopened:
                forward, _ = self._unopened[0]
                how = await self.add(forward)
                state = "ready" if how["ready"] else "open, nobody listens there yet"
                say(f"forward: {forward} by {how['route']}, {state}")
                del self._unopened[0]

    async def cancel(self, bind_port: int) -> None:
        """Close a forward. Raises UsageError if there is none on that port."""
        entry = self._entries.pop(bind_port, None)
        if entry is None:
            raise UsageError(f"no forward on port {bind_port}", hint="see `tk status`")
        await self._close(entry)

    def list(self) -> list[ForwardInfo]:
        """Every forward and its route."""
        return [
            {
                "forward": str(entry.forward),
                "route": self._route(entry),
                "shared": entry.forward.shared,
            }
            for entry in self._entries.values()
        ]

    async def take(self) -> tuple[tuple[LocalForward, bool], ...]:
        """Close all; return what `put_back` needs to open them again on another node."""
        unopened, self._unopened = self._unopened, []
        unopened = [one for one in unopened if one[0].bind_port not in self._entries]
        entries, self._entries = list(self._entries.values()), {}
        for entry in entries:
            # The node may be dead.
            with contextlib.suppress(TunnelkitError, TimeoutError):
                async with asyncio.timeout(_LET_GO_S):
                    await self._close(entry)
        opened = [(one.forward, one.by_wire) for one in entries]
        return (*opened, *unopened)

    async def put_back(self, wanted: tuple[tuple[LocalForward, bool], ...]) -> tuple[str, ...]:
        """Open these again on their old ports; return a line for each that failed.

        If the agent ends, the rest is left to `take`, as by `open_all`.
        """
        lost, self._unopened = [], list(wanted)
        with contextlib.suppress(AgentGone):
            while self._unopened:
                forward, wire = self._unopened[0]
                try:
                    await self.add(forward, wire=wire)
                except AgentGone:
                    raise
                except TunnelkitError as error:
                    lost.append(f"forward {forward} is lost: {error.one_line()}")
                del self._unopened[0]
        return tuple(lost)

    async def close(self) -> None:
        """Close all."""
        entries, self._entries = list(self._entries.values()), {}
        for entry in entries:
            await self._close(entry)

    async def _is_here(self, forward: LocalForward) -> bool:
        """True if both ends are one port of one machine, as in a lab on loopback.

        Such a forward would lead to itself, and each connection would open the next."""
        if forward.host not in _LOOPBACK or forward.port != forward.bind_port:
            return False
        there = (await INFO.ask(self.agent(), {})).get("network")
        return bool(there) and there == network()

    async def _open(self, forward: LocalForward, wire: bool) -> _Entry:
        node = self.node()
        if not wire and await self.by_link():
            try:
                await self.link.forward(forward, node=node)
                return _Entry(forward, self.link.forward_route(forward, node=node) or "ssh")
            except ConnectionFailed:
                # One that was lost: the link must not want the port any more.
                await self.link.cancel_forward(forward, node=node)
        carried = WireForward(forward, self.agent)
        carried.open()
        return _Entry(forward, "wire", carried, by_wire=wire)

    def _route(self, entry: _Entry) -> str:
        """Return the route that the forward has now: the link puts a lost one back by another."""
        if entry.wire is not None or entry.route == SAME_MACHINE:
            return entry.route
        return self.link.forward_route(entry.forward, node=self.node()) or LOST

    async def _close(self, entry: _Entry) -> None:
        if entry.wire is not None:
            await entry.wire.close()
        elif entry.route != SAME_MACHINE:
            await self.link.cancel_forward(entry.forward, node=self.node())

    async def _describe(self, entry: _Entry) -> ForwardAnswer:
        forward = entry.forward
        address: HostPort = {"host": forward.host, "port": forward.port}
        answers = await TCP_LISTENING.ask(self.agent(), address)
        ready = answers and await _stays_open(forward.bind_port)
        return {
            "forward": str(forward),
            "route": self._route(entry),
            "shared": forward.shared,
            "listening": answers,
            "ready": ready,
        }


async def _stays_open(port: int) -> bool:
    """True if a connection through the forward is not closed at once."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    try:
        async with asyncio.timeout(_HANGUP_S):
            return bool(await reader.read(1))
    except TimeoutError:
        return True
    except OSError:
        return False
    finally:
        writer.close()
