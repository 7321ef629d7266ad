"""The forwards of one link: which are wanted, the route of each, and how they come back.

Three routes: `login` ends on the login host itself; `node` uses the laptop's own connection to the
node, which runs inside the login's and so encrypts twice; `chain` goes by a unix socket on the
login host into an ssh that runs there (hop_forward.py). With AES-GCM in the CPU `node` is the
faster one by scripts/bench, and it leaves nothing running on the login host; `chain` serves where
only the login host may ssh to nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Generic, Protocol, TypeVar

from tunnelkit import local_ports
from tunnelkit.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    HostKeyError,
    TunnelkitError,
)
from tunnelkit.link.options import LinkOptions
from tunnelkit.link.shared.hop_forward import HopForward, Streams
from tunnelkit.link.shared.hop_forward_pool import HopForwardPool, Key, Route, by_first_way
from tunnelkit.link.shared.loss import first_end
from tunnelkit.model import LocalForward

#: Pauses between attempts to put forwards back: the first one, and the longest.
_PAUSES_S = (1.0, 60.0)
#: Errors that only the user can solve. Repeated automatic logins could lock an account.
_FOR_A_PERSON = (AuthenticationFailed, HostKeyError)


class Connection(Protocol):
    """A backend's connection to one host, as far as a forward needs it."""

    @property
    def host(self) -> str:
        """The host's name for messages."""
        ...

    async def wait(self) -> str:
        """Return, with the reason, once the connection is gone."""
        ...


class ActiveForward(Protocol):
    """A forward in place."""

    @property
    def route(self) -> Route:
        """The route that it took."""
        ...

    @property
    def connection(self) -> Connection:
        """The connection that carries it."""
        ...

    @property
    def chain(self) -> HopForward | None:
        """The ssh on the login host that carries it on, on the route `chain`."""
        ...

    @property
    def is_up(self) -> bool:
        """True if all that carries it is still there."""
        ...


C = TypeVar("C", bound=Connection)
F = TypeVar("F", bound=ActiveForward)


