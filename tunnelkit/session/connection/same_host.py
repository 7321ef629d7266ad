"""Two names of a login host, compared as ssh reads them."""

from __future__ import annotations

from tunnelkit.config.schema import Settings
from tunnelkit.errors import TunnelkitError
from tunnelkit.link.openssh.argv import SshCommand
from tunnelkit.link.options import link_options
from tunnelkit.link.shared.host_keys import effective_config

#: The lines of `ssh -G` that say, with the host's name, where a connection leads.
_PLACE = ("user ", "port ", "proxyjump ", "proxycommand ")


async def is_same_host(settings: Settings, one: str, other: str) -> bool:
    """True if both destinations lead to the same account on the same host: an alias and its host.

    False if ssh can't be asked.
    """
    command = SshCommand(link_options(settings), batch=True)
    try:
        places = [await _place(command, name) for name in (one, other)]
    except (TunnelkitError, OSError):
        return False
    return places[0] == places[1]


async def _place(command: SshCommand, name: str) -> tuple[str, frozenset[str]]:
    config = await effective_config(command.print_config(name), name)
    lines = frozenset(line for line in config.rest if line.startswith(_PLACE))
    return config.hostname.lower(), lines
