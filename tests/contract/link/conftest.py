from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from link_rig import Cluster, find_sshd

from tunnelkit.link.openssh.link import OpenSSHLink
from tunnelkit.link.options import LinkOptions
from tunnelkit.link.paramiko_link.link import ParamikoLink
from tunnelkit.model import Hop

BACKENDS = {"openssh": OpenSSHLink, "paramiko": ParamikoLink}


@pytest.fixture(autouse=True)
def _needs_ssh() -> None:
    if find_sshd() is None or shutil.which("ssh") is None:
        pytest.skip("openssh-server and openssh-client are needed")


@pytest.fixture
def home() -> Iterator[Path]:
    """A short path: unix sockets hold about 100 bytes."""
    with tempfile.TemporaryDirectory(prefix="tklink-", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
def sshd_options() -> dict[str, list[str]]:
    """Extra sshd_config lines by host; override in a test by `parametrize`."""
    return {}


@pytest.fixture
def cluster(home: Path, sshd_options: dict[str, list[str]]) -> Iterator[Cluster]:
    cluster = Cluster(home, sshd_options)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


Connect = Callable[..., Awaitable[OpenSSHLink | ParamikoLink]]


@pytest.fixture(params=list(BACKENDS))
async def connect(
    request: pytest.FixtureRequest, cluster: Cluster
) -> AsyncIterator[Callable[..., Any]]:
    """Make (and by default open) links to the cluster; all are closed at the end."""
    backend = BACKENDS[request.param]
    links: list[OpenSSHLink | ParamikoLink] = []

    async def make(
        *,
        opened: bool = True,
        control: str = "ctl",
        prompter: Any = None,
        notice: Callable[[str], None] | None = None,
        attended: Callable[[], bool] = lambda: True,
        asks_nodes: Callable[[], bool] = lambda: True,
        patient_logins: Path | None = None,
        **changes: Any,
    ) -> OpenSSHLink | ParamikoLink:
        options = LinkOptions(
            login=Hop("login"), ssh_config=cluster.ssh_config, connect_timeout_s=5
        )
        # The longer way first, so that what the tests ask of forwards is asked of it.
        changes.setdefault("node_routes", ("chain", "node"))
        more = {} if backend is ParamikoLink else {"patient_logins": patient_logins}
        link = backend(
            replace(options, **changes),
            control_dir=cluster.home / control,
            prompter=prompter,
            attended=attended,
            asks_nodes=asks_nodes,
            notice=notice,
            **more,
        )
        links.append(link)
        if opened:
            await link.open()
        return link

    yield make
    for link in links:
        await link.close()
