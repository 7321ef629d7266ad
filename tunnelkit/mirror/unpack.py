"""What a tar stream brings, put in place on the laptop. The stream is not believed.

All of this blocks, so it runs in a thread of its own.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tarfile
from collections.abc import Callable, Collection
from pathlib import PurePosixPath
from typing import Any, BinaryIO, cast

from tunnelkit.mirror.landing import Landing, hostile, temporary_name
from tunnelkit.mirror.tarstream import Pipe, Stopped
from tunnelkit.mirror.transfer import FetchRule

_CHUNK_BYTES = 1 << 20
_NS = 1_000_000_000
#: Files may grow between the listing and their sending: twice what was listed, and this.
_GROWTH_BYTES = 64 << 20
#: Headers and padding of one file.
_ENTRY_BYTES = 32 << 10
#: tarfile reads a long name, or the extended headers of one file, into memory.
_HEADER_BYTES = 1 << 20


class _Bounded:
    """The stream, up to so many bytes. Raises MirrorError for more."""

    def __init__(self, pipe: Pipe, most_bytes: int, host: str) -> None:
        self._pipe = pipe
        self._left = most_bytes
        self._host = host

    def read(self, size: int) -> bytes:
        data = self._pipe.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise hostile(self._host, "it sends far more than it had listed")
        return data


def _member_type(host: str) -> type[tarfile.TarInfo]:
    """A TarInfo whose headers are bounded, without sparse files, which the far side's own tar
    is never asked for."""

    class Member(tarfile.TarInfo):
        def _proc_member(self, archive: tarfile.TarFile) -> Any:
            listed = self.type in (tarfile.REGTYPE, tarfile.AREGTYPE)
            if self.type == tarfile.GNUTYPE_SPARSE:
                raise hostile(host, "its archive holds a sparse file")
            if not listed and self.size > _HEADER_BYTES:
                raise hostile(host, f"its archive has a header of {self.size} bytes")
            return super()._proc_member(archive)  # type: ignore[misc]

        def _apply_pax_info(self, pax_headers: Any, *more: Any) -> None:
            if any(str(key).startswith("GNU.sparse") for key in pax_headers):
                raise hostile(host, "its archive holds a sparse file")
            super()._apply_pax_info(pax_headers, *more)  # type: ignore[misc]

    return Member


class Unpacker:
    """Puts what a stream brings in place: a temporary beside it, then a rename. Only paths
    that were asked for are touched, whatever the stream says; symlinks come last."""

    def __init__(
        self, root: str, wanted: Collection[str], rule: FetchRule, *, size_bytes: int, host: str
    ) -> None:
        """size_bytes: what was listed; host: the far side, for errors."""
        self._root = root
        self._wanted = frozenset(wanted)
        self._rule = rule
        self._most_bytes = 2 * size_bytes + _GROWTH_BYTES
        self._host = host
        #: (path, is a symlink) of what came; paths that need not; path -> why it could not
        self.came: dict[str, bool] = {}
        self.kept: set[str] = set()
        self.failed: dict[str, str] = {}

    def unpack(self, pipe: Pipe, tell: Callable[[int, str], None]) -> None:
        """Read to the end of the stream. tell: bytes so far, and each path that came. Raises
        tarfile.TarError if it is cut off or is none, MirrorError, Stopped."""
        most = self._most_bytes + _ENTRY_BYTES * (len(self._wanted) + 32)
        stream = _Bounded(pipe, most, self._host)
        landing = Landing(self._root)
        try:
            self._all(stream, landing, tell)
            while stream.read(1 << 16):
                pass
        finally:
            landing.close()

    def _all(self, stream: _Bounded, landing: Landing, tell: Callable[[int, str], None]) -> None:
        links: dict[str, tarfile.TarInfo] = {}
        total = 0
        with tarfile.open(
            fileobj=cast("BinaryIO", stream),
            mode="r|",
            ignore_zeros=True,  # xargs may have called tar more than once
            encoding="utf-8",
            errors="surrogateescape",
            tarinfo=_member_type(self._host),
        ) as archive:
            for member in archive:
                archive.members.clear()  # type: ignore[attr-defined]
                path = member.name.removeprefix("./")
                if path not in self._wanted or path in self.came or member.isdir():
                    continue
                total += member.size
                if total > self._most_bytes:
                    raise hostile(self._host, "it sends far more than it had listed")
                if member.issym():
                    links[path] = member
                elif member.isreg():
                    self._try(archive, landing, member, path)
                else:
                    self.failed[path] = f"{path!a} is neither a file nor a symlink there"
                if path in self.came:
                    tell(total, path)
            self._links(archive, landing, links)
        for path in links.keys() & self.came.keys():
            tell(total, path)

    def _links(
        self, archive: tarfile.TarFile, landing: Landing, links: dict[str, tarfile.TarInfo]
    ) -> None:
        """Make the symlinks. One that leads out by way of another is removed."""
        for path, member in links.items():
            if path not in self.came:
                self._try(archive, landing, member, path)
        if not self._rule.safe_links:
            return
        for path in sorted(links.keys() & self.came.keys()):
            if landing.leads_out(path):
                landing.remove(path)
                del self.came[path]
                self.kept.add(path)

    def _try(
        self, archive: tarfile.TarFile, landing: Landing, member: tarfile.TarInfo, path: str
    ) -> None:
        try:
            self._take(archive, landing, member, path)
        except (Stopped, tarfile.TarError):
            raise
        except OSError as error:
            self.failed[path] = error.strerror or str(error)

    def _take(
        self, archive: tarfile.TarFile, landing: Landing, member: tarfile.TarInfo, path: str
    ) -> None:
        mtime_ns = _mtime_ns(member)
        if member.issym() and self._rule.safe_links and _leads_out(path, member.linkname):
            self.kept.add(path)
            return
        with landing.parent(path, make=True) as (fd, name):
            if self._rule.newer_stays and _stays(fd, name, member, mtime_ns):
                self.kept.add(path)
                return
            temporary = temporary_name()
            try:
                if member.issym():
                    os.symlink(member.linkname, temporary, dir_fd=fd)
                else:
                    self._write(archive, member, fd, temporary)
                times = (mtime_ns, mtime_ns)
                os.utime(temporary, ns=times, dir_fd=fd, follow_symlinks=False)
                self._back_up(fd, name, path)
                os.replace(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=fd)
        self.came[path] = member.issym()

    def _back_up(self, fd: int, name: str, path: str) -> None:
        if self._rule.backup_dir is None:
            return
        try:
            os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return
        backup = os.path.join(self._rule.backup_dir, path)
        os.makedirs(os.path.dirname(backup), mode=0o700, exist_ok=True)
        try:
            os.link(name, backup, src_dir_fd=fd, follow_symlinks=False)
        except (OSError, NotImplementedError):  # macOS links no symlinks
            os.rename(name, backup, src_dir_fd=fd)

    def _write(
        self, archive: tarfile.TarFile, member: tarfile.TarInfo, fd: int, temporary: str
    ) -> None:
        content = archive.extractfile(member)
        assert content is not None
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(temporary, flags, 0o600, dir_fd=fd), "wb") as out:
            while data := content.read(_CHUNK_BYTES):
                out.write(data)
            # A stream that was cut off ends a member early, without an error.
            if out.tell() != member.size:
                raise tarfile.ReadError("unexpected end of data")
            os.fchmod(out.fileno(), member.mode & 0o755)


def _mtime_ns(member: tarfile.TarInfo) -> int:
    # member.mtime is a float, which is too coarse for nanoseconds.
    seconds, _, fraction = member.pax_headers.get("mtime", "").partition(".")
    if seconds.isdigit() and (not fraction or fraction.isdigit()):
        return int(seconds) * _NS + int(f"{fraction:0<9}"[:9])
    return int(member.mtime) * _NS


def _stays(fd: int, name: str, member: tarfile.TarInfo, mtime_ns: int) -> bool:
    """Whether the local file is newer, or the same as far as stat can tell."""
    try:
        here = os.stat(name, dir_fd=fd, follow_symlinks=False)
    except OSError:
        return False
    if member.issym():
        return stat.S_ISLNK(here.st_mode) and os.readlink(name, dir_fd=fd) == member.linkname
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
