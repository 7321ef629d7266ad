"""A site with OpenPBS: a laptop that reaches only login, and two nodes behind it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tests.lab_fixtures import why_no_lab
from tests.support.openpbs import pbs
from tests.support.openpbs.host import Host
from tests.support.processes import until
from tunnelkit.lab import LabInfo, network

HOSTS = ("login", "node1", "node2")
USER, _UID = "ann", 4217


def why_no_openpbs() -> str | None:
    """Why this machine can't run such a site, or None if it can."""
    if not (pbs.exec_dir() / "sbin" / "pbs_server").exists():
        return f"OpenPBS is not installed in {pbs.exec_dir()} (scripts/openpbs builds it)"
    if reason := why_no_lab(netns=True):
        return reason
    if not shutil.which("initdb", path=os.pathsep.join(_postgres_bins())):
        return "PostgreSQL is not installed, which OpenPBS keeps its jobs in"
    return None


def _postgres_bins() -> list[str]:
    return [str(path) for path in Path("/usr/lib/postgresql").glob("*/bin")]


class Site:
    """A running site. `info` is how tests of labs know it; `home` is the person's home
    directory as this machine sees it (on the hosts it is /home/ann)."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._network = network.netns(base)
        self.home = base / "home" / USER
        self.hosts: dict[str, Host] = {}
        for name in HOSTS:
            enter = self._network.enter_namespace(name)
            own = ("/etc", "/var", "/usr/local", str(pbs.exec_dir()))
            self.hosts[name] = Host(name, base / name, enter, base / "home", own)
        self.pbs = pbs.Pbs(self.hosts)
        self.info = LabInfo(
            dir=base, flavour="openpbs", scheduler="pbs", ssh_config=base / "ssh_config",
            profile=base / "config" / "clusters" / "lab.toml", home=Path("/home", USER),
            nodes=("node1", "node2"), enter=self._network.enter_namespace("laptop"), notes=(),
        )  # fmt: skip

    # -- its life -------------------------------------------------------------

    def up(self) -> None:
        """Make the hosts and start everything on them."""
        self._make_home()
        network.make_namespaces(self._network)
        keys = self._make_keys()
        for name, host in self.hosts.items():
            (self._base / name).mkdir(mode=0o755)
            host.start({**self._files(name, keys), **pbs.files(name)})
            host.run("/usr/sbin/sshd")
        self._write_laptop()
        self.pbs.start()

    def down(self) -> None:
        """End the hosts and all that runs there."""
        for host in self.hosts.values():
            host.stop()
        network.remove_namespaces(self._network)

    def _make_home(self) -> None:
        (self._base / "home").mkdir(mode=0o755)
        self.home.mkdir(mode=0o700)
        (self.home / ".ssh").mkdir(mode=0o700)

    def _make_keys(self) -> dict[str, str]:
        """Make every key. Name -> public key."""
        keys = self._base / "keys"
        keys.mkdir()
        names = ("laptop", "cluster", *HOSTS)
        public = {name: _make_key(keys / name) for name in names}
        # The laptop opens all doors; the cluster's own key leads from host to host.
        (self.home / ".ssh" / "id_ed25519").write_bytes((keys / "cluster").read_bytes())
        known = "".join(f"{host},{self._network.address[host]} {public[host]}\n" for host in HOSTS)
        (self.home / ".ssh" / "known_hosts").write_text(known)
        for path in (self.home, *self.home.rglob("*")):
            os.chown(path, _UID, _UID)
            path.chmod(0o700 if path.is_dir() else 0o600)
        outside = known.replace(self._network.address["login"], self._network.proxy[0])
        (self._base / "known_hosts").write_text(outside)
        return public

    def _files(self, host: str, keys: dict[str, str]) -> dict[str, str]:
        """What makes a host of it."""
        person = f"{USER}:x:{_UID}:{_UID}:Ann:/home/{USER}:/bin/bash\n"
        debugpy = find_spec("debugpy")
        assert debugpy is not None and debugpy.origin is not None
        _copy_package(Path(debugpy.origin).parent, self.hosts[host].layer("/usr/local"))
        return {
            "/etc/passwd": Path("/etc/passwd").read_text() + person,
            "/etc/group": Path("/etc/group").read_text() + f"{USER}:x:{_UID}:\n",
            # sshd lets nobody in whose password is locked; this one is no password's hash.
            "/etc/shadow": Path("/etc/shadow").read_text() + f"{USER}:*:19000:0:99999:7:::\n",
            "/etc/hosts": self._network.hosts_text(),
            "/etc/hostname": f"{host}\n",
            "/etc/resolv.conf": "",
            "/etc/ssh/tk_host_key": (self._base / "keys" / host).read_text(),
            "/etc/ssh/authorized": f"{keys['laptop']}\n{keys['cluster']}\n",
            "/etc/ssh/sshd_config": _SSHD,
            "/etc/ssh/ssh_config": "",
        }

    def _write_laptop(self) -> None:
        """The laptop's ssh_config and profile."""
        base, where = self._base, self._network
        self.info.ssh_config.write_text(f"""\
Host login
  HostName {where.proxy[0]}
Host node1 node2
  ProxyJump login
Host *
  User {USER}
  IdentityFile {base / "keys" / "laptop"}
  IdentitiesOnly yes
  IdentityAgent none
  BatchMode yes
  UserKnownHostsFile {base / "known_hosts"}
  GlobalKnownHostsFile none
  StrictHostKeyChecking yes
""")
        self.info.profile.parent.mkdir(parents=True)
        text = f'[cluster]\nlogin = "login"\nssh_config = "{self.info.ssh_config}"\n'
        self.info.profile.write_text(text + 'scheduler = "auto"\nnode_ssh = "auto"\n')

    # -- what a site may be like ----------------------------------------------

    def let_in(self, node: str, *keys: str) -> None:
        """Who may ssh to that node: `laptop`, `cluster`, both or nobody."""
        lines = [(self._base / "keys" / f"{key}.pub").read_text() for key in keys]
        self.hosts[node].write("/etc/ssh/authorized", "".join(lines))

    @contextmanager
    def lost_reply(self) -> Iterator[None]:
        """The first qsub in this block submits, but is cut off before it prints the job's id."""
        login, program = self.hosts["login"], f"{pbs.exec_dir()}/bin/qsub"
        login.run("mv", program, f"{program}.real")
        login.write(program, _CUT_OFF)
        # Who submits puts the real one back.
        login.run("chmod", "777", f"{pbs.exec_dir()}/bin", program)
        try:
            yield
        finally:
            login.run("sh", "-c", f"[ ! -e {program}.real ] || mv {program}.real {program}")
            login.run("chmod", "755", f"{pbs.exec_dir()}/bin")

    def heal(self) -> None:
        """As it was: the server runs, everybody may ssh to the nodes."""
        self.pbs.start_server()
        for node in self.info.nodes:
            self.let_in(node, "laptop", "cluster")

    def on(self, host: str, *argv: str) -> str:
        """Run a program as the person, in a login shell's environment; what it printed."""
        return self.hosts[host].run(*argv, user=USER)


