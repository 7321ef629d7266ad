"""The laptop's end of a tar stream: what is sent, packed; what comes, put in place.

All of this blocks, so it runs in a thread of its own, over a pipe to ssh. The pipe's ends
look every moment whether they are still wanted: a dead link must not keep a thread.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import select
import stat
import tarfile
import threading
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import PurePosixPath
from typing import BinaryIO, cast

from tunnelkit.mirror.plan import with_parents
from tunnelkit.mirror.transfer import FetchRule

_TICK_S = 0.3
_CHUNK_BYTES = 1 << 20
_NS = 1_000_000_000

#: Told the content bytes and the files that are through.
Through = Callable[[int, int], None]


class Stopped(Exception):
    """The transfer was given up by its owner."""


class Pipe:
    """A pipe's end as a file object. `stop`, from any thread, ends a read or write that
    waits. moved_at: `time.monotonic` of the last byte."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._stop = threading.Event()
        self._over = False
        self.moved_at = time.monotonic()

    def stop(self) -> None:
        self._stop.set()

    def write(self, data: bytes) -> int:
        view = memoryview(data)
        while view and not self._over:  # tarfile tries once more when it is thrown away
            if self._stop.is_set():
                self._over = True
                raise Stopped
            if select.select((), (self._fd,), (), _TICK_S)[1]:
                try:
                    view = view[os.write(self._fd, view) :]
                    self.moved_at = time.monotonic()
                except BlockingIOError:
                    continue
                except BrokenPipeError:  # the far side ended: its exit code tells why
                    self._over = True
                    raise Stopped from None
        return len(data)

    def read(self, size: int) -> bytes:
        while True:
            if self._stop.is_set():
                raise Stopped
            if select.select((self._fd,), (), (), _TICK_S)[0]:
                with contextlib.suppress(BlockingIOError):
                    data = os.read(self._fd, size)
                    self.moved_at = time.monotonic()
                    return data

    def finish(self) -> None:
        """Let the other side see the end; harmless on a reader. Only for who writes or reads."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class _Exactly(io.RawIOBase):
    """A file's content in just the length that its header promised, whatever happens to the
    file meanwhile."""

    def __init__(self, stream: BinaryIO, size: int, tell: Callable[[int], None]) -> None:
        self._stream = stream
        self._left = size
        self._tell = tell
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
        self._left -= wanted
        self._tell(wanted)
        return data


class Packer:
    """Writes one archive: `dirs`, `late`, `keep` (lists for the far side's script), the tree
    below `t/`, `void`, and `end`, which says that nothing was cut off."""

    def __init__(self, root: str, pipe: Pipe, *, pax: bool, through: Through) -> None:
        self._root = root
        self._pax = pax
        self._through = through
        self._bytes = self._files = 0
        self._archive = tarfile.open(  # noqa: SIM115 - closed in `pack`
            fileobj=cast("BinaryIO", pipe),
            mode="w|",
            bufsize=_CHUNK_BYTES // 4,
            format=tarfile.PAX_FORMAT if pax else tarfile.GNU_FORMAT,
            encoding="utf-8",
            errors="surrogateescape",
        )
        self._archive.copybufsize = _CHUNK_BYTES  # type: ignore[attr-defined]
        #: paths that were gone, could not be read, or changed while they were read
        self.lost: list[str] = []

    def pack(self, paths: Collection[str], *, keep: Collection[str] = ()) -> None:
        """Send these paths, and the directories above them. keep: of these, what is there
        is moved to the backup first."""
        infos = {path: info for path in with_parents(paths) if (info := self._lstat(path))}
        dirs = [path for path in sorted(infos) if stat.S_ISDIR(infos[path].st_mode)]
        modes = {path: stat.S_IMODE(infos[path].st_mode) for path in dirs}
        self._list("dirs", [f"{modes[path]:04o} ./{path}" for path in dirs])
        closed = [path for path in reversed(dirs) if modes[path] & 0o700 != 0o700]
        self._list("late", [f"{modes[path]:04o} ./{path}" for path in closed])
        self._list("keep", [f"./{path}" for path in sorted(keep)])
        for path in dirs:
            member = self._info(path, infos[path], tarfile.DIRTYPE)
            member.mode |= 0o700  # until its files have been moved
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
        self._list("end", [])
        self._archive.close()

    def _lstat(self, path: str) -> os.stat_result | None:
        try:
            info = os.lstat(os.path.join(self._root, path))
        except OSError:
            self.lost.append(path)
            return None
        if stat.S_IFMT(info.st_mode) in (stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR):
            return info
        self.lost.append(path)
        return None

    def _add(self, path: str, info: os.stat_result) -> bool:
        """Send one file or symlink. Returns whether it is whole. Raises OSError, before
        anything is sent, if it can't be read."""
        full = os.path.join(self._root, path)
        if stat.S_ISLNK(info.st_mode):
            member = self._info(path, info, tarfile.SYMTYPE)
            member.linkname = os.readlink(full)
            self._archive.addfile(member)
            return True
        fd = os.open(full, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb", buffering=0) as stream:
            before = os.fstat(fd)
            member = self._info(path, before, tarfile.REGTYPE)
            member.size = before.st_size
            content = _Exactly(cast("BinaryIO", stream), member.size, self._count)
            self._archive.addfile(member, cast("BinaryIO", content))
            after = os.fstat(fd)
        same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
        return same and not content.short

    def _count(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        self._through(self._bytes, self._files)

    def _info(self, path: str, info: os.stat_result, kind: bytes) -> tarfile.TarInfo:
        member = tarfile.TarInfo(f"t/{path}")
        member.type = kind
        member.mode = stat.S_IMODE(info.st_mode)
        seconds, fraction = divmod(info.st_mtime_ns, _NS)
        member.mtime = seconds
        if self._pax:
            # First: it says that names are bytes, which no locale has a say in.
            member.pax_headers = {"hdrcharset": "BINARY"}
            if fraction and seconds >= 0:
                member.pax_headers["mtime"] = f"{seconds}.{fraction:09}"
        return member

    def _list(self, name: str, items: Iterable[str]) -> None:
        data = b"".join(os.fsencode(item) + b"\0" for item in items)
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(data), 0o600
        self._archive.addfile(member, io.BytesIO(data))


class Unpacker:
    """Puts what a stream brings in place: a temporary beside it, then a rename. Only paths
    that were asked for are touched, whatever the stream says."""

    def __init__(self, root: str, wanted: Collection[str], rule: FetchRule) -> None:
        self._root = root
        self._wanted = frozenset(wanted)
        self._rule = rule
        #: (path, is a symlink) of what came; paths that need not; path -> why it could not
        self.came: dict[str, bool] = {}
        self.kept: set[str] = set()
        self.failed: dict[str, str] = {}

    def unpack(self, pipe: Pipe, tell: Callable[[int, str], None]) -> None:
        """Read to the end of the stream. tell: bytes so far, and each path that came. Raises
        tarfile.TarError if it is cut off or is none, Stopped."""
        total = 0
        with tarfile.open(
            fileobj=cast("BinaryIO", pipe),
            mode="r|",
            ignore_zeros=True,  # xargs may have called tar more than once
            encoding="utf-8",
            errors="surrogateescape",
        ) as archive:
            for member in archive:
                path = member.name.removeprefix("./")
                if path not in self._wanted or not (member.isreg() or member.issym()):
                    continue
                total += member.size
                try:
                    self._take(archive, member, path)
                except (Stopped, tarfile.TarError):
                    raise
                except OSError as error:
                    self.failed[path] = error.strerror or str(error)
                if path in self.came:
                    tell(total, path)

    def _take(self, archive: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
        full = os.path.join(self._root, path)
        mtime_ns = _mtime_ns(member)
        if member.issym() and self._rule.safe_links and _leads_out(path, member.linkname):
            self.kept.add(path)
            return
        if self._rule.newer_stays and _stays(full, member, mtime_ns):
            self.kept.add(path)
            return
        os.makedirs(os.path.dirname(full), exist_ok=True)
        temporary = os.path.join(os.path.dirname(full), f".tk-{secrets.token_hex(8)}")
        try:
            if member.issym():
                os.symlink(member.linkname, temporary)
            else:
                self._write(archive, member, temporary)
            os.utime(temporary, ns=(mtime_ns, mtime_ns), follow_symlinks=False)
            if self._rule.backup_dir is not None and os.path.lexists(full):
                backup = os.path.join(self._rule.backup_dir, path)
                os.makedirs(os.path.dirname(backup), mode=0o700, exist_ok=True)
                try:
                    os.link(full, backup, follow_symlinks=False)
                except (OSError, NotImplementedError):  # macOS links no symlinks
                    os.rename(full, backup)
            os.replace(temporary, full)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
        self.came[path] = member.issym()

    def _write(self, archive: tarfile.TarFile, member: tarfile.TarInfo, temporary: str) -> None:
        content = archive.extractfile(member)
        assert content is not None
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(temporary, flags, 0o600), "wb") as out:
            while data := content.read(_CHUNK_BYTES):
                out.write(data)
            # A stream that was cut off ends a member early, without an error.
            if out.tell() != member.size:
                raise tarfile.ReadError("unexpected end of data")
            os.fchmod(out.fileno(), member.mode & 0o777)


def _mtime_ns(member: tarfile.TarInfo) -> int:
    # member.mtime is a float, which is too coarse for nanoseconds.
    seconds, _, fraction = member.pax_headers.get("mtime", "").partition(".")
    if seconds.isdigit() and (not fraction or fraction.isdigit()):
        return int(seconds) * _NS + int(f"{fraction:0<9}"[:9])
    return int(member.mtime) * _NS


def _stays(full: str, member: tarfile.TarInfo, mtime_ns: int) -> bool:
    """Whether the local file is newer, or the same as far as stat can tell."""
    try:
        here = os.lstat(full)
    except OSError:
        return False
    if member.issym():
        return stat.S_ISLNK(here.st_mode) and os.readlink(full) == member.linkname
    if not stat.S_ISREG(here.st_mode):
        return False
    # Some tars carry whole seconds.
    exact = "mtime" in member.pax_headers
    ours_ns = here.st_mtime_ns if exact else here.st_mtime_ns // _NS * _NS
    return ours_ns > mtime_ns or (ours_ns == mtime_ns and here.st_size == member.size)


def _leads_out(path: str, target: str) -> bool:
    if target.startswith("/"):
        return True
    depth = len(PurePosixPath(path).parts) - 1
    for part in target.split("/"):
        if part == "..":
            depth -= 1
        elif part not in ("", "."):
            depth += 1
        if depth < 0:
            return True
    return False
