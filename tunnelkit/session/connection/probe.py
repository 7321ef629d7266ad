"""Short queries of a cluster, outside of any session: for `tk init` and `tk vscode`."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from tunnelkit.config.schema import ClusterSettings, Settings
from tunnelkit.errors import TunnelkitError
from tunnelkit.link.base import LinkSetup, Prompter
from tunnelkit.session.backends.registry import choose
from tunnelkit.session.runtime import control_client
from tunnelkit.session.runtime.control_calls import Status
from tunnelkit.session.runtime.paths import patient_logins, session_paths

_POD_HOME = "/tk"
_ASK_HOME = r"""printf '%s\n' "$HOME" """


@dataclass(frozen=True)
class ClusterProbe:
    """Result of a short query of a login host."""

    scheduler: str
    home: str


def detect_scheduler(settings: Settings, prompter: Prompter | None = None) -> str:
    """Connect to the login host and return its scheduler's name. Raises ConnectionFailed."""
    return _probe(settings, prompter).scheduler


def remote_root(settings: Settings, prompter: Prompter | None = None) -> str:
    """Return the mirror's absolute directory on the cluster.

    A live session is asked first, as it needs no new connection. Raises ConnectionFailed.
    """
    remote = settings.mirror.remote
    if remote.startswith("/"):
        return remote
    known = asyncio.run(_ask_session(settings))
    if known is None and settings.cluster.is_kubernetes:
        # The home of tk's own pods. Of others it shows at `tk up`: the session then corrects what
        # an editor says.
        return _POD_HOME + remote[1:]
    return known or _probe(settings, prompter).home + remote[1:]


async def _ask_session(settings: Settings) -> str | None:
    try:
        async with control_client.connect(session_paths(settings.project_dir)) as session:
            mirror = (await session.call(Status()))["mirror"]
    except TunnelkitError:
        return None
    return str(mirror["remote"]) if mirror and mirror["remote"] else None


@dataclass(frozen=True)
class _Target:
    """The cluster to ask; equal to another one if both are reached alike."""

    cluster: ClusterSettings
    prompter: Prompter | None
    settings: Settings = field(compare=False)


def _probe(settings: Settings, prompter: Prompter | None) -> ClusterProbe:
    given = settings.cluster
    cluster = ClusterSettings(given.login, given.jump, given.ssh_config, given.link)
    return _ask_once(_Target(cluster, prompter, replace(settings, cluster=cluster)))


@lru_cache(maxsize=1)
def _ask_once(target: _Target) -> ClusterProbe:
    """Connect once, and so prompt once, for all that one command asks."""
    backend = choose(target.settings)

    async def ask() -> ClusterProbe:
        with tempfile.TemporaryDirectory(prefix="tk-") as directory:
            setup = LinkSetup(Path(directory), target.prompter, patient_logins=patient_logins())
            link = backend.make_link(target.settings, setup)
            try:
                await link.open()
                scheduler = await backend.detect(link)
                done = await link.run(["sh", "-c", _ASK_HOME])
                return ClusterProbe(scheduler, done.text.splitlines()[-1])
            finally:
                await link.close()

    return asyncio.run(ask())
