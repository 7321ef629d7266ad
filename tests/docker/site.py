"""The site of docker-compose.test.yml: its keys, its start and end, and what can befall it."""

from __future__ import annotations

import asyncio
import random
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from tests.docker.engine import Docker
from tests.support.logins import Log
from tests.support.ports import free_port
from tests.support.processes import until
from tests.support.tkrig import PATIENCE_S, Project
from tunnelkit.lab import LabInfo

ROOT = Path(__file__).parents[2]
HOSTS = ("bastion", "login", "node1", "node2")
USER = "ann"


class Site:
    """A running site. `info` is how tests of labs know it; what lies below `base` is the
    laptop's side: its ssh_config, its key and a profile."""

    def __init__(self, docker: Docker, base: Path) -> None:
        self._docker = docker
        self._base = base
        self.name = f"tktest{secrets.token_hex(4)}"
        self.port = free_port()
        self._ids: dict[str, str] = {}
        debugpy = find_spec("debugpy")
        assert debugpy is not None and debugpy.origin is not None
        self._environ = {
            "COMPOSE_PROJECT_NAME": self.name,
            "TK_DOCKER_DIR": str(base / "site"),
            "TK_DOCKER_DEBUGPY": str(Path(debugpy.origin).parent),
            "TK_DOCKER_PORT": str(self.port),
            "TK_DOCKER_NET": f"10.213.{random.randrange(8, 250)}",
        }
        self.info = LabInfo(
            dir=base,
            flavour="docker",
            scheduler="slurm",
            ssh_config=base / "ssh_config",
            profile=base / "config" / "clusters" / "lab.toml",
            home=Path("/home", USER),
            nodes=("node1", "node2"),
            enter=(),
            notes=(),
        )

    # -- its life -------------------------------------------------------------

    def up(self) -> None:
        """Start all containers (building their image if need be) and wait for ssh and Slurm."""
        _write_keys(self._base, self._base / "site")
        _write_laptop(self._base, self.info, self.port)
        self._compose("build", timeout_s=500.0)
        self._compose("up", "--detach", timeout_s=120.0)
        self._ids = {host: self._compose("ps", "--quiet", host).strip() for host in HOSTS}
        self.wait_idle("node1", "node2")
        argv = ["ssh", "-F", str(self.info.ssh_config), "-o", "ConnectTimeout=20", "--", "login"]
        subprocess.run([*argv, "true"], stdin=subprocess.DEVNULL, check=True)

    def down(self) -> None:
        """Remove the containers, networks and volumes; the image stays."""
        self._compose("down", "--volumes", "--remove-orphans", timeout_s=120.0)

    def left(self) -> list[str]:
        """What Docker still has of it."""
        label = f"label=com.docker.compose.project={self.name}"
        found = []
        for kind, words in (("container", ["--all"]), ("network", []), ("volume", [])):
            out = self._docker.run(kind, "ls", *words, "--quiet", "--filter", label)
            found += [f"{kind} {line}" for line in out.split()]
        return found

    def wait_idle(self, *nodes: str) -> None:
        """Wait until Slurm has work for these nodes. Not asked by ssh: logins are counted."""
        said = ""

        def idle() -> bool:
            nonlocal said
            argv = self.on_argv("login", "sinfo", "-h", "-N", "-o", "%N %T")
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            said = done.stdout + done.stderr
            return all(f"{node} idle" in said.splitlines() for node in nodes)

        try:
            until(idle, f"{' and '.join(nodes)} idle", 90.0)
        except AssertionError:
            logs = self._compose("logs", "--tail=20")
            raise AssertionError(f"the site never was ready: {said}\n{logs}") from None

    # -- looking into it ------------------------------------------------------

    def on(self, host: str, *argv: str, as_root: bool = False) -> str:
        """Run a program on a host, without ssh; what it printed."""
        user = "root" if as_root else USER
        return self._docker.run("exec", "--user", user, self._ids[host], *argv)

    def on_argv(self, host: str, *argv: str, as_root: bool = False) -> list[str]:
        """The argv of that."""
        user = "root" if as_root else USER
        return [*self._docker.docker, "exec", "--user", user, self._ids[host], *argv]

    def address(self, host: str, network: str) -> str:
        """That host's address in one of the site's networks."""
        template = f'{{{{(index .NetworkSettings.Networks "{self.name}_{network}").IPAddress}}}}'
        return self._docker.run("inspect", "--format", template, self._ids[host]).strip()

    def subnet(self, network: str) -> str:
        """The addresses of one of the site's networks, as ADDRESS/BITS."""
        template = "{{(index .IPAM.Config 0).Subnet}}"
        name = f"{self.name}_{network}"
        return self._docker.run("network", "inspect", "--format", template, name).strip()

    def published(self) -> dict[str, str]:
        """Where this machine listens for which host."""
        told = {host: self._docker.run("port", self._ids[host]) for host in HOSTS}
        return {host: text.split("-> ")[-1].strip() for host, text in told.items() if text}

    def running_nodes(self) -> list[str]:
        """The compute nodes that are neither killed nor paused."""
        out = self._docker.run("ps", "--no-trunc", "--quiet", "--filter", "status=running")
        return [node for node in self.info.nodes if self._ids[node] in out.split()]

    def logins(self) -> list[Log]:
        """The logs of all its sshds, from now on."""
        return [Log(host, partial(self._sshd_said, host)) for host in HOSTS]

    def _sshd_said(self, host: str) -> str:
        # sshd writes to stderr, which `docker logs` passes on as such.
        argv = [*self._docker.docker, "logs", self._ids[host]]
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=True)
        return done.stderr

    # -- faults ---------------------------------------------------------------

    def cut(self) -> None:
        """Pull login's cable to the bastion."""
        self._docker.run("network", "disconnect", f"{self.name}_campus", self._ids["login"])

    def mend(self) -> None:
        """And plug it in again; Docker may give it another address, as DHCP would."""
        network = f"{self.name}_campus"
        self._docker.run("network", "connect", "--alias", "login", network, self._ids["login"])

    def do(self, what: str, host: str) -> None:
        """`docker pause`, `unpause`, `kill`, `start` or `restart` of one host."""
        self._docker.run(what, self._ids[host])

    def _compose(self, *words: str, timeout_s: float = 60.0) -> str:
        argv = ("-f", str(ROOT / "docker-compose.test.yml"), *words)
        return self._docker.run_compose(*argv, environ=self._environ, timeout_s=timeout_s)


