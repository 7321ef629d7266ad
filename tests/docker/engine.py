"""A Docker engine for the tests: the machine's own, or one that they start and end themselves.

The one of our own leaves the machine's network as it is: no default bridge, no rule in the
firewall, no forwarding. Its images stay in a cache directory, so that the next run is quick.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import until

BASE_IMAGE = "debian:bookworm-slim"
_CACHE = Path("/var/cache/tunnelkit")
#: For what downloads or builds; nothing here waits that long unless it is broken.
_BUILD_S = 500.0


@dataclass(frozen=True)
class Docker:
    """How to ask an engine: the argv prefixes of `docker` and of Compose."""

    docker: tuple[str, ...]
    compose: tuple[str, ...]

    def run(self, *argv: str, timeout_s: float = 60.0) -> str:
        """Run `docker ARGV`; what it printed."""
        return self._run((*self.docker, *argv), {}, timeout_s)

    def run_compose(self, *argv: str, environ: dict[str, str], timeout_s: float = 60.0) -> str:
        """Run Compose with what its file wants to find in the environment; what it printed."""
        return self._run((*self.compose, *argv), environ, timeout_s)

    def _run(self, words: tuple[str, ...], environ: dict[str, str], timeout_s: float) -> str:
        # Compose 1 builds by itself; through `docker` it would want a plugin that may lack.
        done = subprocess.run(
            words,
            env={**os.environ, "COMPOSE_DOCKER_CLI_BUILD": "0", **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}\n{done.stderr}"
        return done.stdout


def why_no_docker() -> str | None:
    """Why this machine can't run containers, or None if it can."""
    if not shutil.which("docker"):
        return "Docker is not installed (as root: scripts/setup --docker)"
    if not _compose():
        return "Docker Compose is not installed (as root: scripts/setup --docker)"
    if _answers("docker"):
        return None
    if os.geteuid() != 0:
        return "no Docker engine answers, and only root can start one"
    if not _dockerd():
        return "no Docker engine answers, and dockerd is not installed"
    return None


@contextmanager
def docker_engine() -> Iterator[Docker]:
    """The engine that answers already; else one of our own, which is ended afterwards."""
    compose = _compose()
    assert compose
    if _answers("docker"):
        yield Docker(("docker",), compose)
        return
    with _own_engine() as socket:
        there = ("--host", f"unix://{socket}")
        yield Docker(("docker", *there), _with_host(compose, there))


def _with_host(compose: tuple[str, ...], there: tuple[str, str]) -> tuple[str, ...]:
    """The option is `docker`'s in the plugin, and Compose 1's own."""
    return (compose[0], *there, *compose[1:])


def _compose() -> tuple[str, ...]:
    for argv in (("docker", "compose"), ("docker-compose",)):
        if shutil.which(argv[0]) and _succeeds(*argv, "version"):
            return argv
    return ()


def _dockerd() -> str | None:
    return shutil.which("dockerd", path=_path())


def _path() -> str:
    """PATH with what is root's: dockerd starts programs of its own from there."""
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def _answers(*docker: str) -> bool:
    return _succeeds(*docker, "info")


def _succeeds(*argv: str) -> bool:
    return subprocess.run(argv, capture_output=True, timeout=60, check=False).returncode == 0


