"""The address that a round-robin name led to, so that a reconnect comes to the same host.

What is left on a login host (its agent's socket, where there is no scheduler) is on that host only.
The address is pinned rather than the name that the host has for itself, which a laptop often can't
resolve. It is tried every other time: a host that is gone for good must not keep the session from
the others.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Awaitable, Callable

from tunnelkit.link.shared.host_keys import EffectiveConfig

_RESOLVE_S = 5.0

#: `ssh -G` with these options besides the usual ones.
Config = Callable[[list[str]], Awaitable[EffectiveConfig]]
#: The address of a host after a login, as seen from here; "" where that is unknown.
WhereTo = Callable[[], Awaitable[str]]


class AddressPin:
    """The pinned address of one login host; none where its name has but one."""

    def __init__(self) -> None:
        self._led_to: str | None = None
        self._holds = False
        self._missed = False

    @property
    def address(self) -> str | None:
        """The address of the next attempt; None: by the name."""
        return self._led_to if self._holds and not self._missed else None

    def missed(self) -> None:
        """That attempt did not get through: the next one goes by the name, or again not."""
        self._missed = self.address is not None

    async def learn(
        self, hostname: str, where: WhereTo, may_hold: Callable[[str], Awaitable[bool]]
    ) -> tuple[str, str] | None:
        """After a connection was made by the name: pin where it led, if the address `may_hold`.
        Returns the address before and now, if the name led to another host this time."""
        self._missed = False
        if _is_address(hostname):
            return None
        address = await where()
        family = ":" in address
        known = [one for one in await _addresses(hostname) if (":" in one) == family]
        if len(known) < 2 or address not in known:
            return None
        before, self._led_to = self._led_to, address
        self._holds = await may_hold(address)
        return (before, address) if before not in (None, address) and before else None


class LoginPin(AddressPin):
    """The pinned address as ssh options."""

    def __init__(self) -> None:
        super().__init__()
        self._options: list[str] = []

    def options(self) -> list[str]:
        """ssh options for the next attempt."""
        return [] if self.address is None else self._options

    async def learn_from(self, read: Config, where: WhereTo) -> tuple[str, str] | None:
        """See `learn`; nothing is pinned where ssh_config has another way than to dial it."""
        if self.address is not None:
            return None  # it came by the pin
        config = await read([])

        async def may_hold(address: str) -> bool:
            options = ["-o", f"HostName={address}", "-o", f"HostKeyAlias={config.known_as}"]
            self._options = options
            # A `Match host` in the user's file may depend on the name, and hold the key of this
            # host.
            return (await read(options)).rest == config.rest

        if not config.is_direct or config.uses_gssapi:
            return None
        return await self.learn(config.hostname, where, may_hold)


def _is_address(hostname: str) -> bool:
    try:
        ipaddress.ip_address(hostname)
    except ValueError:
        return False
    return True


async def _addresses(hostname: str) -> set[str]:
    """All addresses of a name; none if that takes too long."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[set[str]] = loop.create_future()

    def give(addresses: set[str]) -> None:
        if not found.done():
            found.set_result(addresses)

    def resolve() -> None:
        try:
            rows = socket.getaddrinfo(hostname, None, type=socket.SOCK_STREAM)
        except OSError:
            rows = []
        try:
            loop.call_soon_threadsafe(give, {str(row[4][0]) for row in rows})
        except RuntimeError:
            pass  # the session ended meanwhile

    # A daemon's, since no end of the session may wait for a name service that hangs.
    threading.Thread(target=resolve, name="tk-resolve", daemon=True).start()
    try:
        async with asyncio.timeout(_RESOLVE_S):
            return await found
    except TimeoutError:
        return set()
