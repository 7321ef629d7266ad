"""sshfs: the remote directory mounted on the laptop, nothing copied.

sshfs runs in the foreground of a session of its own, so that its pid is known and it
outlives the process that started it. Its ssh uses the session's connection and can't
make one of its own. When that ssh is ended, blocked readers get an error at once, and sshfs
starts another ssh with the next request: so `cut` frees a mount that does not answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import shlex
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path

import platformdirs

from tunnelkit.errors import (
    ConnectionFailed,
    MirrorError,
    MissingProgram,
    TimeoutExpired,
    UsageError,
)
from tunnelkit.mount.mount_table import (
    MountRecord,
    is_mounted,
    mount_user,
    record_dir,
    resolve,
    ssh_pid,
    sshfs_pids,
)
from tunnelkit.remote_script import RemoteHost, run_script

_MOUNT_S = 30.0
_UMOUNT_S = 3.0
_ANSWER_S = 5.0
_POLL_S = 0.05
_OPTIONS = (
    "reconnect",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=2",
    "idmap=user",
    # no access for other users of this computer: no allow_other, and no permission bits
    "umask=077",
    "default_permissions",
)
_WHERE = r"""
case $1 in "~") set -- "$HOME" ;; "~/"*) set -- "$HOME/${1#"~/"}" ;; esac
[ -e "$1" ] || { echo "$1: No such file or directory" >&2; exit 91; }
[ -d "$1" ] || { echo "$1: Not a directory" >&2; exit 91; }
cd -- "$1" && printf '%s\0' "$(pwd)"
"""


class ProbeAnswer(Enum):
    """The answer of a mount to a probe that no cache can answer."""

    OK = "ok"
    ERROR = "disconnected"  # at once: the link is down
    SILENT = "not answering"


def default_state_dir() -> Path:
    """Return the default directory of the mounts' records."""
    return platformdirs.user_state_path("tunnelkit")