@contextmanager
def _own_engine() -> Iterator[Path]:
    with ExitStack() as ending:
        base = Path(tempfile.mkdtemp(prefix="tkd", dir="/tmp"))
        ending.callback(_remove, base)
        lock = _lock_cache(ending)
        data = base / "data" if lock is None else _CACHE / "docker"
        log = ending.enter_context(open(base / "log", "wb"))
        dockerd = _dockerd()
        assert dockerd
        words = [
            f"--host=unix://{base}/socket",
            f"--pidfile={base}/pid",
            f"--exec-root={base}/exec",
        ]
        words += [f"--data-root={data}", "--bridge=none", "--ip-forward=false", "--ip-masq=false"]
        words += ["--iptables=false", "--ip6tables=false"]
        # If the tests are killed it ends too, and with it its containers.
        argv = ["setpriv", "--pdeathsig", "TERM", "--", dockerd, *words]
        engine = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "PATH": _path()},
            # Ctrl-C is for the tests, which then remove what runs in it.
            start_new_session=True,
            # It holds the cache until it has ended, even if the tests were killed.
            pass_fds=() if lock is None else (lock,),
        )
        try:
            ask = ("docker", "--host", f"unix://{base}/socket")
            until(lambda: engine.poll() is not None or _answers(*ask), "dockerd answers", 60.0)
            assert engine.poll() is None, f"no dockerd: {(base / 'log').read_text()[-3000:]}"
            # What a killed run has left; all of it is ours.
            for kind in ("container", "network", "volume"):
                _must(*ask, kind, "prune", "--force")
            yield base / "socket"
        finally:
            engine.terminate()
            engine.wait(timeout=60)


def _remove(base: Path) -> None:
    """Remove it, and unmount first what dockerd leaves mounted there: never reach into a mount."""
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        points = [line.split()[4] for line in file]
    for point in sorted((one for one in points if one.startswith(f"{base}/")), reverse=True):
        subprocess.run(["umount", "--lazy", point], capture_output=True, check=True)
    shutil.rmtree(base)


def _lock_cache(ending: ExitStack) -> int | None:
    """The cache's lock, for whoever keeps images there from run to run; None while another run
    has it, or if there can be no cache."""
    try:
        _CACHE.mkdir(mode=0o755, exist_ok=True)
        lock = os.open(_CACHE / "lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    ending.callback(os.close, lock)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return None
    return lock


# -- the base image ------------------------------------------------------------------------------


def provide_base_image(docker: Docker) -> None:
    """See that BASE_IMAGE is there: pulled, or made from Debian's packages where no registry
    can be reached (as root)."""
    if docker.run("image", "ls", "--quiet", BASE_IMAGE).strip():
        return
    if _succeeds(*docker.docker, "pull", "--quiet", BASE_IMAGE):
        return
    assert os.geteuid() == 0, f"{BASE_IMAGE} can't be pulled, and only root can make it"
    assert shutil.which("debootstrap"), f"{BASE_IMAGE} can't be pulled; apt-get install debootstrap"
    docker.run("import", str(_base_tarball()), BASE_IMAGE, timeout_s=_BUILD_S)


def _base_tarball() -> Path:
    tarball = _CACHE / "debian-bookworm.tar"
    if tarball.exists():
        return tarball
    _CACHE.mkdir(mode=0o755, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="tkb", dir="/var/tmp"))
    try:
        root.chmod(0o755)
        _must("debootstrap", "--variant=minbase", "bookworm", str(root), _mirror())
        # What this machine needs to reach its mirror, the image needs as well.
        (root / "etc/apt/apt.conf.d/90host").write_text(_apt_settings())
        partial = tarball.with_suffix(f".{os.getpid()}")
        _must(
            "tar",
            "-C",
            str(root),
            "--exclude=./var/cache/apt/archives/*.deb",
            "-cf",
            str(partial),
            ".",
        )
        partial.replace(tarball)
    finally:
        shutil.rmtree(root)
    return tarball


def _must(*argv: str) -> None:
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_BUILD_S,
        check=False,
    )
    assert done.returncode == 0, f"{argv[0]}: {(done.stdout + done.stderr)[-3000:]}"


def _mirror() -> str:
    """The Debian mirror of this machine's own apt, if it is a Debian."""
    named = sorted(Path("/etc/apt").glob("**/debian*.sources"))
    for path in [*named, Path("/etc/apt/sources.list")]:
        if path.is_file():
            for word in path.read_text().split():
                if word.startswith("http") and word.rstrip("/").endswith("/debian"):
                    return word
    return "http://deb.debian.org/debian"


def _apt_settings() -> str:
    done = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True)
    wanted = ("Acquire::http", "Acquire::Check-", "Acquire::Retries", "Acquire::Languages")
    return "".join(f"{line}\n" for line in done.stdout.splitlines() if line.startswith(wanted))
