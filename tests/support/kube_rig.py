"""A kubectl and the stand-in for a Kubernetes cluster, for tests."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast

import pytest

from tests.support.ports import free_port
from tests.support.tkrig import PROGRAM, TAG, Project, made_project
from tunnelkit.lab import LabInfo
from tunnelkit.lab.kube.stand_in import StandIn


def kubectl() -> str:
    """The path of a kubectl; skips where there is none. The environment's own comes first."""
    own = str(Path(sys.executable).parent)
    found = shutil.which("kubectl", path=f"{own}:{os.environ.get('PATH', '')}")
    if found is None:
        pytest.skip("kubectl is needed: scripts/setup --tests")
    return found


@contextlib.contextmanager
def running_stand_in() -> Iterator[StandIn]:
    """A stand-in whose kubeconfig is KUBECONFIG; kubectl keeps its cache there, too."""
    kubectl()
    # A short path: sockets lie below it.
    with tempfile.TemporaryDirectory(prefix="tkk", dir="/tmp") as name:
        cluster = StandIn(Path(name))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KUBECONFIG", str(cluster.kubeconfig))
            patch.setenv("KUBECACHEDIR", str(cluster.root / "cache"))
            try:
                cluster.start()
                yield cluster
            finally:
                cluster.stop()


class Pods(Protocol):
    """A namespace of a cluster; `root` is a directory of the test's own."""

    @property
    def context(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def root(self) -> Path: ...


@dataclass(frozen=True)
class _NoLab:
    """What `Project` asks of a lab, where there is none."""

    dir: Path
    home: Path
    enter: tuple[str, ...] = ()
    scheduler: str = "none"


class KubeProject(Project):
    """A project whose cluster is the stand-in, or another one, and its node a pod."""

    node_environ: ClassVar[dict[str, str]] = {}

    def __init__(self, cluster: Pods, base: Path, *, remote: str = "~/work") -> None:
        self.cluster = cluster
        self.base = base
        self.lab = cast(LabInfo, _NoLab(cluster.root, cluster.root))
        self.port = free_port()
        self.dir = base / f"proj-{secrets.token_hex(3)}"
        self.env = self.environ()
        self._remote = remote
        self.pod_dir = cluster.root
        self._terminals = []
        self._clients = []
        self._far_tags = set()
        for path in (self.dir, base / "h"):
            path.mkdir()
        self.configure()
        self.write("2.py", PROGRAM)

    def environ(self) -> dict[str, str]:
        """The environment of its `tk`."""
        return {
            **os.environ,
            TAG: str(self.base),
            "HOME": str(self.base / "h"),
            "TK_STATE_DIR": str(self.base / "s"),
            "TK_RUNTIME_DIR": str(self.base),
            "TK_CONFIG_DIR": str(self.base / "f"),
            "XDG_CACHE_HOME": str(self.base / "c"),
            "PYTHONUNBUFFERED": "1",
        }

    def kubectl(self) -> str:
        """The program that its `tk` reaches the cluster with."""
        return kubectl()

    def configure(self, extra: str = "") -> None:
        where = f'context = "{self.cluster.context}"\nnamespace = "{self.cluster.namespace}"\n'
        text = (
            f'[cluster]\n{where}kubectl = "{self.kubectl()}"\n[mirror]\nremote = "{self._remote}"\n'
        )
        (self.dir / "tunnelkit.toml").write_text(f"{text}[debug]\nport = {self.port}\n{extra}")
        tk = Path(sys.executable).parent / "tk"
        words = [str(tk), "trust", "--yes"]
        subprocess.run(words, cwd=self.dir, env=self.env, capture_output=True, check=True)

    async def up(self, *args: str) -> dict[str, Any]:
        status = await super().up(*args)
        self.pod_dir = self.cluster.root / "pods" / status["node"]
        return status

    def remote(self, name: str = "") -> Path:
        return self.pod_dir / self._remote.replace("~", "home") / name

    async def jobs(self) -> list[str]:
        return []


def kill_session(project: KubeProject) -> None:
    """Kill daemon and proxy, as a laptop that ran out of memory would."""
    for one in project.laptop_processes():
        if "daemon" in " ".join(one.argv) or "proxy" in one.argv:
            os.kill(one.pid, signal.SIGKILL)


@pytest.fixture(name="pods")
def dev_pod() -> Iterator[StandIn]:
    """A stand-in of the test's own, with the pod ml-dev-env."""
    with running_stand_in() as cluster:
        cluster.make_pod("ml-dev-env")
        yield cluster


@pytest.fixture(name="project")
async def dev_project(pods: StandIn) -> AsyncIterator[KubeProject]:
    """A project on it."""
    async with made_project(lambda base: KubeProject(pods, base)) as made:
        yield made