_CUT_OFF = """\
#!/bin/sh
mv -f "$0.real" "$0" && "$0" "$@" >/dev/null
echo "qsub: Communication failure." >&2
exit 1
"""

_SSHD = """\
HostKey /etc/ssh/tk_host_key
AuthorizedKeysFile /etc/ssh/authorized
AuthenticationMethods publickey
PermitRootLogin no
UsePAM no
UseDNS no
PrintLastLog no
PrintMotd no
MaxStartups 200:30:400
Subsystem sftp internal-sftp
"""


def _make_key(path: Path) -> str:
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)]
    subprocess.run(argv, capture_output=True, check=True)
    return " ".join(path.with_suffix(".pub").read_text().split()[:2])


def _copy_package(package: Path, layer: Path) -> None:
    """Into what will be the host's /usr/local, for its own Python to find."""
    version = subprocess.run(
        ["/usr/bin/python3", "-c", "import sys; print('python%d.%d' % sys.version_info[:2])"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    where = layer / "upper" / "lib" / version / "dist-packages"
    shutil.copytree(package, where / package.name, ignore=shutil.ignore_patterns("__pycache__"))


@contextmanager
def running_site() -> Iterator[Site]:
    """A site that is gone afterwards."""
    base = Path(tempfile.mkdtemp(prefix="tko", dir="/tmp"))
    base.chmod(0o755)
    site = Site(base)
    try:
        try:
            site.up()
            yield site
        finally:
            site.down()
    finally:
        until(lambda: _removed(base), "the site's files are gone")


def _removed(base: Path) -> bool:
    shutil.rmtree(base, ignore_errors=True)
    return not base.exists()
