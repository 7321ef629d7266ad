"""Paths of a lab, and the data types that its users see."""

from __future__ import annotations

import os
import stat
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import platformdirs

from tunnelkit.errors import ConfigError, UsageError

LOGIN = "login"
NODES = ("node1", "node2")
HOSTS = (LOGIN, *NODES)

#: Environment variable that every process of a lab carries, with the lab's directory as value.
TAG = "TK_LAB"

#: Of each node, as Slurm counts them.
CPUS = 4
MOST_CPUS = 1024

# A Unix socket's path may hold 107 bytes; the longest one below the lab's
# directory is slurmstepd's, s/node1/node1_4294967295.4294967295.
_DIR_LIMIT_BYTES = 60


@dataclass(frozen=True)
class LabInfo:
    """A running lab, for its users.

    enter: argv prefix that runs a program on the lab's laptop; empty where that is this machine.
    notes: what this lab can't show, one sentence each. cpus: of each node, as Slurm counts them.
    memory_limits: Slurm kills a job that uses more memory than it asked for.
    """

    dir: Path
    flavour: str
    scheduler: str
    ssh_config: Path
    profile: Path
    home: Path
    nodes: tuple[str, ...]
    enter: tuple[str, ...]
    notes: tuple[str, ...]
    cpus: int = CPUS
    memory_limits: bool = False

    def to_json(self) -> dict[str, object]:
        """Return the fields as JSON types, for `from_json`."""
        return {k: str(v) if isinstance(v, Path) else v for k, v in asdict(self).items()}

    @staticmethod
    def from_json(data: dict[str, Any]) -> LabInfo:
        """Rebuild the object from `to_json`. Raises KeyError if a field is missing."""
        return LabInfo(
            dir=Path(data["dir"]),
            flavour=data["flavour"],
            scheduler=data["scheduler"],
            ssh_config=Path(data["ssh_config"]),
            profile=Path(data["profile"]),
            home=Path(data["home"]),
            nodes=tuple(data["nodes"]),
            enter=tuple(data["enter"]),
            notes=tuple(data["notes"]),
            cpus=data.get("cpus", CPUS),
            memory_limits=data.get("memory_limits", False),
        )


@dataclass(frozen=True)
class DaemonStatus:
    """One of the lab's daemons: `alive` is about this very process, not one of the same pid."""

    name: str
    pid: int
    alive: bool
    log: Path


@dataclass(frozen=True)
class LabStatus:
    """The state of a lab.

    nodes: state by node from sinfo; empty without Slurm or if slurmctld does not answer.
    link: the proxy's state (up, cut, reset), or unknown."""

    info: LabInfo
    daemons: tuple[DaemonStatus, ...]
    nodes: dict[str, str]
    link: str
    rtt_ms: float

    @property
    def healthy(self) -> bool:
        """Every daemon lives, and Slurm (if any) answers for every node."""
        nodes_known = self.info.scheduler == "none" or set(self.nodes) == set(self.info.nodes)
        return nodes_known and all(daemon.alive for daemon in self.daemons)

    def to_json(self) -> dict[str, object]:
        """Return the status as JSON types, for `tk lab status --json`."""
        return {
            "healthy": self.healthy,
            "info": self.info.to_json(),
            "daemons": [asdict(d) | {"log": str(d.log)} for d in self.daemons],
            "nodes": self.nodes,
            "link": self.link,
            "rtt_ms": self.rtt_ms,
        }


@dataclass(frozen=True)
class Layout:
    """The paths inside a lab's directory. Names are short: some of them hold Unix sockets."""

    dir: Path

    @property
    def state(self) -> Path:
        """The record of the lab, lab.json."""
        return self.dir / "lab.json"

    @property
    def home(self) -> Path:
        """Home directory of the lab's user on every host."""
        return self.dir / "home"

    @property
    def bin(self) -> Path:
        """Programs that only the lab's hosts find on PATH."""
        return self.dir / "bin"

    @property
    def ssh(self) -> Path:
        """Keys and sshd configurations."""
        return self.dir / "ssh"

    @property
    def slurm(self) -> Path:
        """Configuration of Slurm."""
        return self.dir / "etc"

    @property
    def spool(self) -> Path:
        """Spool directories of Slurm's daemons."""
        return self.dir / "s"

    @property
    def ssh_config(self) -> Path:
        """ssh_config of the lab's laptop."""
        return self.dir / "ssh_config"

    @property
    def slurm_conf(self) -> Path:
        """slurm.conf."""
        return self.slurm / "slurm.conf"

    @property
    def hosts(self) -> Path:
        """/etc/hosts of the lab's hosts."""
        return self.slurm / "hosts"

    @property
    def munge_socket(self) -> Path:
        """Unix socket of munged."""
        return self.dir / "munge.sock"

    @property
    def supervisor_socket(self) -> Path:
        """Unix socket of the supervisor."""
        return self.dir / "sup.sock"

    @property
    def proxy_socket(self) -> Path:
        """Unix socket that controls the proxy."""
        return self.dir / "proxy.sock"

    def tmp(self, host: str) -> Path:
        """That host's TMPDIR: what real nodes don't share, the lab's don't either."""
        return self.dir / "t" / host

    def log(self, daemon: str) -> Path:
        """Log file of a daemon, by its name."""
        return self.dir / "log" / f"{daemon}.log"

    def make(self) -> None:
        """Make every directory, 0700."""
        wanted = [self.home, self.bin, self.ssh, self.slurm, self.spool, self.dir / "log"]
        for path in [*wanted, self.dir / "t", *(self.tmp(host) for host in HOSTS)]:
            path.mkdir(mode=0o700, exist_ok=True)


