"""The other way to have the files: the remote directory mounted, nothing copied.

sshfs runs in the foreground of a session of its own, so that its pid is known; it and
its ssh wrapper are recorded in a private directory per mountpoint until `umount`. A dead
mount blocks whoever touches it, so nothing here ever does stat() on a mountpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import shlex
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import platformdirs

from tunnelkit.errors import ConnectionFailed, MirrorError, MissingProgram, TimeoutExpired
from tunnelkit.mirror.base import Remote

_MOUNT_S = 30.0
_UMOUNT_S = 10.0
_ANSWER_S = 5.0
_POLL_S = 0.05
_OPTIONS = (
    "reconnect",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=3",
    "idmap=user",
    # other users of this computer get nothing: no allow_other, and no bits for them
    "umask=077",
    "default_permissions",
)
_OCTAL = re.compile(r"\\([0-7]{3})")


async def mount(
    remote: Remote, remote_dir: str, mountpoint: Path, *, state_dir: Path | None = None
) -> None:
    """Mount `remote_dir` (absolute, or `~/...`) at `mountpoint`, an empty directory, until
    `umount`; it outlives this process. Raises MissingProgram without sshfs or FUSE,
    MirrorError for a bad mountpoint or directory, ConnectionFailed, TimeoutExpired."""
    _check_programs()
    where = resolve(mountpoint)
    _check_mountpoint(where)
    record = _record(where, state_dir)
    shutil.rmtree(record, ignore_errors=True)
    record.mkdir(mode=0o700, parents=True)
    try:
        argv = _sshfs_argv(remote, remote_dir, where, record)
        with (record / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (record / "pid").write_text(f"{process.pid}\n")
        await _mounted(process, remote, remote_dir, where, record / "log")
    except BaseException:
        await umount(where, state_dir=state_dir)
        raise


async def _mounted(
    process: asyncio.subprocess.Process, remote: Remote, remote_dir: str, where: Path, log: Path
) -> None:
    deadline = time.monotonic() + _MOUNT_S
    # sshfs mounts first and connects then: only an answer to a question means ready.
    while not (is_mounted(where) and await _answers(where)):
        if process.returncode is not None:
            text = "; ".join(log.read_text("utf-8", "replace").split("\n")).strip("; ")
            what = f"can't mount {remote.destination()}:{remote_dir}"
            if "No such file" in text or "Not a directory" in text:
                raise MirrorError(what, cause=text, hint="the remote directory must exist")
            if "fuse" in text.lower():
                raise MirrorError(what, cause=text, hint="is FUSE allowed for you? See /dev/fuse")
            raise ConnectionFailed(what, cause=text, transient=True)
        if time.monotonic() > deadline:
            raise TimeoutExpired(
                f"{remote.destination()}:{remote_dir} is not mounted after {_MOUNT_S:.0f} s",
                transient=True,
            )
        await asyncio.sleep(_POLL_S)


async def _answers(where: Path) -> bool:
    """Whether the mounted root can be looked at. Asked by a child, which may block."""
    process = await asyncio.create_subprocess_exec(
        "ls",
        "-d",
        "--",
        f"{where}/.",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(_ANSWER_S):
            return await process.wait() == 0
    except TimeoutError:
        return False
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


async def umount(mountpoint: Path, *, state_dir: Path | None = None) -> bool:
    """Unmount, without root, even when the server is gone: politely, then by ending sshfs,
    which frees whoever is blocked, then lazily. False if nothing was mounted there. Raises
    MirrorError if it is mounted still."""
    where = resolve(mountpoint)
    record = _record(where, state_dir)
    said = ""
    was_mounted = is_mounted(where)
    if was_mounted:
        said = await _fusermount(["-u"], where)
    await _end_sshfs(record / "pid", where)
    if is_mounted(where):
        said = await _fusermount(["-u", "-z"], where)
    if is_mounted(where):
        raise MirrorError(
            f"{where} can't be unmounted",
            cause=said or "unknown",
            hint=f"end the programs that use it, then `fusermount3 -u {shlex.quote(str(where))}`",
        )
    shutil.rmtree(record, ignore_errors=True)
    return was_mounted


def is_mounted(mountpoint: Path) -> bool:
    """Whether an sshfs is mounted exactly there. Reads the mount table; never blocks."""
    where = str(resolve(mountpoint))
    try:
        table = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
    except OSError:  # not Linux
        return os.path.ismount(where)
    for line in table.splitlines():
        fields, _, rest = line.partition(" - ")
        path = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields.split(" ")[4])
        if path == where and rest.startswith("fuse.sshfs "):
            return True
    return False


def resolve(mountpoint: Path) -> Path:
    """The absolute mountpoint, symlinks above it resolved, itself not touched."""
    absolute = Path(os.path.abspath(mountpoint))
    return absolute.parent.resolve() / absolute.name


def _check_programs() -> None:
    if shutil.which("sshfs") is None:
        raise MissingProgram(
            "sshfs is not installed on this computer",
            hint="install it (Debian: apt install sshfs; macOS: macFUSE and sshfs)",
        )
    if os.path.isdir("/proc/self") and not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise MissingProgram(
            "/dev/fuse is not there or not yours to open",
            hint="load the fuse module (modprobe fuse); in a container pass --device /dev/fuse",
        )


def _check_mountpoint(where: Path) -> None:
    cause = hint = None
    if is_mounted(where):
        cause, hint = "it is mounted already", "`tk umount` first"
    elif not where.is_dir() or where.is_symlink():
        cause, hint = "it is not a directory", f"mkdir {shlex.quote(str(where))}"
    elif any(where.iterdir()):
        cause, hint = "it is not empty", "choose an empty directory"
    if cause is not None:
        raise MirrorError(f"can't mount at {where}", cause=cause, hint=hint)


def _record(where: Path, state_dir: Path | None) -> Path:
    base = state_dir or platformdirs.user_state_path("tunnelkit")
    name = hashlib.sha256(str(where).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return base / "sshfs" / name


def _sshfs_argv(remote: Remote, remote_dir: str, where: Path, record: Path) -> list[str]:
    # sshfs splits ssh_command at blanks and FUSE splits options at commas, neither with
    # quotes: the remote shell's words go into a script, which is called by a plain name.
    script = record / "ssh"
    if re.search(r"[\\ ,]", str(script)):
        raise MirrorError(
            f"the state directory {record.parent} has a blank, comma or backslash in its name",
            cause="sshfs can't be told to run a program there",
            hint="set XDG_STATE_HOME to a plain path",
        )
    script.write_text(f'#!/bin/sh\nexec {shlex.join(remote.remote_shell())} "$@"\n')
    script.chmod(0o700)
    path = remote_dir
    if path == "~" or path.startswith("~/"):
        path = path[2:]  # sftp starts in the home directory
    options = ",".join((*_OPTIONS, f"ssh_command=sh {script}"))
    return ["sshfs", "-f", "-o", options, "--", f"{remote.destination()}:{path}", str(where)]


async def _fusermount(options: Sequence[str], where: Path) -> str:
    """Run fusermount. Returns what it said; it may hang on a dead mount, so not for long."""
    program = shutil.which("fusermount3") or shutil.which("fusermount")
    argv = [program, *options, "--", str(where)] if program else ["umount", str(where)]
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_UMOUNT_S / 2):
            _, said = await process.communicate()
            return said.decode("utf-8", "replace").strip()
    except TimeoutError:
        return "no answer"
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


async def _end_sshfs(pid_file: Path, where: Path) -> None:
    """End our sshfs and its ssh, if they still run."""
    try:
        pid = int(pid_file.read_text())
    except (OSError, ValueError):
        return
    for number, patience_s in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 2.0)):
        deadline = time.monotonic() + patience_s
        if number == signal.SIGTERM and not is_mounted(where):
            deadline += 1.0  # it is on its way out already
        while _is_sshfs(pid, where):
            if time.monotonic() > deadline - patience_s:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, number)
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(_POLL_S)


def _is_sshfs(pid: int, where: Path) -> bool:
    """Whether that pid is still the sshfs of this mountpoint, and not someone else's."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except FileNotFoundError:
        if os.path.isdir("/proc/self"):
            return False
        with contextlib.suppress(OSError):
            os.kill(pid, 0)
            return True
        return False
    except OSError:
        return False
    return b"sshfs" in os.path.basename(words[0]) and os.fsencode(where) in words
