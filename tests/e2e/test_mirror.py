"""The mirror over a real sshd on loopback, with real ssh and real rsync."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tunnelkit.errors import ConnectionFailed, MirrorError, TimeoutExpired
from tunnelkit.mirror import sshfs
from tunnelkit.mirror.base import MirrorHalted, MirrorState, MirrorStatus
from tunnelkit.mirror.ignore import REPLACED_DIR
from tunnelkit.mirror.mirror import Mirror
from tunnelkit.model import Completed, MirrorSpec

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
pytestmark = pytest.mark.skipif(
    not os.access(SSHD, os.X_OK) or not shutil.which("rsync"),
    reason="sshd and rsync are needed: apt install openssh-server rsync",
)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Sshd:
    """An sshd of this user on loopback, with throw-away keys."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        for name in ("host_key", "client key"):  # the space tests the quoting
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)],
                check=True,
            )
        host_key = (directory / "host_key.pub").read_text()
        (directory / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {host_key}")
        shutil.copy(directory / "client key.pub", directory / "authorized_keys")
        (directory / "authorized_keys").chmod(0o600)
        (directory / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {directory}/host_key\n"
            f"AuthorizedKeysFile {directory}/authorized_keys\nPidFile none\nUsePAM no\n"
            "PasswordAuthentication no\nStrictModes no\nSubsystem sftp internal-sftp\n"
            "PermitRootLogin prohibit-password\nMaxStartups 100\n"
        )
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True)

    def start(self) -> None:
        log = open(self.directory / "sshd.log", "ab")  # noqa: SIM115
        with log:
            self.process = subprocess.Popen(
                [SSHD, "-D", "-e", "-f", str(self.directory / "sshd_config")],
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            assert self.process.poll() is None, (self.directory / "sshd.log").read_text()
            time.sleep(0.02)
        raise AssertionError("sshd did not start")

    def stop(self) -> None:
        """End the listener and every connection that it holds."""
        if self.process is not None:
            # sshd's children for sessions are in sessions of their own
            for pid in [*descendants(self.process.pid), self.process.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait(10)
            self.process = None

    def ssh(self) -> list[str]:
        options = {
            "Port": str(self.port),
            "IdentityFile": f'"{self.directory}/client key"',
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": str(self.directory / "known_hosts"),
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            "BatchMode": "yes",
            "ConnectTimeout": "5",
        }
        return ["ssh", "-F", "none", *(f"-o{key}={value}" for key, value in options.items())]


def descendants(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        children = [int(word) for word in tasks.read_text().split()]
    except OSError:
        return []
    return [*(found for child in children for found in descendants(child)), *children]


class SshRemote:
    """The smallest Remote: a new connection for each command. HOME is one of the test's."""

    def __init__(self, sshd: Sshd, home: Path) -> None:
        self._sshd = sshd
        self._home = home
        self.commands = 0

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30.0
    ) -> Completed:
        self.commands += 1
        line = f"HOME={shlex.quote(str(self._home))} exec {shlex.join(argv)}"
        process = await asyncio.create_subprocess_exec(
            *self._sshd.ssh(),
            "127.0.0.1",
            "--",
            f"exec sh -c {shlex.quote(line)}",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(timeout_s):
                out, err = await process.communicate(stdin)
        except TimeoutError as error:
            raise TimeoutExpired("no answer in time", transient=True) from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        if process.returncode == 255:
            raise ConnectionFailed("127.0.0.1", cause=err.decode(), transient=True)
        return Completed(process.returncode, out, err)

    def remote_shell(self) -> list[str]:
        return [*self._sshd.ssh(), "-o", "SetEnv=TK_A='b \"c'"]

    def destination(self) -> str:
        return "127.0.0.1"


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    directory = tmp_path / "sshd"
    directory.mkdir(mode=0o700)
    server = Sshd(directory)
    server.start()
    yield server
    server.stop()


class Rig:
    """A laptop directory, a cluster home, and mirrors between them."""

    def __init__(self, sshd: Sshd, tmp_path: Path) -> None:
        self.sshd = sshd
        self.local = tmp_path / "laptop" / "my project"
        self.home = tmp_path / "cluster home"
        self.state = tmp_path / "state"
        self.local.mkdir(parents=True)
        self.home.mkdir(mode=0o700)
        self.remote = SshRemote(sshd, self.home)
        self.far = self.home / "tk" / "my project"
        self.seen: list[MirrorStatus] = []
        self.mirrors: list[Mirror] = []

    def mirror(self, **more: object) -> Mirror:
        exclude = more.pop("exclude", ())
        mirror = Mirror(
            MirrorSpec(str(self.local), "~/tk/my project", tuple(exclude)),  # type: ignore[arg-type]
            self.remote,
            state_dir=self.state,
            on_change=self.seen.append,
            **more,  # type: ignore[arg-type]
        )
        self.mirrors.append(mirror)
        return mirror

    async def started(self, **more: object) -> Mirror:
        mirror = self.mirror(**more)
        await mirror.start()
        return mirror

    def write(self, path: str, text: str = "x\n", *, far: bool = False) -> Path:
        full = (self.far if far else self.local) / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(text)
        return full

    def equal(self) -> bool:
        return tree(self.local) == tree(self.far)


@pytest.fixture
async def rig(sshd: Sshd, tmp_path: Path) -> AsyncIterator[Rig]:
    made = Rig(sshd, tmp_path)
    yield made
    for mirror in made.mirrors:
        await mirror.stop()


def tree(root: Path) -> dict[bytes, tuple[object, ...]]:
    """All that a person can see of a tree: kinds, modes, contents, link targets, mtimes."""
    found: dict[bytes, tuple[object, ...]] = {}
    top = os.fsencode(root)
    for base, dirs, files in os.walk(top):
        for name in [*dirs, *files]:
            full = os.path.join(base, name)
            info = os.lstat(full)
            key = os.path.relpath(full, top)
            if os.path.islink(full):
                found[key] = ("link", os.readlink(full))
            elif os.path.isdir(full):
                found[key] = ("dir", info.st_mode)
            else:
                content = hashlib.sha256(pathlib.Path(os.fsdecode(full)).read_bytes()).hexdigest()
                found[key] = ("file", info.st_mode, content, info.st_mtime_ns)
    return found


async def until(condition: Callable[[], bool], what: str, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        await asyncio.sleep(0.02)


async def test_first_copy_is_exact(rig: Rig) -> None:
    rig.write("main.py", "print(1)\n")
    rig.write("run.sh").chmod(0o755)
    rig.write("deep/er/and/deeper.txt")
    (rig.local / "empty").mkdir(mode=0o750)
    (rig.local / "to_main").symlink_to("main.py")
    (rig.local / "dangling").symlink_to("/nowhere/at all")
    (rig.local / "to_dir").symlink_to("deep")
    mirror = await rig.started()
    assert rig.equal()
    assert mirror.remote_root == str(rig.far)
    assert mirror.status().state is MirrorState.IN_SYNC
    assert mirror.status().files == 6
    assert mirror.status().watching
    assert rig.far.stat().st_mode & 0o777 == 0o700
    assert not (rig.far / REPLACED_DIR).exists()


async def test_odd_names_are_exact(rig: Rig) -> None:
    names = [b"-rf", b"--delete", b"a b", b" ", b"new\nline", b"\xff\xfe", b"#hash", b";semi", b"*"]
    names += [b"$HOME", b"`id`", b"'q\"", b"back\\slash", b"\\#012", b"~", b"[x]", b"a:b", b"tab\t"]
    names += ["täst".encode(), b"trailing\n", b"\r", b"!x", b"host:x", b"%i %n"]
    top = os.fsencode(rig.local)
    for name in names:
        os.mkdir(os.path.join(top, b"d" + name))
        for path in (name, os.path.join(b"d" + name, name)):
            with open(os.path.join(top, path), "wb") as stream:
                stream.write(path)
    mirror = await rig.started()
    assert rig.equal()
    for name in names:
        os.unlink(os.path.join(top, name))
        with open(os.path.join(top, b"d" + name, name), "ab") as stream:
            stream.write(b"more")
    await mirror.barrier(20, allow_deletes=True)
    assert rig.equal()


async def test_ignored_files_stay_home(rig: Rig) -> None:
    rig.write(".gitignore", "*.log\nout/\n!keep.log\n")
    rig.write("sub/.gitignore", "!special.log\nlocal.txt\n")
    for path in ("a.log", "keep.log", "out/x", "sub/special.log", "sub/local.txt", "local.txt"):
        rig.write(path)
    for path in (".git/HEAD", "__pycache__/a.pyc", ".venv/bin/python", "data/big", "n/data/big"):
        rig.write(path)
    await rig.started(exclude=["/data/"])
    assert {os.fsdecode(path) for path in tree(rig.far)} == {
        ".gitignore",
        "keep.log",
        "local.txt",
        "n",
        "n/data",
        "n/data/big",
        "sub",
        "sub/.gitignore",
        "sub/special.log",
    }


async def test_a_file_that_becomes_ignored_stays_there(rig: Rig) -> None:
    rig.write("notes.txt")
    rig.write("main.py")
    mirror = await rig.started()
    rig.write(".gitignore", "notes.txt\n")
    await mirror.barrier(20)
    (rig.local / "notes.txt").unlink()
    await mirror.barrier(20)
    assert (rig.far / "notes.txt").exists()


async def test_edit_then_barrier(rig: Rig) -> None:
    source = rig.write("main.py", "0\n")
    mirror = await rig.started()
    for number in range(1, 16):
        source.write_text(f"{number % 10}\n")  # same size, often in the same tick
        await mirror.barrier(20)
        assert (rig.far / "main.py").read_text() == f"{number % 10}\n"


async def test_an_edit_with_same_size_and_mtime_is_seen(rig: Rig) -> None:
    source = rig.write("main.py", "old\n")
    mirror = await rig.started()
    before = source.stat()
    source.write_text("new\n")
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    await mirror.barrier(20)
    assert (rig.far / "main.py").read_text() == "new\n"


async def test_events_push_without_a_barrier(rig: Rig) -> None:
    rig.write("main.py", "1\n")
    await rig.started()
    rig.write("main.py", "2\n")
    await until(lambda: (rig.far / "main.py").read_text() == "2\n", "the edit")
    # as editors save: a temporary renamed over the file
    rig.write("main.py.tmp", "3\n").rename(rig.local / "main.py")
    await until(lambda: rig.equal() and (rig.far / "main.py").read_text() == "3\n", "the rename")
    rig.write("new/deep/down/a.txt")
    await until(rig.equal, "new directories")
    shutil.rmtree(rig.local / "new")
    await until(rig.equal, "the delete")


async def test_barrier_needs_no_events(rig: Rig) -> None:
    rig.write("main.py")
    mirror = await rig.started()
    assert mirror._watcher is not None
    await mirror._watcher.stop()
    rig.write("main.py", "edited\n")
    rig.write("a/b/c.txt")
    report = await mirror.barrier(20)
    assert rig.equal()
    assert report.sent == 2


async def test_chmod_and_links(rig: Rig) -> None:
    script = rig.write("run.sh")
    link = rig.local / "link"
    link.symlink_to("one")
    mirror = await rig.started()
    script.chmod(0o755)
    link.unlink()
    link.symlink_to("two")
    await mirror.barrier(20)
    assert rig.equal()


async def test_deletes_only_what_it_sent(rig: Rig) -> None:
    for path in ("a.py", "gone/mine.txt", "gone/deeper/mine.txt", "gone2/mine.txt"):
        rig.write(path)
    mirror = await rig.started()
    rig.write("output.bin", far=True)
    rig.write("gone/output.bin", far=True)
    rig.write("gone/empty/output.bin", far=True).unlink()
    shutil.rmtree(rig.local / "gone")
    shutil.rmtree(rig.local / "gone2")
    report = await mirror.barrier(20)
    assert report.deleted == 3
    left = {os.fsdecode(path) for path in tree(rig.far)}
    assert left == {"a.py", "output.bin", "gone", "gone/output.bin", "gone/empty"}


async def test_a_file_changed_there_is_not_deleted(rig: Rig) -> None:
    rig.write("log.txt", "start\n")
    rig.write("main.py")
    mirror = await rig.started()
    rig.write("log.txt", "start\nwritten by the job\n", far=True)
    (rig.local / "log.txt").unlink()
    report = await mirror.barrier(20)
    assert report.kept == ("log.txt",)
    assert "job" in (rig.far / "log.txt").read_text()


async def test_what_was_there_before_is_set_aside(rig: Rig) -> None:
    rig.write("main.py", "laptop\n")
    rig.write("same.py", "same\n")
    rig.write("main.py", "cluster\n", far=True)
    rig.write("same.py", "same\n", far=True)
    rig.write("dir/results.csv", "precious\n", far=True)
    rig.write("edited.py", "1\n")
    mirror = await rig.started()
    report = await mirror.barrier(20)
    assert (rig.far / "main.py").read_text() == "laptop\n"
    (kept,) = rig.far.glob(f"{REPLACED_DIR}/*/main.py")
    assert kept.read_text() == "cluster\n"
    assert len([path for path in rig.far.glob(f"{REPLACED_DIR}/*/**/*") if path.is_file()]) == 1
    assert (rig.far / "dir/results.csv").read_text() == "precious\n"
    rig.write("edited.py", "edited there\n", far=True)
    rig.write("edited.py", "edited here\n")
    report = await mirror.barrier(20)
    assert report.replaced == ("edited.py",)
    assert report.replaced_dir is not None
    assert Path(report.replaced_dir, "edited.py").read_text() == "edited there\n"


async def test_swaps_of_kind(rig: Rig) -> None:
    rig.write("a/x/file.txt")
    rig.write("a/file.txt")
    rig.write("b")
    rig.write("c/file.txt")
    (rig.local / "l").symlink_to("c")
    mirror = await rig.started()
    shutil.rmtree(rig.local / "a")
    rig.write("a", "now a file\n")
    (rig.local / "b").unlink()
    rig.write("b/inside/now.txt")
    shutil.rmtree(rig.local / "c")
    (rig.local / "c").symlink_to("b")
    (rig.local / "l").unlink()
    rig.write("l/in_a_directory.txt")
    await mirror.barrier(20)
    assert rig.equal()
    (rig.local / "d").mkdir()
    (rig.local / "b").rename(rig.local / "d" / "b")
    (rig.local / "a").rename(rig.local / "b")
    await mirror.barrier(20)
    assert rig.equal()


async def test_a_symlink_on_the_cluster_is_never_followed(rig: Rig) -> None:
    outside = rig.home / "outside"
    outside.mkdir()
    rig.write("data/new.txt")
    rig.write("ours/a.txt")
    rig.write("main.py")
    rig.far.mkdir(parents=True)
    (rig.far / "data").symlink_to(outside)
    mirror = await rig.started()
    assert mirror.status().state is MirrorState.PENDING
    assert "data/new.txt" in mirror.status().pending_paths
    assert (rig.far / "main.py").exists()
    with pytest.raises(MirrorError, match=r"data/new\.txt") as caught:
        await mirror.barrier(20)
    assert "symlink" in (caught.value.cause or "")
    # one that took the place of a directory which we made
    (rig.far / "ours").rename(outside / "moved")
    (rig.far / "ours").symlink_to(outside / "moved")
    shutil.rmtree(rig.local / "data")
    (rig.local / "ours/a.txt").unlink()
    await mirror.barrier(20)
    assert list(outside.rglob("*.txt")) == [outside / "moved/a.txt"]
    assert (rig.far / "data").is_symlink() and (rig.far / "ours").is_symlink()


async def test_emptied_root_halts(rig: Rig) -> None:
    for number in range(5):
        rig.write(f"{number}.py")
    mirror = await rig.started()
    for path in rig.local.iterdir():
        path.unlink()
    await until(lambda: mirror.status().state is MirrorState.HALTED, "the halt")
    with pytest.raises(MirrorHalted, match="empty"):
        await mirror.barrier(20)
    assert len(list(rig.far.iterdir())) == 5
    rig.write("0.py")
    await until(lambda: mirror.status().state is not MirrorState.HALTED, "the end of the halt")
    (rig.local / "0.py").unlink()
    assert (await mirror.barrier(20, allow_deletes=True)).deleted > 0
    assert list(rig.far.iterdir()) == []


async def test_vanished_root_halts_even_when_confirmed(rig: Rig) -> None:
    rig.write("main.py")
    mirror = await rig.started()
    rig.local.rename(rig.local.with_name("away"))
    with pytest.raises(MirrorHalted, match="can't be read"):
        await mirror.barrier(20, allow_deletes=True)
    assert (rig.far / "main.py").exists()
    rig.local.with_name("away").rename(rig.local)
    await mirror.barrier(20)


async def test_many_deletes_halt_with_the_list(rig: Rig) -> None:
    for number in range(50):
        rig.write(f"f{number:02}.py")
    mirror = await rig.started()
    for number in range(30):
        (rig.local / f"f{number:02}.py").unlink()
    rig.write("new.py")
    with pytest.raises(MirrorHalted, match="30 of 50") as caught:
        await mirror.barrier(20)
    assert "f00.py" in (caught.value.cause or "")
    assert not (rig.far / "new.py").exists()
    assert (await mirror.barrier(20, allow_deletes=True)).deleted == 30
    assert rig.equal()


async def test_restart_keeps_what_is_ours(rig: Rig) -> None:
    for path in ("a.py", "b.py", "c.py"):
        rig.write(path)
    first = await rig.started()
    await first.stop()
    assert first.status().state is MirrorState.STOPPED
    rig.write("d.py", far=True)
    (rig.local / "b.py").unlink()
    rig.write("a.py", "edited offline\n")
    (rig.far / "c.py").unlink()
    await rig.started()
    assert (rig.far / "a.py").read_text() == "edited offline\n"
    assert not (rig.far / "b.py").exists()
    assert (rig.far / "c.py").exists()
    assert (rig.far / "d.py").exists()


async def test_checkout_of_2000_files(rig: Rig) -> None:
    for number in range(2000):
        rig.write(f"d{number % 40}/s{number % 7}/{number}.py", f"{number}\n")
    mirror = await rig.started()
    assert rig.equal()
    for number in range(2000):
        path = rig.local / f"d{number % 40}/s{number % 7}/{number}.py"
        if number % 5 == 0:
            path.unlink()
        else:
            path.write_text(f"other {number}\n")
    await mirror.barrier(60)
    assert rig.equal()


async def test_the_node_must_prove(rig: Rig) -> None:
    asked: list[dict[str, str]] = []
    lag = 2

    async def check(digests: Mapping[str, str]) -> list[str]:
        asked.append(dict(digests))
        wrong = []
        for path, text in digests.items():
            if hashlib.sha256((rig.far / path).read_bytes()).hexdigest() != text:
                wrong.append(path)
        return ["main.py"] if len(asked) <= lag else wrong

    rig.write("main.py")
    rig.write("other.py")
    mirror = await rig.started(verify=lambda: check)
    report = await mirror.barrier(20)
    assert report.proven == 2
    assert [set(item) for item in asked] == [{"main.py", "other.py"}, {"main.py"}, {"main.py"}]
    assert (await mirror.barrier(20)).proven == 0
    rig.write("main.py", "edited\n")
    await mirror.barrier(20)
    assert set(asked[-1]) == {"main.py"}
    await mirror.forget_proofs()
    assert (await mirror.barrier(20)).proven == 2
    lag = 10**6
    rig.write("main.py", "again\n")
    with pytest.raises(MirrorError, match="compute node") as caught:
        await mirror.barrier(2)
    assert "main.py" in (caught.value.cause or "")


async def test_a_changed_file_there_is_repaired_by_proof(rig: Rig) -> None:
    async def check(digests: Mapping[str, str]) -> list[str]:
        return [
            path
            for path, text in digests.items()
            if hashlib.sha256((rig.far / path).read_bytes()).hexdigest() != text
        ]

    rig.write("main.py", "right\n")
    mirror = await rig.started(verify=lambda: check)
    await mirror.barrier(20)
    rig.write("main.py", "wrong\n", far=True)
    await mirror.forget_proofs()
    await mirror.barrier(20)
    assert (rig.far / "main.py").read_text() == "right\n"


async def test_dead_link_is_stale_then_resync_repairs(rig: Rig) -> None:
    rig.write("main.py", "1\n")
    mirror = await rig.started()
    rig.sshd.stop()
    rig.write("main.py", "2\n")
    await until(lambda: mirror.status().state is MirrorState.STALE, "stale")
    assert "main.py" in mirror.status().pending_paths
    with pytest.raises(TimeoutExpired, match="not in sync") as caught:
        await mirror.barrier(1)
    assert "main.py" in (caught.value.cause or "")
    rig.sshd.start()
    (rig.far / "main.py").unlink()
    await mirror.resync()
    assert rig.equal()
    assert mirror.status().state is MirrorState.IN_SYNC


async def test_no_link_at_start_is_an_error(rig: Rig) -> None:
    rig.write("main.py")
    rig.sshd.stop()
    mirror = rig.mirror()
    with pytest.raises(ConnectionFailed):
        await mirror.start()
    assert mirror._task is None
    rig.sshd.start()
    await mirror.start()
    assert rig.equal()


async def test_a_path_that_cannot_be_written_is_named(rig: Rig) -> None:
    rig.write("main.py", "1\n")
    rig.write("results", "a file here\n")
    rig.write("results/of_the_job.csv", far=True)
    mirror = await rig.started()
    assert mirror.status().state is MirrorState.PENDING
    rig.write("main.py", "2\n")
    with pytest.raises(MirrorError, match="results"):
        await mirror.barrier(20)
    assert (rig.far / "main.py").read_text() == "2\n"
    assert (rig.far / "results/of_the_job.csv").exists()
    (rig.local / "results").unlink()
    await mirror.barrier(20)
    assert mirror.status().state is MirrorState.IN_SYNC


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
async def test_what_is_forbidden_is_named_and_the_rest_goes_on(rig: Rig) -> None:
    secret = rig.write("secret.key")
    secret.chmod(0)
    closed = rig.write("closed/inner.py").parent
    rig.write("there/file.py", "1\n")
    mirror = await rig.started()
    assert mirror.status().pending_paths == ("secret.key",)
    closed.chmod(0)
    (rig.far / "there").chmod(0o500)
    rig.write("there/file.py", "2\n")
    rig.write("main.py", "2\n")
    try:
        with pytest.raises(MirrorError) as caught:
            await mirror.barrier(20)
        assert "closed" in caught.value.message and "secret.key" in caught.value.message
        assert (rig.far / "main.py").read_text() == "2\n"
        assert (rig.far / "closed/inner.py").read_text() == "x\n"
    finally:
        closed.chmod(0o755)
        secret.chmod(0o600)
    await mirror.barrier(20)
    assert rig.equal()


async def test_a_killed_transfer_leaves_old_or_new(rig: Rig) -> None:
    big = rig.local / "big.bin"
    big.write_bytes(b"old" * (16 << 20))
    mirror = await rig.started()
    big.write_bytes(os.urandom(1 << 20) * 48)
    await until(lambda: any(line.startswith("rsync") for line in children()), "rsync")
    rig.sshd.stop()
    assert (rig.far / "big.bin").read_bytes() in (b"old" * (16 << 20), big.read_bytes())
    rig.sshd.start()
    await mirror.resync()
    assert (rig.far / "big.bin").read_bytes() == big.read_bytes()
    assert mirror.status().state is MirrorState.IN_SYNC
    left = {os.fsdecode(path) for path in tree(rig.far)} - {"big.bin"}
    assert not [path for path in left if not path.startswith(".big.bin.")], left


async def test_a_silent_link_does_not_hang(rig: Rig) -> None:
    rig.write("main.py")
    mirror = await rig.started()
    assert rig.sshd.process is not None
    os.kill(rig.sshd.process.pid, signal.SIGSTOP)  # accepts connections, says nothing
    try:
        rig.write("main.py", "2\n")
        with pytest.raises(TimeoutExpired, match="not in sync"):
            await mirror.barrier(1)
        await until(lambda: mirror.status().state is MirrorState.STALE, "stale")
    finally:
        os.kill(rig.sshd.process.pid, signal.SIGCONT)
    await mirror.resync()
    assert rig.equal()


SCRIBBLE = """\
import sys, time
with open(sys.argv[1], "ab", buffering=0) as stream:
    while True:
        stream.write(b"x")
        time.sleep(0.001)
"""


async def test_a_file_that_never_rests_times_out(rig: Rig) -> None:
    rig.write("main.py")
    noisy = rig.write("noisy.bin", "")
    mirror = await rig.started()
    # A process of its own: a thread would starve beside a busy event loop.
    writer = await asyncio.create_subprocess_exec(sys.executable, "-c", SCRIBBLE, str(noisy))
    try:
        await until(lambda: noisy.stat().st_size > 0, "the first byte")
        with pytest.raises(TimeoutExpired) as caught:
            await mirror.barrier(1.5)
        assert "noisy.bin" in (caught.value.cause or "")
    finally:
        writer.kill()
        await writer.wait()
    await mirror.barrier(20)
    assert rig.equal()


async def test_stop_in_the_middle_leaves_no_process(rig: Rig) -> None:
    rig.write("main.py")
    mirror = await rig.started()
    (rig.local / "big.bin").write_bytes(os.urandom(1 << 20) * 64)
    waiting = asyncio.create_task(mirror.barrier(60))
    await until(lambda: any(line.startswith("rsync") for line in children()), "rsync")
    await mirror.stop()
    with pytest.raises(MirrorError, match="stopped"):
        await waiting
    assert not [line for line in children() if line.startswith("rsync")]
    await rig.started()
    assert rig.equal()


def children() -> list[str]:
    found = []
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            found.append(Path(f"/proc/{pid}/cmdline").read_text())
    return found


@pytest.mark.parametrize("remote_dir", ["~/link_home", "~/tk/../..", "~", "/", ""])
async def test_dangerous_targets_are_refused(rig: Rig, remote_dir: str) -> None:
    rig.write("main.py")
    (rig.home / "link_home").symlink_to(".")
    mirror = Mirror(MirrorSpec(str(rig.local), remote_dir), rig.remote, state_dir=rig.state)
    with pytest.raises(MirrorError, match="can't be mirrored into"):
        await mirror.start()
    assert not (rig.home / "main.py").exists()


needs_fuse = pytest.mark.skipif(
    not shutil.which("sshfs") or not os.access("/dev/fuse", os.R_OK | os.W_OK),
    reason="sshfs and a /dev/fuse that this user may open are needed",
)


@needs_fuse
async def test_sshfs_mount_and_umount(rig: Rig, tmp_path: Path) -> None:
    far = rig.home / "dir on cluster"
    far.mkdir()
    (far / "a.txt").write_text("there\n")
    point = tmp_path / "mount point, here"
    point.mkdir()
    state = tmp_path / "plain"
    await sshfs.mount(rig.remote, str(far), point, state_dir=state)
    try:
        assert sshfs.is_mounted(point)
        assert await asyncio.to_thread((point / "a.txt").read_text) == "there\n"
        await asyncio.to_thread((point / "b.txt").write_text, "here\n")
        assert (far / "b.txt").read_text() == "here\n"
        with pytest.raises(MirrorError, match="can't mount"):
            await sshfs.mount(rig.remote, str(far), point, state_dir=state)
        assert sshfs.is_mounted(point)
    finally:
        await sshfs.umount(point, state_dir=state)
    assert not sshfs.is_mounted(point)
    assert not [line for line in children() if line.startswith("sshfs")]
    assert list((state / "sshfs").iterdir()) == []
    await sshfs.umount(point, state_dir=state)


@needs_fuse
async def test_sshfs_of_a_dead_server_unmounts(rig: Rig, tmp_path: Path) -> None:
    far = rig.home / "dir"
    far.mkdir()
    point = tmp_path / "point"
    point.mkdir()
    await sshfs.mount(rig.remote, str(far), point, state_dir=tmp_path / "s")
    reader = None
    try:
        assert rig.sshd.process is not None
        for pid in descendants(rig.sshd.process.pid):  # silent, not closed
            os.kill(pid, signal.SIGSTOP)
        reader = await asyncio.create_subprocess_exec(
            "ls", str(point / "x"), stderr=subprocess.DEVNULL
        )
    finally:
        await sshfs.umount(point, state_dir=tmp_path / "s")
        if reader is not None:
            async with asyncio.timeout(10):
                await reader.wait()
    assert not sshfs.is_mounted(point)


@needs_fuse
async def test_sshfs_refusals(rig: Rig, tmp_path: Path) -> None:
    point = tmp_path / "point"
    with pytest.raises(MirrorError, match="can't mount"):
        await sshfs.mount(rig.remote, str(rig.home), point, state_dir=tmp_path / "s")
    point.mkdir()
    with pytest.raises(MirrorError, match="can't mount") as caught:
        await sshfs.mount(rig.remote, "/no/such/dir", point, state_dir=tmp_path / "s")
    assert "No such file" in (caught.value.cause or "")
    odd = tmp_path / "odd state"
    with pytest.raises(MirrorError, match="state directory"):
        await sshfs.mount(rig.remote, str(rig.home), point, state_dir=odd)
    assert list((odd / "sshfs").iterdir()) == []
    (point / "file").touch()
    with pytest.raises(MirrorError, match="can't mount") as caught:
        await sshfs.mount(rig.remote, str(rig.home), point, state_dir=tmp_path / "s")
    assert "not empty" in (caught.value.cause or "")
    assert not sshfs.is_mounted(point)
