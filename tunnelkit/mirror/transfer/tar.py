"""Transfers files by a tar stream, where one end has no usable rsync.

On the laptop, tk itself packs and unpacks. The login host needs sh, tar and coreutils. Files are
sent whole, without deltas. An interrupted transfer starts from the beginning."""

from __future__ import annotations

import asyncio
import os
import stat
import tarfile
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

from tunnelkit.errors import MirrorError, MissingProgram
from tunnelkit.mirror.api import name_paths
from tunnelkit.mirror.remote.edits import remote_digests
from tunnelkit.mirror.remote.scripts import RemoteStat, encode
from tunnelkit.mirror.transfer.base import FetchRule, Known, TransferResult, progress_line
from tunnelkit.mirror.transfer.big_fetch import BigFetch
from tunnelkit.mirror.transfer.stream import broke_off, far_script, run_stream
from tunnelkit.mirror.transfer.tar_archive import Packer, Pipe
from tunnelkit.mirror.transfer.tar_scripts import CUT_OFF, LOOK, PACK, REFUSED, UNPACK
from tunnelkit.mirror.transfer.tar_unpack import Unpacker
from tunnelkit.mirror.tree.scanner import DIR, FILE, LINK, digest, lstat
from tunnelkit.remote_script import RemoteHost, run_script

_STALL_S = 15.0
_MOST_STREAMS = 30
_SSH_FAILED = 255
_NOT_FOUND = frozenset({126, 127})
_KINDS = {stat.S_IFREG: FILE, stat.S_IFDIR: DIR, stat.S_IFLNK: LINK}
_NS = 1_000_000_000


