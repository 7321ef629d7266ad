"""The laptop's end of a tar stream: packs what is sent, and the pipe for both directions.

All of this blocks, so it runs in its own thread, over a pipe to ssh. The pipe's ends check every
0.3 s for `stop`: a dead link must not keep a thread."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import select
import stat
import tarfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import BinaryIO, Protocol, cast

from tunnelkit.mirror.tree.paths import with_parents
from tunnelkit.mirror.tree.scanner import DIR, Entry, kept_mode

_TICK_S = 0.3
_CHUNK_BYTES = 1 << 20
_NS = 1_000_000_000

#: Called with the content bytes and the number of files sent so far.
Through = Callable[[int, int], None]


class Stopped(Exception):
    """The transfer was stopped by its owner."""


class Pipe:
    """A pipe's end as a file object.

    moved_at: `time.monotonic` of the last byte, or of a sign of life of the other end.
    passed_at: of the last byte alone."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._stop = threading.Event()
        self._over = False
        self.moved_at = self.passed_at = time.monotonic()

    def stop(self) -> None:
        """End a read or write that waits (any thread)."""
        self._stop.set()

    def drop(self) -> None:
        """Drop what is written from now on: tarfile writes once more when it is deleted."""
        self._over = True

    def write(self, data: bytes) -> int:
        """Write all of `data`. Raises Stopped, also if the remote command has ended."""
        view = memoryview(data)
        while view and not self._over:
            if self._stop.is_set():
                self.drop()
                raise Stopped
            if select.select((), (self._fd,), (), _TICK_S)[1]:
                try:
                    view = view[os.write(self._fd, view) :]
                    self.moved_at = self.passed_at = time.monotonic()
                except BlockingIOError:
                    continue
                except BrokenPipeError:  # the remote command ended: its exit code says why
                    self.drop()
                    raise Stopped from None
        return len(data)

    def read(self, size: int) -> bytes:
        """Read up to `size` bytes. Raises Stopped."""
        while True:
            if self._stop.is_set():
                raise Stopped
            if select.select((self._fd,), (), (), _TICK_S)[0]:
                with contextlib.suppress(BlockingIOError):
                    data = os.read(self._fd, size)
                    self.moved_at = self.passed_at = time.monotonic()
                    return data

    def finish(self) -> None:
        """Signal the end of the stream; harmless on a reader. Only for the thread that uses it."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class Archive(tarfile.TarFile):
    """A tar archive, with the attributes that the standard library does not document."""

    members: list[tarfile.TarInfo]
    copybufsize: int


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...


class _Exactly(io.RawIOBase):
    """A file's content in exactly the length that its header promised.

    Padded with zeros if the file shrinks meanwhile. sha: gets what is read."""

    def __init__(
        self, stream: io.FileIO, size: int, tell: Callable[[int], None], sha: _Hash | None
    ) -> None:
        self._stream = stream
        self._left = size
        self._tell = tell
        self._sha = sha
        self.short = False

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        data = b""
        if not self.short:
            with contextlib.suppress(OSError):
                data = self._stream.read(wanted)
        if len(data) < wanted:
            self.short = True
            data += b"\0" * (wanted - len(data))
        if self._sha is not None:
            self._sha.update(data)
        self._left -= wanted
        self._tell(wanted)
        return data


class Packer:
    """Writes one archive.

    seen: what the caller knows the content of. note: called before `end`, hence before anything
    is put in place, with the digests of those that are sent with other content.

    Its members: `dirs`, `late`, `keep` (lists for the remote script), the tree below `t/`, `void`,
    and `end`, which shows that nothing was cut off."""

    def __init__(
        self,
        root: str,
        pipe: Pipe,
        *,
        pax: bool,
        through: Through,
        seen: Mapping[str, Entry] | None = None,
        note: Callable[[Mapping[str, str]], None] = lambda digests: None,
    ) -> None:
        self._root = root
        self._pipe = pipe
        self._pax = pax
        self._seen = seen or {}
        self._note = note
        self._other: dict[str, str] = {}
        self._through = through
        self._bytes = self._files = 0
        self._archive = Archive.open(
            fileobj=cast("BinaryIO", pipe),
            mode="w|",
            bufsize=_CHUNK_BYTES // 4,
            format=tarfile.PAX_FORMAT if pax else tarfile.GNU_FORMAT,
            encoding="utf-8",
            errors="surrogateescape",
        )
        self._archive.copybufsize = _CHUNK_BYTES
        #: paths that were gone, could not be read, or changed while they were read
        self.lost: list[str] = []

    def pack(self, paths: Collection[str], *, keep: Collection[str] = ()) -> None:
        """Send these paths, and the directories above them.

        keep: those of the paths whose remote files are moved to the backup first."""
        infos = {path: info for path in with_parents(paths) if (info := self._lstat(path))}
        dirs = [path for path in sorted(infos) if stat.S_ISDIR(infos[path].st_mode)]
        modes = {path: kept_mode(infos[path].st_mode) for path in dirs}
        self._list("dirs", [f"{modes[path]:04o} ./{path}" for path in dirs])
        closed = [path for path in reversed(dirs) if modes[path] & 0o700 != 0o700]
        self._list("late", [f"{modes[path]:04o} ./{path}" for path in closed])
        self._list("keep", [f"./{path}" for path in sorted(keep)])
        for path in dirs:
            member = self._info(path, infos[path], tarfile.DIRTYPE)
            member.mode |= 0o700  # writable until its files have been moved
            self._archive.addfile(member)
        void = []
        for path in sorted(infos.keys() - modes.keys()):
            try:
                whole = self._add(path, infos[path])
            except OSError:
                self.lost.append(path)
                continue
            if not whole:
                self.lost.append(path)
                void.append(f"./{path}")
            self._files += 1
            self._through(self._bytes, self._files)
        self._list("void", void)
        if self._other:
            try:
                self._note(self._other)
            except BaseException:
                self._pipe.drop()
                raise
        self._list("end", [])
        self._archive.close()

    def _lstat(self, path: str) -> os.stat_result | None:
        try:
            info = os.lstat(os.path.join(self._root, path))
        except OSError:
            self.lost.append(path)
            return None
        seen = self._seen.get(path)
        turned = seen is not None and (seen.kind == DIR) != stat.S_ISDIR(info.st_mode)
        if not turned and stat.S_IFMT(info.st_mode) in (stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR):
            return info
        self.lost.append(path)
        return None

    def _add(self, path: str, info: os.stat_result) -> bool:
        """Send one file or symlink. Return True if it is complete.

        Raises OSError before anything is sent, if it can't be read."""
        full = os.path.join(self._root, path)
        if stat.S_ISLNK(info.st_mode):
            member = self._info(path, info, tarfile.SYMTYPE)
            member.linkname = os.readlink(full)
            self._archive.addfile(member)
            if self._is_other(path, os.lstat(full)):
                self._other[path] = hashlib.sha256(os.fsencode(member.linkname)).hexdigest()
            return True
        fd = os.open(full, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb", buffering=0) as stream:
            before = os.fstat(fd)
            sha = hashlib.sha256() if self._is_other(path, before) else None
            member = self._info(path, before, tarfile.REGTYPE)
            member.size = before.st_size
            content = _Exactly(stream, member.size, self._count, sha)
            self._archive.addfile(member, content)
            after = os.fstat(fd)
        whole = Entry.of(before) == Entry.of(after) and not content.short
        if whole and sha is not None:
            self._other[path] = sha.hexdigest()
        return whole

    def _is_other(self, path: str, info: os.stat_result) -> bool:
        # After a kill -9, tk could not tell unknown content from an edit on the cluster.
        return path in self._seen and Entry.of(info) != self._seen[path]

    def _count(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        self._through(self._bytes, self._files)

    def _info(self, path: str, info: os.stat_result, kind: bytes) -> tarfile.TarInfo:
        member = tarfile.TarInfo(f"t/{path}")
        member.type = kind
        member.mode = kept_mode(info.st_mode)
        seconds, fraction = divmod(info.st_mtime_ns, _NS)
        member.mtime = seconds
        if self._pax:
            # The first header: names are bytes, whatever the locale.
            member.pax_headers = {"hdrcharset": "BINARY"}
            if fraction and seconds >= 0:
                member.pax_headers["mtime"] = f"{seconds}.{fraction:09}"
        return member

    def _list(self, name: str, items: Iterable[str]) -> None:
        data = b"".join(os.fsencode(item) + b"\0" for item in items)
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(data), 0o600
        self._archive.addfile(member, io.BytesIO(data))