def write_private(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Replace `path` by `text` in one step; never readable by others in between."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        os.fchmod(fd, mode)
        file.write(text)
    temporary.replace(path)


def resolve_dir(given: Path | None) -> Path:
    """The lab's directory: the argument, else TK_LAB_DIR, else a short one of the user's own."""
    if given is None:
        named = os.environ.get("TK_LAB_DIR")
        given = Path(named).expanduser() if named else _default_dir()
    path = Path(os.path.abspath(given))
    text = str(path)
    if len(os.fsencode(path)) > _DIR_LIMIT_BYTES or not text.isascii() or not text.isprintable():
        problem = "too long" if text.isascii() else "not plain ASCII"
    elif set(text) & set(" \"'\\%,#$`;&|<>()*?[]{}!~:="):
        problem = "holding a character that ssh, Slurm or a shell would read otherwise"
    else:
        return path
    raise UsageError(
        f"the lab's directory {text!r} is {problem}",
        cause=f"it holds Unix sockets and stands in configuration files (limit {_DIR_LIMIT_BYTES})",
        hint="name another with --dir or TK_LAB_DIR, such as /tmp/lab",
    )


def _default_dir() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and _usable(Path(runtime)):
        return Path(runtime) / "tk-lab"
    return Path(tempfile.gettempdir()) / f"tk-lab-{os.getuid()}"


def _usable(path: Path) -> bool:
    """Ours alone, and programs may run from it (slurmd runs batch scripts from its spool)."""
    try:
        found = path.stat()
        executable = not os.statvfs(path).f_flag & os.ST_NOEXEC
    except OSError:
        return False
    return found.st_uid == os.getuid() and not found.st_mode & 0o077 and executable


def is_ours(path: Path) -> bool:
    """True if it is a directory of this user's that nobody else can write to.

    A lab's default place is in /tmp: what another user has put there must not be believed."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def claim_dir(path: Path) -> None:
    """Make the lab's directory, or check that an existing one is empty and ours alone.

    Raises UsageError for a directory of someone else or with something in it.
    """
    try:
        path.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise UsageError(
                f"{path} is not a directory of yours", hint="name another with --dir"
            ) from None
        if any(path.iterdir()):
            raise UsageError(
                f"{path} is neither empty nor a lab's", hint="name another with --dir"
            ) from None
        path.chmod(0o700)
    except OSError as error:
        raise UsageError(
            f"can't make the lab's directory {path}", cause=error.strerror, hint="see --dir"
        ) from None


def profile_path() -> Path:
    """The file of the cluster profile `lab` in the user's configuration directory."""
    named = os.environ.get("TK_CONFIG_DIR")
    base = Path(named) if named else platformdirs.user_config_path("tunnelkit")
    return Path(os.path.abspath(base)) / "clusters" / "lab.toml"


def write_profile(info: LabInfo) -> None:
    """Write the profile `lab`. Raises ConfigError if the user has a file of that name."""
    if info.profile.exists() and not _is_ours(info.profile, None):
        raise ConfigError(
            f"{info.profile} was not written by `tk lab`",
            hint="rename it: the lab needs that profile's name",
        )
    text = f"""{_PROFILE_MARK} {info.dir}
# Written by `tk lab up`, removed by `tk lab down`. Flavour: {info.flavour}.
[cluster]
login = "{LOGIN}"
ssh_config = "{info.ssh_config}"
scheduler = "{info.scheduler}"
node_ssh = "yes"
python = "python3"
"""
    info.profile.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(info.profile, text)


_PROFILE_MARK = "# tunnelkit lab:"


def remove_profile(path: Path, lab_dir: Path) -> None:
    """Remove the profile if this lab wrote it; another lab's or the user's own stays."""
    if path.is_file() and _is_ours(path, lab_dir):
        path.unlink()


def _is_ours(path: Path, lab_dir: Path | None) -> bool:
    first = path.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    mark, _, named = first.rpartition(" ")
    return mark == _PROFILE_MARK and (lab_dir is None or named == str(lab_dir))
