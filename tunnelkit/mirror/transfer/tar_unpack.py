"""Unpacks a tar stream on the laptop. The stream is not trusted.

All of this blocks, so it runs in its own thread."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, BinaryIO, cast

from tunnelkit.mirror.transfer.base import FetchRule
from tunnelkit.mirror.transfer.destination import FAR_MORE, hostile, most_bytes
from tunnelkit.mirror.transfer.placement import NEW, Arrival, Placer
from tunnelkit.mirror.transfer.tar_archive import Archive, Pipe
from tunnelkit.remote_script import MARK

_CHUNK_BYTES = 1 << 20
_NS = 1_000_000_000
#: Headers and padding of one file.
_ENTRY_BYTES = 32 << 10
#: tarfile reads a long name, or the extended headers of one file, into memory.
_HEADER_BYTES = 1 << 20
#: Limit for what a login shell may print first.
_NOISE_BYTES = 1 << 20


class AfterMark:
    """The stream after `mark`. The login shell printed what comes before it.

    Raises tarfile.ReadError if the mark does not come."""

    def __init__(self, pipe: Pipe, mark: bytes) -> None:
        self._pipe = pipe
        self._mark = mark
        self._head: bytes | None = None

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most `size`; b"" at the end."""
        if self._head is None:
            self._head = self._find()
        data, self._head = self._head[:size], self._head[size:]
        return data or self._pipe.read(size)

    def _find(self) -> bytes:
        seen = b""
        while len(seen) < _NOISE_BYTES:
            data = self._pipe.read(1 << 16)
            seen += data
            _, found, rest = seen.partition(self._mark)
            if found:
                return rest
            if not data:
                break
        raise tarfile.ReadError("no archive came")


class _Bounded:
    """The stream, limited to a number of bytes. Raises MirrorError for more."""

    def __init__(self, pipe: AfterMark, most_bytes: int, host: str) -> None:
        self._pipe = pipe
        self._left = most_bytes
        self._host = host

    def read(self, size: int) -> bytes:
        data = self._pipe.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise hostile(self._host, FAR_MORE)
        return data


if TYPE_CHECKING:

    class _TarInfo(tarfile.TarInfo):
        """The methods that `tarfile` itself calls for each header."""

        def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo | None: ...
        def _apply_pax_info(self, pax_headers: Mapping[str, str], *more: object) -> None: ...
else:
    _TarInfo = tarfile.TarInfo


def _member_type(host: str) -> type[tarfile.TarInfo]:
    """Return a TarInfo class with limited headers and without sparse files.

    The remote tar is never asked for sparse files."""

    class Member(_TarInfo):
        def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo | None:
            listed = self.type in (tarfile.REGTYPE, tarfile.AREGTYPE)
            if self.type == tarfile.GNUTYPE_SPARSE:
                raise hostile(host, "its archive holds a sparse file")
            if not listed and self.size > _HEADER_BYTES:
                raise hostile(host, f"its archive has a header of {self.size} bytes")
            return super()._proc_member(archive)

        def _apply_pax_info(self, pax_headers: Mapping[str, str], *more: object) -> None:
            if any(str(key).startswith("GNU.sparse") for key in pax_headers):
                raise hostile(host, "its archive holds a sparse file")
            super()._apply_pax_info(pax_headers, *more)

    return Member


class Unpacker:
    """Puts the files of a stream in place: writes a temporary beside each, then renames it.

    Only requested paths are touched, whatever the stream says. Symlinks come last."""

    def __init__(
        self, root: str, wanted: Collection[str], rule: FetchRule, *, size_bytes: int, host: str
    ) -> None:
        """size_bytes: the listed size. host: the sender, for errors."""
        self._wanted = frozenset(wanted)
        self._most_bytes = most_bytes(size_bytes)
        self._host = host
        self._placer = Placer(root, rule)
        #: see `Placer`
        self.came = self._placer.came
        self.kept = self._placer.kept
        self.failed = self._placer.failed

    def unpack(self, pipe: Pipe, tell: Callable[[int], None]) -> None:
        """Read to the end of the stream.

        tell: called with each file with the bytes so far.
        Raises tarfile.TarError if the stream is cut off or is no archive; MirrorError or Stopped.
        """
        most = self._most_bytes + _ENTRY_BYTES * (len(self._wanted) + 32)
        stream = _Bounded(AfterMark(pipe, MARK), most, self._host)
        try:
            self._all(stream, tell)
            while stream.read(1 << 16):
                pass
        finally:
            self._placer.close()

    def _all(self, stream: _Bounded, tell: Callable[[int], None]) -> None:
        links: dict[str, Arrival] = {}
        total = 0
        with Archive.open(
            fileobj=cast("BinaryIO", stream),
            mode="r|",
            ignore_zeros=True,  # xargs may have called tar more than once
            encoding="utf-8",
            errors="surrogateescape",
            tarinfo=_member_type(self._host),
        ) as archive:
            for member in archive:
                archive.members.clear()
                path = member.name.removeprefix("./")
                if path not in self._wanted or path in self.came or member.isdir():
                    continue
                total += member.size
                if total > self._most_bytes:
                    raise hostile(self._host, FAR_MORE)
                if member.issym():
                    links[path] = _arrival(member)
                elif member.isreg():
                    self._take(archive, member, path)
                else:
                    self.failed[path] = f"{path!a} is neither a file nor a symlink there"
                tell(total)
            self._placer.links(links)
        tell(total)

    def _take(self, archive: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
        def make(fd: int, name: str) -> None:
            self._write(archive, member, fd, name)

        self._placer.file(path, _arrival(member), make)

    def _write(
        self, archive: tarfile.TarFile, member: tarfile.TarInfo, fd: int, temporary: str
    ) -> None:
        content = archive.extractfile(member)
        assert content is not None
        with open(os.open(temporary, NEW, 0o600, dir_fd=fd), "wb") as out:
            while data := content.read(_CHUNK_BYTES):
                out.write(data)
            # In a stream that was cut off, a member ends early without an error.
            if out.tell() != member.size:
                raise tarfile.ReadError("unexpected end of data")
            os.fchmod(out.fileno(), member.mode & 0o755)


def _mtime_ns(member: tarfile.TarInfo) -> int:
    # member.mtime is a float, which is too coarse for nanoseconds.
    seconds, _, fraction = member.pax_headers.get("mtime", "").partition(".")
    if seconds.isdigit() and (not fraction or fraction.isdigit()):
        return int(seconds) * _NS + int(f"{fraction:0<9}"[:9])
    return int(member.mtime) * _NS


def _arrival(member: tarfile.TarInfo) -> Arrival:
    target = member.linkname if member.issym() else None
    # Some tar programs send whole seconds only.
    exact = "mtime" in member.pax_headers
    return Arrival(member.size, _mtime_ns(member), target, exact)