async def mount(
    remote: RemoteHost,
    remote_dir: str,
    mountpoint: Path,
    *,
    state_dir: Path | None = None,
    owner: str = "",
) -> MountRecord:
    """Mount `remote_dir` (absolute, or `~/...`) at `mountpoint`, an empty directory.

    The mount stays until `umount`, and outlives this process. owner: the session, for the record.
    Raises MissingProgram without sshfs or FUSE, MirrorError for a bad mountpoint or directory,
    ConnectionFailed, TimeoutExpired."""
    _check_programs()
    where = resolve(mountpoint)
    _check_mountpoint(where)
    host = remote.destination()
    done = await run_script(
        remote,
        _WHERE,
        [remote_dir],
        what=f"can't mount {remote_dir}",
        hint="the remote directory must exist",
    )
    root = os.fsdecode(done.items[0])
    state_dir = state_dir or default_state_dir()
    directory = record_dir(where, state_dir)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700, parents=True)
    record = MountRecord(str(where), host, remote_dir, root, owner)
    try:
        argv = _sshfs_argv(remote, root, where, directory)
        record.dump(directory)
        with (directory / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (directory / "pid").write_text(f"{process.pid}\n")
        await _mounted(process, f"{host}:{remote_dir}", where, directory / "log")
    except BaseException:
        await umount(where, state_dir=state_dir)
        raise
    return record


async def _mounted(
    process: asyncio.subprocess.Process, source: str, where: Path, log: Path
) -> None:
    deadline = time.monotonic() + _MOUNT_S
    # sshfs mounts first and connects then: only an answer to a probe means ready.
    while not (is_mounted(where) and await ask(where) is ProbeAnswer.OK):
        if process.returncode is not None:
            text = "; ".join(log.read_text("utf-8", "replace").split("\n")).strip("; ")
            if "No such file" in text or "Not a directory" in text:
                raise MirrorError(
                    f"can't mount {source}", cause=text, hint="the remote directory must exist"
                )
            if "fuse" in text.lower():
                hint = "is FUSE allowed for you? See /dev/fuse"
                raise MirrorError(f"can't mount {source}", cause=text, hint=hint)
            raise ConnectionFailed(
                f"can't mount {source}",
                cause=text,
                transient=True,
                hint="does the directory exist there, and does sftp work? tk doctor",
            )
        if time.monotonic() > deadline:
            raise TimeoutExpired(
                f"{source} is not mounted after {_MOUNT_S:.0f} s",
                hint="does the login host offer sftp?",
                transient=True,
            )
        await asyncio.sleep(_POLL_S)


async def ask(where: Path, *, timeout_s: float = _ANSWER_S) -> ProbeAnswer:
    """Probe the server behind a mount.

    A child looks up a name that no cache can know; the child may block."""
    process = await asyncio.create_subprocess_exec(
        *("ls", "-d", "--", f"{where}/.tk-{secrets.token_hex(8)}"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "LC_ALL": "C"},
    )
    try:
        async with asyncio.timeout(timeout_s):
            _, said = await process.communicate()
    except TimeoutError:
        return ProbeAnswer.SILENT
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    answers = (b"No such file", b"Permission denied")
    return ProbeAnswer.OK if any(text in said for text in answers) else ProbeAnswer.ERROR


def cut(where: Path, *, state_dir: Path | None = None) -> bool:
    """End the ssh that carries a mount: blocked readers get an error at once.

    The mount stays, and connects again with the next request. Returns False without such an ssh."""
    pid = ssh_pid(record_dir(where, state_dir or default_state_dir()))
    if pid is None:
        return False
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
    return True


async def umount(mountpoint: Path, *, state_dir: Path | None = None) -> bool:
    """Unmount without root, even if the server does not answer.

    First by fusermount, then by ending sshfs, which frees blocked readers, then lazily. Returns
    False if nothing was mounted there. Raises UsageError if the mount is another user's,
    MirrorError if it is still mounted."""
    where = resolve(mountpoint)
    state_dir = state_dir or default_state_dir()
    directory = record_dir(where, state_dir)
    said = ""
    user = mount_user(where)
    if user not in (None, os.getuid()):
        raise UsageError(
            f"the sshfs at {where} is not yours",
            cause=f"the user with uid {user} mounted it",
            hint="only that user, or root, can unmount it",
        )
    if user is not None:
        said = await _fusermount(["-u"], where)
    await _end(lambda: sshfs_pids(where, directory), gone=not is_mounted(where))
    cut(where, state_dir=state_dir)
    if is_mounted(where):
        said = await _fusermount(["-u", "-z"], where)
    if is_mounted(where):
        raise MirrorError(
            f"{where} can't be unmounted",
            cause=said or "unknown",
            hint=f"end the programs that use it, then `fusermount3 -u {shlex.quote(str(where))}`",
        )
    shutil.rmtree(directory, ignore_errors=True)
    return user is not None


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


def _sshfs_argv(remote: RemoteHost, root: str, where: Path, record: Path) -> list[str]:
    # sshfs splits ssh_command at blanks and FUSE splits options at commas, neither with
    # quotes: the remote shell's words go into a script, which is called by a plain name.
    script = record / "ssh"
    if re.search(r"[\\ ,]", str(script)):
        raise MirrorError(
            f"the state directory {record.parent} has a blank, comma or backslash in its name",
            cause="sshfs can't start a program there",
            hint="set TK_STATE_DIR to a plain path",
        )
    # sshfs disowns its ssh, so only the ssh itself can write down its pid.
    pid_file, words = shlex.quote(str(record / "ssh.pid")), shlex.join(remote.remote_shell())
    script.write_text(f'#!/bin/sh\necho $$ >{pid_file}\nexec {words} "$@"\n')
    script.chmod(0o700)
    options = ",".join((*_OPTIONS, f"ssh_command=sh {script}"))
    return ["sshfs", "-f", "-o", options, "--", f"{remote.destination()}:{root}", str(where)]


async def _fusermount(options: Sequence[str], where: Path) -> str:
    """Run fusermount, for a short time since it may hang on a dead mount; return its message."""
    program = shutil.which("fusermount3") or shutil.which("fusermount")
    argv = [program, *options, "--", str(where)] if program else ["umount", str(where)]
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_UMOUNT_S):
            _, said = await process.communicate()
            return said.decode("utf-8", "replace").strip()
    except TimeoutError:
        return "no answer"
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


async def _end(running: Callable[[], set[int]], *, gone: bool) -> None:
    """End these sshfs: TERM, then KILL. gone: they are ending already."""
    first: list[tuple[int, float]] = [(0, 1.0)] if gone else []  # 0 does nothing
    for number, patience_s in (*first, (signal.SIGTERM, 2.0), (signal.SIGKILL, 2.0)):
        deadline = time.monotonic() + patience_s
        pids = running()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        while pids and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_S)
            pids = running()
        if not pids:
            return
