"""Short queries of a cluster, outside of any session: for `tk init` and `tk vscode`."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tunnelkit.config.schema import LinkName, Settings
from tunnelkit.errors import TunnelkitError
from tunnelkit.link.base import Link, Prompter
from tunnelkit.link.factory import make_link
from tunnelkit.link.options import LinkOptions
from tunnelkit.scheduler.detect import DETECT, Detected, parse_detect
from tunnelkit.session.runtime import control_client
from tunnelkit.session.runtime.control_calls import Status
from tunnelkit.session.runtime.paths import session_paths

_ASK_HOME = r"""printf '%s\n' "$HOME" """


def link_options(settings: Settings) -> LinkOptions:
    """Return the link's options from the settings."""
    return LinkOptions(
        login=settings.require_login(),
        jumps=settings.cluster.jump,
        ssh_config=settings.cluster.ssh_config,
    )


async def scheduler_of(link: Link) -> Detected:
    """Detect the login host's scheduler. Raises ConnectionFailed or SchedulerError."""
    return parse_detect(await link.run(DETECT.argv, stdin=DETECT.stdin))


@dataclass(frozen=True)
class ClusterProbe:
    """Result of a short query of a login host."""

    scheduler: str
    home: str


def detect_scheduler(settings: Settings, prompter: Prompter | None = None) -> str:
    """Connect to the login host and return its scheduler's name. Raises ConnectionFailed."""
    return _look(settings.cluster.link, link_options(settings), prompter).scheduler


def remote_root(settings: Settings, prompter: Prompter | None = None) -> str:
    """Return the mirror's absolute directory on the cluster.

    A live session is asked first, as it needs no new connection. Raises ConnectionFailed.
    """
    remote = settings.mirror.remote
    if remote.startswith("/"):
        return remote
    known = asyncio.run(_ask_session(settings))
    return known or _look(settings.cluster.link, link_options(settings), prompter).home + remote[1:]


async def _ask_session(settings: Settings) -> str | None:
    try:
        async with control_client.connect(session_paths(settings.project_dir)) as session:
            mirror = (await session.call(Status()))["mirror"]
    except TunnelkitError:
        return None
    return str(mirror["remote"]) if mirror and mirror["remote"] else None


@lru_cache(maxsize=1)
def _look(name: LinkName, options: LinkOptions, prompter: Prompter | None) -> ClusterProbe:
    """Connect once, and so prompt once, for all that one command asks."""

    async def look() -> ClusterProbe:
        with tempfile.TemporaryDirectory(prefix="tk-") as directory:
            link = make_link(name, options, control_dir=Path(directory), prompter=prompter)
            try:
                await link.open()
                scheduler = (await scheduler_of(link)).name
                done = await link.run(["sh", "-c", _ASK_HOME])
                return ClusterProbe(scheduler, done.text.splitlines()[-1])
            finally:
                await link.close()

    return asyncio.run(look())
