"""The options of an ssh link; both ssh backends read them. No I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tunnelkit.config.schema import Settings
from tunnelkit.model import Hop

_WITH_PORT = re.compile(r"(?P<host>[^:\[\]]+):(?P<port>\d+)")


@dataclass(frozen=True)
class LinkOptions:
    """Hosts and limits of an ssh link. ssh_config decides what is not given here.

    jumps: hosts before `login`, in order of travel (ProxyJump). ssh_config: another file than
    ~/.ssh/config. known_hosts: tunnelkit's own file, for compute nodes that none of the user's
    files knows; by default one in the control directory. max_sessions: sessions held at once on one
    host, below sshd's MaxSessions (10) so that rsync and sshfs find room. auth_timeout_s: seconds
    from a user's answer to the login (a push on a phone takes its time). node_routes: routes of a
    forward to a node, in the order in which they are tried (forwards.py).
    """

    login: Hop
    jumps: tuple[Hop, ...] = ()
    ssh_config: Path | None = None
    known_hosts: Path | None = None
    connect_timeout_s: int = 15
    auth_timeout_s: float = 120.0
    max_sessions: int = 8
    alive_interval_s: int = 5
    alive_count_max: int = 3
    node_routes: tuple[str, ...] = ("node", "chain")
    ssh: str = "ssh"


def link_options(settings: Settings) -> LinkOptions:
    """Return the options from the settings. Raises ConfigError if there is no login host."""
    return LinkOptions(
        login=settings.require_login(),
        jumps=settings.cluster.jump,
        ssh_config=settings.cluster.ssh_config,
    )


def destination_words(destination: str) -> list[str]:
    """`host` or `user@host:port` as the words that end an ssh argv's options."""
    match = _WITH_PORT.fullmatch(destination)
    if match:
        return ["-p", match["port"], "--", match["host"]]
    return ["--", destination]