class ForwardTable(Generic[C, F]):
    """The forwards of one link; a backend adds how one is opened and withdrawn.

    login_sessions: runs the far ends of chains. node_connection: opens (or gives) the connection
    to a node.
    """

    def __init__(
        self,
        login: C,
        login_sessions: Streams,
        node_connection: Callable[[str], Awaitable[C]],
        options: LinkOptions,
    ) -> None:
        self._login = login
        self._node_connection = node_connection
        self._node_routes = options.node_routes
        self._wanted: dict[Key, F | None] = {}
        self._failed: dict[Key, TunnelkitError] = {}
        self._chains = HopForwardPool(
            login_sessions,
            self._check_streamlocal,
            connect_timeout_s=options.connect_timeout_s,
        )
        self._lock = asyncio.Lock()
        self._attempts = 0
        self._due = 0.0
        self._node_came = asyncio.Event()
        self.changed = asyncio.Event()

    async def add(self, forward: LocalForward, node: str | None) -> None:
        """Put a forward in place; nothing happens if it already is. Raises as `Link.forward`."""
        async with self._lock:
            await self._add((forward, node))

    async def cancel(self, forward: LocalForward, node: str | None) -> None:
        """Take a forward away; established connections through it go on."""
        async with self._lock:
            active = self._wanted.pop((forward, node), None)
            self._failed.pop((forward, node), None)
            if active is not None:
                await self._withdraw(forward, active)
            self._save()
            self.changed.set()

    def route(self, forward: LocalForward, node: str | None) -> Route | None:
        """The route of a forward that is in place, else None."""
        active = self._wanted.get((forward, node))
        return active.route if active and active.is_up else None

    def failed(self) -> dict[Key, TunnelkitError]:
        """Forwards that were in place once and could not be put back, with the reason."""
        return dict(self._failed)

    async def restore(self) -> None:
        """Put back the forwards that a lost connection ended; `failed` has those that can't be."""
        async with self._lock:
            self._chains.forget_refusals()
            self._node_came.clear()
            for key, active in list(self._wanted.items()):
                if active is not None and active.is_up:
                    continue
                try:
                    if active is not None:
                        await self._discard(key[0], active)
                        self._wanted[key] = None
                    await self._add(key)
                except TunnelkitError as error:
                    self._failed[key] = error
            self._attempts = self._attempts + 1 if self._failed else 0
            self._due = asyncio.get_running_loop().time() + _pause_s(self._attempts)

    def node_came(self) -> None:
        """Try again at once: there is a new connection to a node."""
        self._node_came.set()

    def retries(self) -> list[Coroutine[object, object, str]]:
        """Return a coroutine that ends when `restore` is due again; none if nothing failed."""
        return [self._until_due()] if self._failed else []

    async def _until_due(self) -> str:
        # After a refusal only the next connection counts: it may have the user's help.
        refused = any(isinstance(error, _FOR_A_PERSON) for error in self._failed.values())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(None if refused else self._due):
                await self._node_came.wait()
        return "a forward is not in place yet"

    def carriers(self) -> list[Coroutine[object, object, str]]:
        """Coroutines that end when a forward is lost, each with the reason.

        Those that `restore` could not put back are left out (see `retries`); those that were lost
        before anybody waited are in.
        """
        return [_lost(active) for active in self._wanted.values() if active is not None]

    async def close(self) -> None:
        """End all forwards and chains."""
        async with self._lock:
            active = [one for one in self._wanted.values() if one is not None]
            self._wanted.clear()
            self._failed.clear()
            await self._end(active)
            await self._chains.close()

    async def _add(self, key: Key) -> None:
        forward, node = key
        active = self._wanted.get(key)
        if active is not None and active.is_up:
            return
        local_ports.check_free(forward.bind_port)
        if node is None:
            active = await self._by_connection("login", self._login, forward)
        else:
            active = await self._to_node(node, forward)
        self._wanted[key] = active
        self._failed.pop(key, None)
        self._save()
        self.changed.set()

    async def _to_node(self, node: str, forward: LocalForward) -> F:
        ways = {
            "node": lambda: self._by_node(node, forward),
            "chain": lambda: self._by_chain(node, forward),
        }
        return await by_first_way(node, self._node_routes, ways)

    async def _by_node(self, node: str, forward: LocalForward) -> F:
        return await self._by_connection("node", await self._node_connection(node), forward)

    async def _by_chain(self, node: str, forward: LocalForward) -> F:
        chain = await self._chains.get(node)
        path = await chain.add(forward)
        try:
            return await self._through(chain, path, forward)
        except TunnelkitError:
            await chain.remove(forward)
            raise

    # -- what a backend adds

    async def _by_connection(self, route: Route, connection: C, forward: LocalForward) -> F:
        """Open the forward on a connection that ends where it leads. Raises ConnectionFailed if
        sshd there forbids TCP forwarding, UsageError if the local port is taken."""
        raise NotImplementedError

    async def _through(self, chain: HopForward, path: str, forward: LocalForward) -> F:
        """Open the forward to a chain's unix socket `path` on the login host."""
        raise NotImplementedError

    async def _check_streamlocal(self, chain: HopForward) -> None:
        """Prove that the login's sshd lets us reach a unix socket there: the chain's own
        control socket greets at once, and nothing else is disturbed. Raises ConnectionFailed."""
        raise NotImplementedError

    async def _withdraw(self, forward: LocalForward, active: F) -> None:
        """Close a forward's port and its far end; connections go on."""
        raise NotImplementedError

    async def _discard(self, forward: LocalForward, active: F) -> None:
        """Remove the rest of a forward that was lost."""
        await self._withdraw(forward, active)

    async def _end(self, active: Sequence[F]) -> None:
        """End forwards that are open, and all that belongs to withdrawn ones."""
        raise NotImplementedError

    def _save(self) -> None:
        """Record the forwards for a successor, where one can take them over."""


def _pause_s(attempt: int) -> float:
    first_s, most_s = _PAUSES_S
    # Jitter: the forwards of many sessions must not all come back at once.
    return min(most_s, first_s * 2.0 ** min(attempt - 1, 10)) * random.uniform(0.5, 1.0)  # noqa: S311


async def remove_far_end(forward: LocalForward, chain: HopForward | None) -> None:
    """Remove a chain's far end of a forward, where that is still there."""
    if chain is not None and chain.is_up:
        with contextlib.suppress(ConnectionFailed):
            await chain.remove(forward)


async def _lost(active: ActiveForward) -> str:
    """Return, with the reason, once one of a forward's connections is lost."""
    if not active.is_up:
        name = active.chain.node if active.chain else active.connection.host
        return f"the connection of the forward to {name} ended"
    chain = [active.chain.wait()] if active.chain else []
    return await first_end(active.connection.wait(), *chain)
