"""Reads a log to its end, or follows it; goes on after a cut at the byte where it stopped."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from os import dup

from tunnelkit.errors import ConnectionFailed, TunnelkitError
from tunnelkit.link.base import ByteStream
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.session.connection.link_keeper import backoff_s
from tunnelkit.session.logs.cluster import LogCluster
from tunnelkit.session.logs.remote_log import (
    POLLS,
    Frame,
    FrameError,
    FrameKind,
    FrameReader,
    read_argv,
)

#: The script speaks every second while it follows; longer silence is a dead link, or a file system
#: that does not answer.
_SILENCE_S = 20.0
_PIECE_BYTES = 64 * 1024
#: After the job's end: its last output may show late on another host.
_LAST_POLLS = 3
#: Streams that end silently while the link is up: no shell, or no program of the script.
_MOST_FAILURES = 3
#: Streams in a row that bring nothing of a file that has more. The pause after each grows.
_MOST_UNREAD = 4
_SAY_UNREAD = 3
_LONGEST_PAUSE_S = 20.0
_QUIET_S = 3

#: A part of the log, or a remark of tk's.
LogEvent = bytes | str

_SAID = {
    FrameKind.REPLACED: "the log was replaced by another file: that one follows, from its start",
    FrameKind.TRUNCATED: "the log was truncated (as by a job that begins again): it follows from "
    "its start",
}
_UNREAD = "it can't be read to its size"
_MISSING = {
    FrameKind.NONE: "it is not there",
    FrameKind.DENIED: "it may not be read",
    FrameKind.SPECIAL: "it is no regular file",
}


@dataclass
class LogPart:
    """The part of a log to read.

    lines: only the last so many; None: all. last_bytes: only the last so many. name: the file's
    if path is a directory.
    """

    path: str
    job_id: str
    lines: int | None = None
    last_bytes: int | None = None
    name: str = ""


@dataclass
class LogReader:
    """One reading. ended: set when the job has ended; None: read what is there, do not follow.

    quiet: called when a log that is followed has brought nothing for some seconds.
    """

    cluster: LogCluster
    part: LogPart
    ended: asyncio.Event | None = None
    quiet: Callable[[], None] = lambda: None
    _offset: int = 0
    _identity: str = ""
    _missing: FrameKind | None = None
    _failures: int = 0
    _over: bool = False
    #: The file became shorter while it was read, or reading it fails.
    _short: bool = False
    _unread: int = 0
    #: Nothing has come for a while, and the user knows.
    _silent: bool = False
    _moved: bool = False

    @property
    def missing(self) -> bool:
        """True if the log has not been there so far."""
        return not self._identity

    def move(self, part: LogPart) -> None:
        """Read another file instead of the one that is not there, if its path is another."""
        if self.missing and part.path != self.part.path:
            self.part, self._missing, self._moved = part, None, True

    async def events(self) -> AsyncGenerator[LogEvent]:
        """Yield the log and remarks. Raises TunnelkitError if it can't be read, or is not there."""
        self._offset = -self.part.last_bytes if self.part.last_bytes is not None else 0
        cut = False
        while True:
            last = self.ended is None or self.ended.is_set()
            async with aclosing(self._stream(last=last)) as events:
                async for event in events:
                    yield event
            if self._over:
                cut, self._unread = False, 0
                if last:
                    break
                continue
            if self._short:
                if remark := self._check_unread(last=last):
                    yield remark
                await asyncio.sleep(min(_LONGEST_PAUSE_S, self._unread - 1))
                continue
            if not cut:
                yield f"the connection was cut; the log goes on at byte {max(0, self._offset)}"
            cut = True
            await self._reopen()
        if self._missing is not None:
            raise self._no_log(self._missing)

    # -- one stream -------------------------------------------------------

    async def _stream(self, *, last: bool) -> AsyncGenerator[LogEvent]:
        """Read by one script. `_over` tells if it came to its end, else the link was cut."""
        self._over = self._short = self._moved = False
        mark = f"tk-{secrets.token_hex(8)}"
        try:
            stream = await self.cluster.open_stream(self._argv(mark, last=last))
        except ConnectionFailed:
            self._failures += 1
            if self._failures >= _MOST_FAILURES:
                raise
            return
        try:
            async with aclosing(self._frames(stream, FrameReader(mark), last=last)) as events:
                async for event in events:
                    yield event
            if not self._over:
                self._check(stream)
        finally:
            await stream.close()

    def _argv(self, mark: str, *, last: bool) -> list[str]:
        following = self.ended is not None
        polls = POLLS if not last else _LAST_POLLS if following else 1
        return read_argv(
            (self.part.path, self.part.name),
            mark,
            offset=self._offset,
            identity=self._identity,
            polls=polls,
            lines=None if self._identity else self.part.lines,
        )

    async def _frames(
        self, stream: ByteStream, reader: FrameReader, *, last: bool
    ) -> AsyncGenerator[LogEvent]:
        idle = 0
        async with aclosing(self._pieces(stream)) as pieces:
            async for data in pieces:
                if isinstance(data, str):
                    yield data
                    continue
                for frame in self._parsed(reader, data):
                    self._failures, self._silent = 0, False
                    event = self._take(frame)
                    if event:
                        yield event
                    idle = idle + 1 if frame.kind is FrameKind.IDLE else 0
                    if idle == _QUIET_S:
                        self.quiet()
                    if frame.kind is FrameKind.OVER or (idle and self._finished(last=last)):
                        self._over = True
                        return
                    if not frame.whole:
                        self._short = True  # the next script says what has become of the file
                        return

    def _finished(self, *, last: bool) -> bool:
        """Tell if a stream is to end after what it has brought."""
        return self._moved or (not last and self.ended is not None and self.ended.is_set())

    async def _pieces(self, stream: ByteStream) -> AsyncGenerator[LogEvent]:
        """Yield what comes, until the stream ends or its link is dead; and a remark if the link
        is alive and nothing comes: another script would find the same file system. Only who
        follows waits for it without a limit."""
        silences = 0
        async with aclosing(_received(stream)) as pieces:
            async for data in pieces:
                silences = 0 if data else silences + 1
                if data:
                    yield data
                elif not await self.cluster.is_alive():
                    return
                elif self.ended is None and silences == _MOST_FAILURES:
                    raise self._unreadable(
                        "most likely its file system does not answer there",
                        "try again later; `tk logs JOB -f` waits for it",
                    )
                elif not self._silent:
                    self._silent = True
                    yield (
                        f"nothing has come from {self.cluster.name} for {_SILENCE_S:.0f} s, most "
                        "likely since the log's file system does not answer there; tk waits for it"
                    )

    def _parsed(self, reader: FrameReader, data: bytes) -> list[Frame]:
        try:
            return list(reader.feed(data))
        except FrameError as error:
            raise self._unreadable(str(error)) from None

    def _take(self, frame: Frame) -> LogEvent:
        """Note what a frame says; return what the user sees of it."""
        if frame.kind is FrameKind.DATA:
            self._offset += len(frame.data)
            if frame.data:
                self._unread = 0
            return frame.data
        if frame.kind is FrameKind.FILE:
            self._offset, self._identity, self._missing = frame.offset, frame.identity, None
        elif frame.kind in _SAID:
            self._offset, self._identity = 0, ""
            return _SAID[frame.kind]
        elif frame.kind in _MISSING:
            known, self._missing = self._missing, frame.kind
            if self.ended is not None and not self.ended.is_set() and known is not frame.kind:
                return f"waiting for {self.part.path}: {_MISSING[frame.kind]} yet"
        return ""

    # -- trouble ----------------------------------------------------------

    def _check(self, stream: ByteStream) -> None:
        """Count a stream that ended early. Raises ConnectionFailed after some without a frame."""
        self._failures += 1
        if self._failures >= _MOST_FAILURES:
            said = stream.diagnosis().strip().splitlines()
            raise self._unreadable(said[-1] if said else "the command ends without an answer")

    def _check_unread(self, *, last: bool) -> str:
        """Count a stream that was short. Return a remark once nothing came again; raise
        ConnectionFailed after some, but not while the log is followed."""
        self._unread += 1
        if last and self._unread > _MOST_UNREAD:
            hint = f"`tail {self.part.path}` on {self.cluster.name} shows the error"
            raise self._unreadable(_UNREAD, hint)
        if last or self._unread != _SAY_UNREAD:
            return ""
        return f"{self.part.path}: {_UNREAD}; the log goes on when it can"

    def _unreadable(
        self, cause: str, hint: str = "`tk doctor` checks the login host and its shell"
    ) -> ConnectionFailed:
        return ConnectionFailed(
            f"the log of job {self.part.job_id} can't be read on {self.cluster.name}",
            cause=cause,
            hint=hint,
        )

    async def _reopen(self) -> None:
        """Wait until the link is up again. Raises errors that only the user can fix."""
        for attempt in range(10_000):
            try:
                await self.cluster.reopen()
                return
            except ConnectionFailed as error:
                if not error.transient:
                    raise
                await asyncio.sleep(backoff_s(attempt, error))

    def _no_log(self, why: FrameKind) -> TunnelkitError:
        return TunnelkitError(
            f"job {self.part.job_id} has no log at {self.part.path} on {self.cluster.name}",
            cause=_MISSING[why],
            hint=f"tk why {self.part.job_id} says how the job is; `tk logs {self.part.job_id} -f` "
            "waits for the log",
        )


async def _received(stream: ByteStream) -> AsyncGenerator[bytes]:
    """Yield what comes, until the stream ends; b"" after each time of silence."""
    loop = asyncio.get_running_loop()
    with socket.socket(fileno=dup(stream.fileno())) as sock:
        sock.setblocking(False)
        while True:
            # Not ended by a timeout, which might drop a piece that has just come.
            coming = asyncio.ensure_future(loop.sock_recv(sock, _PIECE_BYTES))
            try:
                while not (await asyncio.wait([coming], timeout=_SILENCE_S))[0]:
                    yield b""
                data = coming.result()
            except OSError:
                return
            finally:
                await cancel_all(coming)
            if not data:
                return
            yield data
