"""Commands and byte streams over one master, queued below sshd's MaxSessions."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from pathlib import Path

from tunnelkit.child_process import (
    Lines,
    LogPipe,
    drain,
    end,
    end_drain,
    run_child,
    socket_pair,
    spawn,
    stream_pair,
)
from tunnelkit.errors import ConnectionFailed
from tunnelkit.link.openssh.control_master import ControlMaster
from tunnelkit.link.options import destination_words
from tunnelkit.link.shared.loss import lost
from tunnelkit.link.shared.session_slots import (
    LocalStream,
    SessionSlots,
    command_late,
    stream_start,
)
from tunnelkit.model import Completed
from tunnelkit.remote_command import remote_command

#: sshd's answer to a session above MaxSessions.
_REFUSED = "Session open refused by peer"
#: ssh's debug line once the far side has accepted the session.
_ACCEPTED = "master session id"
#: What ssh says when the master is gone, or went in the middle.
_LOST = ("Control socket connect", "Connection closed by UNKNOWN", "mux_client_", "Broken pipe")
_ACCEPT_S = 10.0


class MuxStream(LocalStream):
    """A session of the master; `diagnosis` has ssh's messages, too."""

    def __init__(
        self,
        sock: socket.socket,
        child: asyncio.subprocess.Process,
        stderr: socket.socket,
        log: LogPipe,
        slot: contextlib.ExitStack,
    ) -> None:
        self._sock = sock
        self._child = child
        self._log = log
        self._slot = slot
        self._stderr = Lines(keep=50)
        self._drained = asyncio.create_task(drain(stderr, self._stderr))
        self._ended = asyncio.create_task(self._watch())

    def diagnosis(self) -> str:
        """Return the last lines of stderr so far, and then ssh's own messages."""
        said = [line for line in self._log.lines.text().splitlines() if "debug1:" not in line]
        said = [line for line in said if not line.startswith("OpenSSH_")]
        return "\n".join([*self._stderr.text().splitlines(), *said])

    async def close(self) -> None:
        """End the stream. The far process sees its stdin end and is not killed."""
        self._sock.close()
        await end(self._child)
        await self._ended

    async def _watch(self) -> int:
        try:
            code = await self._child.wait()
            await end_drain(self._drained)
            return code
        finally:
            self._log.close()
            self._slot.close()


class OpenSSHSessions:
    """Runs commands over `master`. `argv` is ssh over that master without destination."""

    def __init__(
        self,
        master: ControlMaster,
        argv: list[str],
        destination: str,
        *,
        directory: Path,
        limit: int,
    ) -> None:
        self._master = master
        self._argv = argv
        self._destination = destination_words(destination)
        self._directory = directory
        self._slots = SessionSlots(limit)
        self._streams: set[MuxStream] = set()

    async def run(self, words: Sequence[str], *, stdin: bytes, timeout_s: float) -> Completed:
        """See `base.Link.run`; the time in the queue counts."""
        text = remote_command(words)
        last = Lines()
        try:
            async with asyncio.timeout(timeout_s), self._slots.attempts() as tries:
                async for _ in tries:
                    async with self._slots.command:
                        with LogPipe(self._directory) as log:
                            last = log.lines
                            argv = self._with_log("ERROR", log, text)
                            what = f"{words[0]} on {self._master.host}"
                            done = await run_child(argv, stdin=stdin, what=what)
                    if not (done.exit_code == 255 and _REFUSED in log.lines.text()):
                        await self._check_lost(done.exit_code, log.lines)
                        return done
        except TimeoutError as error:
            refused = _REFUSED in last.text() or self._slots.crowded
            raise command_late(words[0], self._master.host, timeout_s, refused=refused) from error
        raise AssertionError("unreachable")

    async def open_stream(self, words: Sequence[str]) -> MuxStream:
        """See `base.Link.open_stream`. Raises ConnectionFailed if no session can be opened."""
        text = remote_command(words)
        async with stream_start(self._master.host), self._slots.attempts() as tries:
            async for _ in tries:
                stream = await self._start_stream(text)
                if stream is not None:
                    return stream
        raise AssertionError("unreachable")

    async def close(self) -> None:
        """Close all streams."""
        await asyncio.gather(*(stream.close() for stream in tuple(self._streams)))

    async def _check_lost(self, code: int, log: Lines) -> None:
        """Raise ConnectionFailed if 255 was ssh's own word and not the command's."""
        if code != 255:
            return
        said = log.text()
        if any(mark in said for mark in _LOST) or not await self._master.check():
            why = said.splitlines()[-1] if said else "ssh's master process is gone"
            raise lost(self._master.host, why)

    async def _start_stream(self, text: str) -> MuxStream | None:
        """Start once; None if the far side has no session to give."""
        with await self._slots.stream() as stack:
            log = stack.enter_context(LogPipe(self._directory))
            stream = await self._spawn_stream(log, text, stack)
        self._streams.add(stream)
        stream._ended.add_done_callback(lambda _: self._streams.discard(stream))
        try:
            if await _is_accepted(stream, log.lines):
                return stream
            code = await stream.wait()
            await stream.close()
            if _REFUSED in log.lines.text():
                return None
            await self._check_lost(code, log.lines)
            # Accepted and over at once, in a release that words its log otherwise.
            raise ConnectionFailed(
                f"no stream to {self._master.host}",
                cause=stream.diagnosis() or f"exit {code}",
                hint="`tk doctor` checks the way there",
            )
        except BaseException:
            await stream.close()
            raise

    async def _spawn_stream(
        self, log: LogPipe, text: str, stack: contextlib.ExitStack
    ) -> MuxStream:
        ours, theirs = stream_pair()
        stderr, child_stderr = socket_pair()
        argv = self._with_log("DEBUG1", log, text)
        try:
            child = await spawn(argv, stdin=theirs, stdout=theirs, stderr=child_stderr)
        except BaseException:
            ours.close()
            stderr.close()
            raise
        return MuxStream(ours, child, stderr, log, stack.pop_all())

    def _with_log(self, level: str, log: LogPipe, text: str) -> list[str]:
        options = ["-o", f"LogLevel={level}", "-E", str(log.path)]
        return [*self._argv, *options, *self._destination, text]


async def _is_accepted(stream: MuxStream, log: Lines) -> bool:
    """Wait until the far side has taken the session (True) or ssh has ended (False)."""
    accepted = asyncio.create_task(log.wait_for(_ACCEPTED))
    ended = asyncio.create_task(stream.wait())
    try:
        await asyncio.wait(
            {accepted, ended}, timeout=_ACCEPT_S, return_when=asyncio.FIRST_COMPLETED
        )
        return _ACCEPTED in log.text() or not ended.done()
    finally:
        for task in (accepted, ended):
            task.cancel()
        await asyncio.gather(accepted, ended, return_exceptions=True)
