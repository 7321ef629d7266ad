"""The chains of one link, one a node; and the routes of a forward to a node, tried in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, TypeVar

from tunnelkit.errors import ConnectionFailed, TunnelkitError
from tunnelkit.link.shared.hop_forward import HopForward, Streams
from tunnelkit.model import LocalForward

T = TypeVar("T")

#: The route of a forward: see forward_table.py.
Route = Literal["login", "chain", "node"]
#: A forward, and the node whose ports it leads to (None: the login host).
Key = tuple[LocalForward, str | None]


class HopForwardPool:
    """Owner of a link's chains.

    login: runs their far ends. prove: raises ConnectionFailed where the login host does not let us
    reach a chain's sockets."""

    def __init__(
        self,
        login: Streams,
        prove: Callable[[HopForward], Awaitable[None]],
        *,
        connect_timeout_s: int,
    ) -> None:
        self._login = login
        self._prove = prove
        self._connect_timeout_s = connect_timeout_s
        self._chains: dict[str, HopForward] = {}
        self._refused: dict[str, TunnelkitError] = {}

    async def get(self, node: str) -> HopForward:
        """The chain to a node, opened once. Raises ConnectionFailed, and remembers why. For one
        caller at a time."""
        if node in self._refused:
            raise self._refused[node]
        chain = self._chains.get(node)
        if chain is not None and chain.is_up:
            return chain
        if chain is not None:
            await chain.close()
        chain = HopForward(node, self._login, connect_timeout_s=self._connect_timeout_s)
        try:
            await chain.open()
            await self._prove(chain)
        except ConnectionFailed as error:
            self._refused[node] = error
            await chain.close()
            raise
        except BaseException:
            await chain.close()
            raise
        self._chains[node] = chain
        return chain

    def forget_refusals(self) -> None:
        """Forget earlier refusals: what was refused may work now."""
        self._refused.clear()

    async def close(self) -> None:
        """End them all. Idempotent."""
        await asyncio.gather(*(chain.close() for chain in self._chains.values()))
        self._chains.clear()


def no_unix_sockets(host: str) -> ConnectionFailed:
    """The error that `prove` raises."""
    return ConnectionFailed(
        f"{host} forbids forwards to unix sockets",
        cause="AllowStreamLocalForwarding is off there",
        hint="ask its admins for AllowStreamLocalForwarding",
    )


async def by_first_way(
    node: str, routes: Sequence[str], ways: Mapping[str, Callable[[], Awaitable[T]]]
) -> T:
    """The result of the first of `routes` that works.

    Raises ConnectionFailed with the reasons of all.
    """
    refusals: list[ConnectionFailed] = []
    for route in routes:
        try:
            return await ways[route]()
        except ConnectionFailed as error:
            refusals.append(error)
    first, *others = refusals
    causes = [one.cause or one.message for one in others]
    raise type(first)(
        f"no forward to {node}: {first.message}",
        cause="; nor by the other route: ".join([first.cause or "refused", *causes]),
        hint=first.hint,
        transient=all(one.transient for one in refusals),
    ) from first