@contextmanager
def running_site(docker: Docker) -> Iterator[Site]:
    """A site that is gone afterwards, and has left nothing in the engine."""
    base = Path(tempfile.mkdtemp(prefix="tks", dir="/tmp"))
    site = Site(docker, base)
    try:
        try:
            site.up()
            yield site
        finally:
            site.down()
        assert not site.left()
    finally:
        shutil.rmtree(base)


# -- keys and configuration ----------------------------------------------------------------------


def _write_keys(laptop: Path, cluster: Path) -> None:
    """Make every key: the person's own in `laptop`, what the containers get in `cluster`."""
    cluster.mkdir(mode=0o755)
    public = {"laptop": _make_key(laptop / "id"), "cluster": _make_key(cluster / "cluster")}
    (cluster / "authorized_keys").write_text("\n".join(public.values()) + "\n")
    known = [f"{host} {_make_key(cluster / f'host_{host}')}\n" for host in HOSTS]
    (cluster / "ssh_known_hosts").write_text("".join(known))
    (cluster / "munge.key").write_bytes(secrets.token_bytes(128))


def _make_key(path: Path) -> str:
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)]
    subprocess.run(argv, capture_output=True, check=True)
    return path.with_suffix(".pub").read_text().strip()


def _write_laptop(base: Path, info: LabInfo, port: int) -> None:
    """The laptop's ssh_config and profile: the bastion is all that it can dial."""
    info.ssh_config.write_text(f"""\
Host bastion
  HostName 127.0.0.1
  Port {port}
  HostKeyAlias bastion
Host login
  ProxyJump bastion
Host node1 node2
  ProxyJump login
Host *
  User {USER}
  IdentityFile {base / "id"}
  IdentitiesOnly yes
  IdentityAgent none
  BatchMode yes
  UserKnownHostsFile {base / "site" / "ssh_known_hosts"}
  GlobalKnownHostsFile none
  StrictHostKeyChecking yes
""")
    info.profile.parent.mkdir(parents=True)
    info.profile.write_text(f"""\
[cluster]
login = "login"
ssh_config = "{info.ssh_config}"
scheduler = "slurm"
""")


class SiteProject(Project):
    """A project whose cluster is a site."""

    def __init__(self, site: Site, base: Path) -> None:
        super().__init__(site.info, base)
        self.site = site

    def on_login(self, *argv: str) -> list[str]:
        return self.site.on_argv("login", *argv)

    async def state(self, wanted: str) -> None:
        """Wait until the session says that it is in that state."""
        async with asyncio.timeout(PATIENCE_S):
            while (await self.status())["state"] != wanted:
                await asyncio.sleep(0.2)

    async def left(self) -> list[str]:
        # Sockets of agents lie on the nodes' own disks.
        find = ("sh", "-c", f"find /tmp -path '*/tk-{self.dir.name}-*' -type s")
        found = [f"{node}: {self.site.on(node, *find)}" for node in self.site.running_nodes()]
        return [*await super().left(), *(line for line in found if not line.endswith(": "))]