class TarTransfer:
    """A `Transfer` by tar. far_tar: the first line of `tar --version` on the login host."""

    def __init__(self, remote: RemoteHost, local_root: str, *, far_tar: str) -> None:
        self.sends_deltas = False
        self._remote = remote
        self._local_root = local_root
        self._gnu = "GNU tar" in far_tar
        # busybox reads no pax headers: its times are whole seconds.
        self._pax = self._gnu or "bsdtar" in far_tar

    async def push(
        self,
        paths: Collection[str],
        remote_root: str,
        *,
        size_bytes: int,
        known: Known | None = None,
        on_output: Callable[[bytes], None] | None = None,
    ) -> TransferResult:
        """See `Transfer.push`."""
        return await self._push(paths, remote_root, size_bytes, known=known, on_output=on_output)

    async def adopt(
        self, paths: Collection[str], remote_root: str, *, backup_dir: str, size_bytes: int
    ) -> TransferResult:
        """See `Transfer.adopt`."""
        there = await self._look(paths, remote_root)
        other = await self._other_content(paths, remote_root, there)
        keep = other & there.keys()
        result = await self._push(paths, remote_root, size_bytes, keep=keep, backup_dir=backup_dir)
        lines = b"".join(b"<f+++++++++ " + escape(path) + b"\n" for path in sorted(other))
        return TransferResult(result.exit_code, lines, result.error_text)

    async def fetch(
        self,
        paths: Collection[str],
        remote_root: str,
        *,
        rule: FetchRule,
        size_bytes: int,
        listen: Callable[[bytes], None] | None = None,
    ) -> TransferResult:
        """See `Transfer.fetch`. Only the big files of `rule` go on where they were."""
        big = frozenset(paths) & rule.big if rule.partial_dir is not None else frozenset()
        small = frozenset(paths) - big
        done = await self._fetch_small(small, remote_root, rule, size_bytes, listen)
        if not big:
            return done
        there = {
            path: (facts, mode)
            for path, (facts, mode, _) in (await self._look(big, remote_root)).items()
        }
        loop = asyncio.get_running_loop()

        def tell(so_far_bytes: int) -> None:
            if listen is not None:
                shown = progress_line(so_far_bytes, size_bytes, len(done.came))
                loop.call_soon_threadsafe(listen, shown)

        pull = BigFetch(self._remote, self._local_root, remote_root, rule, tell)
        more = await pull.run(big, there, size_bytes=size_bytes)
        return TransferResult(
            max(done.exit_code, more.exit_code),
            b"",
            done.error_text or more.error_text,
            done.came | more.came,
            done.failed | more.failed,
            done.kept | more.kept,
        )

    async def _fetch_small(
        self,
        paths: Collection[str],
        remote_root: str,
        rule: FetchRule,
        size_bytes: int,
        listen: Callable[[bytes], None] | None,
    ) -> TransferResult:
        """Fetch these paths in one stream of tar."""
        if not paths:
            return TransferResult(0, b"", "")
        options = ["--format=posix" if self._gnu else "--format=pax"] if self._pax else []
        if self._gnu:  # else tar sends the second name of a file as a link to the first one
            options.append("--hard-dereference")
        host = self._remote.destination()
        unpacker = Unpacker(self._local_root, paths, rule, size_bytes=size_bytes, host=host)
        loop = asyncio.get_running_loop()

        def tell(total: int) -> None:
            """Report the progress to the event loop."""
            if listen is not None:
                shown = progress_line(total, size_bytes, len(unpacker.came))
                loop.call_soon_threadsafe(listen, shown)

        broken: list[str] = []

        def unpack(pipe: Pipe) -> None:
            """Unpack the stream, and note a broken archive."""
            try:
                unpacker.unpack(pipe, tell)
            except tarfile.TarError as error:
                broken.append(str(error))

        with tempfile.TemporaryFile() as names:
            names.write(encode(sorted(paths)))
            names.seek(0)
            code, said = await run_stream(
                self._remote,
                far_script(PACK, remote_root, *options),
                unpack,
                stdin=names,
                stall_s=rule.stall_s,
                budget_s=_budget_s(size_bytes, paths),
            )
        self._check(code, said)
        missing = frozenset(paths) - unpacker.came.keys() - unpacker.kept
        if broken and missing:
            raise broke_off(self._remote, broken[0])
        text = next(iter(unpacker.failed.values()), said)
        if missing and not text:
            text = f"did not come: {name_paths(sorted(missing))}"
        await asyncio.sleep(0)  # first run the callbacks that the thread has scheduled
        came, failed = frozenset(unpacker.came), frozenset(unpacker.failed)
        kept = frozenset(unpacker.kept)
        return TransferResult(23 if missing else 0, b"", text, came, failed, kept)

    async def differing(
        self, paths: Collection[str], remote_root: str, *, size_bytes: int
    ) -> set[str]:
        """See `Transfer.differing`."""
        there = await self._look(paths, remote_root)
        found = await self._other_content(paths, remote_root, there)
        for path in set(paths) - found:
            here, (facts, mode, _) = lstat(self._local_root, path), there[path]
            same_time = here is None or here.kind != FILE or facts.mtime_s == here.mtime_ns // _NS
            if here is None or not same_time or (here.kind != LINK and mode != here.mode):
                found.add(path)
        return found

    # -- inside -----------------------------------------------------------

    async def _push(
        self,
        paths: Collection[str],
        remote_root: str,
        size_bytes: int,
        *,
        keep: Collection[str] = (),
        backup_dir: str = "",
        known: Known | None = None,
        on_output: Callable[[bytes], None] | None = None,
    ) -> TransferResult:
        """Send the paths in one stream. If tar refuses it, send them in halves.

        Mostly one file can't be written there, and the others must still arrive."""
        waiting, streams, refused = [sorted(paths)], 0, ""
        result = TransferResult(0, b"", "")
        send = partial(self._stream, remote_root, size_bytes, keep, backup_dir, known, on_output)
        while waiting:
            some = waiting.pop()
            streams += 1
            one = await send(some)
            if one.exit_code == REFUSED:
                refused = refused or _why_refused(one.error_text)
                if len(some) > 1 and streams < _MOST_STREAMS:
                    half = len(some) // 2
                    waiting += [some[half:], some[:half]]
            elif one.exit_code:
                result = one
        return TransferResult(23, b"", refused) if refused else result

    async def _stream(
        self,
        remote_root: str,
        size_bytes: int,
        keep: Collection[str],
        backup_dir: str,
        known: Known | None,
        on_output: Callable[[bytes], None] | None,
        paths: Collection[str],
    ) -> TransferResult:
        loop, lost = asyncio.get_running_loop(), []
        told_at = 0.0

        def through(sent_bytes: int, files: int) -> None:
            nonlocal told_at
            now = time.monotonic()
            if on_output is not None and now - told_at > 0.1:
                told_at = now
                loop.call_soon_threadsafe(on_output, progress_line(sent_bytes, size_bytes, files))

        def note(digests: Mapping[str, str]) -> None:
            if known is not None:
                asyncio.run_coroutine_threadsafe(known.note(digests), loop).result()

        def pack(pipe: Pipe) -> None:
            seen = known.seen if known is not None else None
            packer = Packer(
                self._local_root, pipe, pax=self._pax, through=through, seen=seen, note=note
            )
            try:
                packer.pack(paths, keep=frozenset(keep) & frozenset(paths))
            finally:
                lost.extend(packer.lost)

        # GNU tar would warn about `hdrcharset`, though it takes names as they are.
        options = ["--warning=no-unknown-keyword"] if self._gnu else []
        code, said = await run_stream(
            self._remote,
            far_script(UNPACK, remote_root.rstrip("/"), backup_dir, *options),
            pack,
            stall_s=_STALL_S,
            budget_s=_budget_s(size_bytes, paths),
            quiet_s=_budget_s(0, paths),
        )
        self._check(code, said)
        if lost and code == 0:
            return TransferResult(24, b"", f"changed or gone while read: {name_paths(lost)}")
        return TransferResult(code, b"", said)

    def _check(self, code: int, said: str) -> None:
        host = self._remote.destination()
        if code in (0, 23, REFUSED, 123):  # 123: xargs, if tar failed for some of them
            return
        if code in _NOT_FOUND:
            raise MissingProgram(
                f"tar is not found on {host}",
                cause=said or None,
                hint="ask the site for tar, or for rsync 3.0 or newer",
            )
        if code == _SSH_FAILED or code < 0 or code in (93, CUT_OFF):
            raise broke_off(self._remote, said or f"exit code {code}")
        raise MirrorError(
            f"tar to {host} failed",
            cause=said or f"exit code {code}",
            transient=True,
            hint="it is tried again; `tk doctor` checks room and quota there",
        )

    async def _look(
        self, paths: Collection[str], remote_root: str
    ) -> dict[str, tuple[RemoteStat, int, str]]:
        """Return stat, permission bits and symlink target of these remote paths."""
        done = await run_script(
            self._remote,
            LOOK,
            [remote_root],
            stdin=encode(sorted(paths)),
            what=f"can't look into {remote_root}",
            timeout_s=30.0 + len(paths) / 50,
        )
        return dict(_looks(done.items))

    async def _other_content(
        self,
        paths: Collection[str],
        remote_root: str,
        there: dict[str, tuple[RemoteStat, int, str]],
    ) -> set[str]:
        """Return the paths that are missing there, or differ in kind or content."""
        stats = {path: there[path][0] for path in paths if path in there}
        stats = {path: found for path, found in stats.items() if found.kind == FILE}
        digests = await remote_digests(self._remote, remote_root, stats)

        def differs(path: str) -> bool:
            try:
                here = lstat(self._local_root, path)
                if here is None or path not in there or there[path][0].kind != here.kind:
                    return True
                if here.kind == LINK:
                    return os.readlink(os.path.join(self._local_root, path)) != there[path][2]
                return here.kind == FILE and digests.get(path) != digest(
                    self._local_root, path, FILE
                )
            except OSError:
                return True

        return await asyncio.to_thread(lambda: {path for path in paths if differs(path)})


def escape(path: str) -> bytes:
    """Return a name as rsync prints it, see `rsync.unescape`."""
    return b"".join(
        bytes([byte]) if 32 <= byte < 127 and byte != 92 else b"\\#%03o" % byte
        for byte in os.fsencode(path)
    )


def _why_refused(said: str) -> str:
    # GNU tar reports no more than this of a file that a full disk cut short.
    return f"no space left there? {said}" if "Wrote only" in said else said or "tar failed there"


def _looks(items: Sequence[bytes]) -> Iterator[tuple[str, tuple[RemoteStat, int, str]]]:
    for name, facts, target in zip(*[iter(items)] * 3, strict=False):
        mode, size, mtime_s = facts.split()
        bits = int(mode, 16)
        kind = _KINDS.get(stat.S_IFMT(bits), "")
        found = RemoteStat(kind, int(size), int(mtime_s))
        yield os.fsdecode(name[2:]), (found, stat.S_IMODE(bits), os.fsdecode(target))


def _budget_s(size_bytes: int, paths: Collection[str]) -> float:
    # As for rsync: an upper limit for a line of 256 KiB/s, and for a slow file system.
    return 60.0 + size_bytes / (256 << 10) + len(paths) / 20
