"""Short looks at a cluster, outside of any session: for `tk init` and `tk vscode`."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from tunnelkit.config.schema import Settings
from tunnelkit.link.base import Link, Prompter
from tunnelkit.link.openssh import OpenSSHLink, OpenSSHOptions
from tunnelkit.scheduler.detect import DETECT, Detected, parse_detect

_ASK_HOME = r"""printf '%s\n' "$HOME" """


def link_options(settings: Settings) -> OpenSSHOptions:
    """The link's options as the settings say."""
    return OpenSSHOptions(
        login=settings.require_login(),
        jumps=settings.cluster.jump,
        ssh_config=settings.cluster.ssh_config,
    )


async def scheduler_of(link: Link) -> Detected:
    """Which scheduler the login host has. Raises ConnectionFailed, SchedulerError."""
    return parse_detect(await link.run(DETECT.argv, stdin=DETECT.stdin))


def detect_scheduler(settings: Settings, prompter: Prompter | None = None) -> str:
    """Connect to the login host and tell its scheduler's name. Raises ConnectionFailed."""

    async def look(link: Link) -> str:
        return (await scheduler_of(link)).name

    return asyncio.run(_with_link(settings, prompter, look))


def remote_root(settings: Settings, prompter: Prompter | None = None) -> str:
    """The mirror's absolute directory on the cluster. Raises ConnectionFailed."""
    remote = settings.mirror.remote
    if remote.startswith("/"):
        return remote

    async def look(link: Link) -> str:
        done = await link.run(["sh", "-c", _ASK_HOME])
        return done.text.splitlines()[-1] + remote[1:]

    return asyncio.run(_with_link(settings, prompter, look))


async def _with_link(
    settings: Settings, prompter: Prompter | None, look: Callable[[Link], Awaitable[str]]
) -> str:
    with tempfile.TemporaryDirectory(prefix="tk-") as directory:
        link = OpenSSHLink(link_options(settings), control_dir=Path(directory), prompter=prompter)
        try:
            await link.open()
            return await look(link)
        finally:
            await link.close()
