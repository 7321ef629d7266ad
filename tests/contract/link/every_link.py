"""Every kind of link, each with a far side of real parts, behind one small interface."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from link_rig import Cluster, cut

from tests.support.kube_rig import kubectl
from tunnelkit.lab.kube.stand_in import StandIn
from tunnelkit.link.base import ByteStream, Link
from tunnelkit.link.kube.link import KubectlExecLink, ProxyLink
from tunnelkit.link.kube.target import KubeTarget
from tunnelkit.link.openssh.link import OpenSSHLink
from tunnelkit.link.options import LinkOptions
from tunnelkit.link.paramiko_link.link import ParamikoLink
from tunnelkit.model import Completed, Hop

POD = "pod-0"
SSH = {"openssh": OpenSSHLink, "paramiko": ParamikoLink}
KUBE = {"kubectl-proxy": ProxyLink, "kubectl-exec": KubectlExecLink}
#: Each with the node that the commands go to.
PODS = [(kind, POD) for kind in KUBE]
EVERY = [("openssh", None), ("paramiko", None), *PODS]
#: With an ssh link's second kind of host, too.
EVERY_HOST = [*EVERY, ("openssh", "node1"), ("paramiko", "node1")]


@dataclass
class Far:
    """One link, and the place at its far end that commands go to."""

    make: Callable[[], Link]
    node: str | None
    link: Link
    cut: Callable[[Link], None]
    made: list[Link] = field(default_factory=list)

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30.0
    ) -> Completed:
        return await self.link.run(argv, node=self.node, stdin=stdin, timeout_s=timeout_s)

    async def open_stream(self, argv: Sequence[str]) -> ByteStream:
        return await self.link.open_stream(argv, node=self.node)

    def another(self) -> Link:
        """A further link of the same kind, not open yet."""
        self.made.append(self.make())
        return self.made[-1]


@contextlib.contextmanager
def over_ssh(kind: str, node: str | None, home: Path) -> Iterator[Far]:
    cluster = Cluster(home)
    try:
        cluster.start()

        def make() -> Link:
            options = LinkOptions(
                login=Hop("login"), ssh_config=cluster.ssh_config, connect_timeout_s=5
            )
            return SSH[kind](options, control_dir=home / "ctl")

        yield Far(make, node, make(), cut)
    finally:
        cluster.stop()


@contextlib.contextmanager
def to_a_pod(kind: str, node: str | None, home: Path, cluster: StandIn) -> Iterator[Far]:
    target = KubeTarget(cluster.context, cluster.namespace, kubectl=kubectl())

    def make() -> Link:
        return KUBE[kind](target, home / "ctl")

    def break_off(link: Link) -> None:
        if isinstance(link, ProxyLink):
            child = link.proxy._current._child
            assert child is not None
            os.kill(child.pid, signal.SIGKILL)
        else:
            cluster.ask("POST", "/standin/cut", {})

    yield Far(make, node, make(), break_off)


async def opened(far: Far) -> AsyncIterator[Far]:
    await far.link.open()
    try:
        yield far
    finally:
        for link in (far.link, *far.made):
            await link.close()
