"""Fetches big files where there is no rsync, each on from where the last attempt ended.

What came so far lies in the rule's private directory, under a name made of path, size and time. A
part of another version is never used: the digest of the whole file is compared before it is put in
place.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import subprocess
import tarfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import IO

from tunnelkit.mirror.remote.edits import remote_digests
from tunnelkit.mirror.remote.scripts import RemoteStat
from tunnelkit.mirror.transfer.base import FetchRule, TransferResult
from tunnelkit.mirror.transfer.destination import FAR_MORE, hostile, most_bytes
from tunnelkit.mirror.transfer.placement import Arrival, Placer
from tunnelkit.mirror.transfer.stream import broke_off, far_script, run_stream
from tunnelkit.mirror.transfer.tar_archive import Pipe
from tunnelkit.mirror.transfer.tar_scripts import NO_FILE, PART
from tunnelkit.mirror.transfer.tar_unpack import AfterMark
from tunnelkit.mirror.tree.scanner import FILE
from tunnelkit.remote_script import MARK, RemoteHost

_NS = 1_000_000_000
_CHUNK_BYTES = 1 << 20
_BYTES_PER_S = 256 << 10
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_GONE = "is no file there any more"
#: Permissions that a received file may have.
_KEPT_MODE = 0o755


class BigFetch:
    """One fetch into `rule.partial_dir` and from there into `local_root`.

    tell: called (in any thread) with the bytes that are here so far.
    """

    def __init__(
        self,
        remote: RemoteHost,
        local_root: str,
        remote_root: str,
        rule: FetchRule,
        tell: Callable[[int], None],
    ) -> None:
        assert rule.partial_dir is not None
        self._remote = remote
        self._remote_root = remote_root
        self._rule = rule
        self._parts: Path = rule.partial_dir
        self._placer = Placer(local_root, rule)
        self._tell = tell
        self._gone: set[str] = set()
        self._here_bytes = 0

    async def run(
        self,
        paths: Collection[str],
        there: Mapping[str, tuple[RemoteStat, int]],
        *,
        size_bytes: int,
    ) -> TransferResult:
        """Fetch these paths, one after the other.

        there: stat and permission bits of each. size_bytes: the listed size of all.
        Raises ConnectionFailed if the link failed: the next call goes on from there. Raises
        MirrorError for a host that has far more than it listed.
        """
        failed = self._placer.failed
        if sum(found.size for found, _ in there.values()) > most_bytes(size_bytes):
            raise hostile(self._remote.destination(), FAR_MORE)
        try:
            for path in sorted(paths):
                found = there.get(path)
                if found is None or found[0].kind != FILE:
                    failed[path] = f"{path!a} {_GONE}"
                    if found is None:
                        self._gone.add(path)
                else:
                    await self._fetch(path, *found)
        finally:
            await asyncio.to_thread(self._placer.close)
        text = next(iter(failed.values()), "")
        came, kept = frozenset(self._placer.came), frozenset(self._placer.kept)
        not_placed = frozenset(failed.keys() - self._gone)
        return TransferResult(23 if failed else 0, b"", text, came, not_placed, kept)

    async def _fetch(self, path: str, found: RemoteStat, mode: int) -> None:
        arrival = Arrival(found.size, found.mtime_s * _NS, exact=False)
        if not await asyncio.to_thread(self._placer.needs, path, arrival):
            return
        part = self._parts / _part_name(path, found)
        try:
            offset = _size(part)
            if offset > found.size:
                part.unlink()
                offset = 0
            self._come(offset)
            if offset < found.size:
                await self._stream(path, part, offset, found.size)
            await self._finish(path, part, arrival, mode)
        except OSError as error:
            self._placer.failed[path] = f"{path!a}: {error.strerror or error}"

    async def _stream(self, path: str, part: Path, offset: int, size_bytes: int) -> None:
        """Fetch the bytes from `offset` on. Raises ConnectionFailed, OSError."""
        failed: list[OSError] = []

        def receive(pipe: Pipe) -> None:
            try:
                with open(os.open(part, _APPEND, 0o600), "ab", buffering=0) as out:
                    self._receive(AfterMark(pipe, MARK), out, size_bytes - offset)
            except OSError as error:
                failed.append(error)
            except tarfile.ReadError:
                pass  # nothing came: the size shows it

        words = (f"./{path}", str(offset + 1), str(size_bytes - offset))
        code, said = await run_stream(
            self._remote,
            far_script(PART, self._remote_root, *words),
            receive,
            stdin=subprocess.DEVNULL,
            stall_s=self._rule.stall_s,
            budget_s=60.0 + size_bytes / _BYTES_PER_S,
        )
        if failed:
            raise failed[0]
        if code == NO_FILE:
            self._gone.add(path)
            part.unlink(missing_ok=True)
            raise FileNotFoundError(errno.ENOENT, _GONE)
        here = _size(part)
        if here < size_bytes:
            raise broke_off(self._remote, said or f"{here} of {size_bytes} bytes of {path!a} came")

    def _receive(self, stream: AfterMark, out: IO[bytes], left: int) -> None:
        while left and (data := stream.read(min(_CHUNK_BYTES, left))):
            out.write(data)
            left -= len(data)
            self._come(len(data))

    async def _finish(self, path: str, part: Path, arrival: Arrival, mode: int) -> None:
        """Put the file in place if it is the same as there, else forget it."""
        facts = RemoteStat(FILE, arrival.size, arrival.mtime_ns // _NS)
        wanted = (await remote_digests(self._remote, self._remote_root, {path: facts})).get(path)
        if wanted is None:
            self._gone.add(path)  # or it can't be read any more, which the next attempt shows
        if wanted != await asyncio.to_thread(_digest, part):
            part.unlink()
            self._placer.failed[path] = f"{path!a} changed while it was fetched"
            return
        await asyncio.to_thread(self._place, path, part, arrival, mode)

    def _place(self, path: str, part: Path, arrival: Arrival, mode: int) -> None:
        part.chmod(mode & _KEPT_MODE)
        os.utime(part, ns=(arrival.mtime_ns, arrival.mtime_ns))
        fd = os.open(self._parts, _DIRECTORY)
        try:
            self._placer.move(path, arrival, mode & _KEPT_MODE, fd, part.name)
        finally:
            os.close(fd)

    def _come(self, count: int) -> None:
        self._here_bytes += count
        self._tell(self._here_bytes)


def _part_name(path: str, found: RemoteStat) -> str:
    version = f"{path}\0{found.size}\0{found.mtime_s}"
    return hashlib.sha256(version.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _size(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return path.lstat().st_size
    return 0


def _digest(path: Path) -> str:
    with open(os.open(path, _READ), "rb", buffering=0) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
