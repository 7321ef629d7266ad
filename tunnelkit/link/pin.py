"""Which host a round-robin name led to, so that a reconnect comes to the same one.

What is left on a login host (its agent's socket, where there is no scheduler) is on that
host only. The address is pinned rather than the name that the host has for itself, which
a laptop often can't resolve. It is tried every other time: a host that is gone for good
must not keep the session from the others.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Awaitable, Callable

from tunnelkit.link.hostkeys import EffectiveConfig

_RESOLVE_S = 5.0

#: `ssh -G` with these options besides the usual ones.
Config = Callable[[list[str]], Awaitable[EffectiveConfig]]


class LoginPin:
    """The pinned address of one login host; none where its name has but one."""

    def __init__(self) -> None:
        self._options: list[str] = []
        self._address: str | None = None
        self._missed = False

    def options(self) -> list[str]:
        """ssh options for the next attempt."""
        return [] if self._missed else self._options

    def missed(self) -> None:
        """That attempt did not get through: the next one goes by the name, or again not."""
        self._missed = bool(self._options) and not self._missed

    async def learn(
        self, read: Config, ask: Callable[[], Awaitable[str]]
    ) -> tuple[str, str] | None:
        """After a connection was made: pin where it led. `ask` gives SSH_CONNECTION there.
        Returns the address before and now, if the name led to another host this time."""
        if self._options and not self._missed:
            return None  # it came by the pin
        self._missed = False
        config = await read([])
        if not config.is_direct or config.uses_gssapi or _is_address(config.hostname):
            return None
        words = (await ask()).split()
        address = words[2] if len(words) == 4 else ""
        family = ":" in address
        known = [one for one in await _addresses(config.hostname) if (":" in one) == family]
        if len(known) < 2 or address not in known:
            return None
        before, self._address = self._address, address
        options = ["-o", f"HostName={address}", "-o", f"HostKeyAlias={config.known_as}"]
        # A `Match host` of the person's may mean the name, and hold the key that lets us in.
        self._options = options if (await read(options)).rest == config.rest else []
        return (before, address) if before not in (None, address) and before else None


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
