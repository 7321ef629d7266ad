"""Child processes with one owner and an explicit end, and bounded memories of what they said."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from tunnelkit.errors import ConnectionFailed, MissingProgram
from tunnelkit.model import Completed

_LINE_BYTES = 4096
_STREAM_BUFFER_BYTES = 1 << 20
#: A list of a million files is 100 MB; of complaints a person reads the first.
MOST_BYTES = 256 << 20
MOST_ERROR_BYTES = 1 << 20


class Lines:
    """The last lines of some text source; `mark`/`since` cut out what came later.
    on_line: told each whole line as it comes."""

    def __init__(self, keep: int = 200, on_line: Callable[[str], None] | None = None) -> None:
        self._on_line = on_line
        self._lines: deque[str] = deque(maxlen=keep)
        self._rest = b""
        self._count = 0
        self._changed = asyncio.Event()

    def feed(self, data: bytes) -> None:
        *whole, rest = (self._rest + data).split(b"\n")
        # A source that never sends a newline must not grow without bound.
        self._rest = rest[-_LINE_BYTES:]
        for line in whole:
            text = line[:_LINE_BYTES].decode("utf-8", "replace").rstrip("\r")
            self._lines.append(text)
            self._count += 1
            if self._on_line is not None:
                self._on_line(text)
        self._changed.set()

    def mark(self) -> int:
        """A position to give to `since`."""
        return self._count

    def since(self, mark: int) -> list[str]:
        """The kept whole lines that came after `mark`."""
        return list(self._lines)[max(0, len(self._lines) - (self._count - mark)) :]

    def text(self) -> str:
        """All that is kept, an unfinished last line included."""
        return "\n".join([*self._lines, self._rest.decode("utf-8", "replace")]).strip()

    async def wait_for(self, needle: str, *, mark: int = 0) -> str:
        """The first line after `mark` that holds `needle`; waits until there is one."""
        while True:
            self._changed.clear()
            for line in self.since(mark):
                if needle in line:
                    return line
            await self._changed.wait()


class LogPipe:
    """A place for `ssh -E`: ssh's own words, kept apart from the far command's stderr.

    Not an inherited descriptor, because ssh closes all of those first. Where /proc is, a pipe by
    its name there: that goes with us, and an ssh that comes to it too late ends by itself. Else a
    fifo; an ssh that opens one whose reader was killed waits there for ever.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._fds: list[int] = []
        self._path: Path | None = None
        self._fifo: Path | None = None
        self.lines = Lines()

    @property
    def path(self) -> Path:
        assert self._path is not None, "LogPipe is entered before it is used"
        return self._path

    def __enter__(self) -> Self:
        names = own_fds()
        # Our own write end keeps end-of-file away until `close`.
        self._fds = self._make_fifo() if names is None else list(os.pipe())
        for fd in self._fds:
            os.set_blocking(fd, False)
        self._path = self._fifo if names is None else names / str(self._fds[1])
        asyncio.get_running_loop().add_reader(self._fds[0], self._read)
        return self

    def _make_fifo(self) -> list[int]:
        name = tempfile.mktemp(prefix="log-", dir=self._directory)  # noqa: S306 - 0700 directory
        os.mkfifo(name, 0o600)
        self._fifo = Path(name)
        reader = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        return [reader, os.open(name, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)]

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._fds[0], 65536):
                self.lines.feed(data)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take in what is left, and let go. Idempotent."""
        if not self._fds:
            return
        self._read()
        asyncio.get_running_loop().remove_reader(self._fds[0])
        for fd in self._fds:
            os.close(fd)
        self._fds = []
        if self._fifo is not None:
            self._fifo.unlink(missing_ok=True)


def own_fds() -> Path | None:
    """Where this process's descriptors have names that others can open; None: nowhere."""
    path = Path(f"/proc/{os.getpid()}/fd")
    return path if path.is_dir() else None


async def spawn(
    argv: Sequence[str],
    *,
    stdin: socket.socket | None = None,
    stdout: socket.socket | None = None,
    stderr: socket.socket | None = None,
    env: Mapping[str, str] | None = None,
) -> asyncio.subprocess.Process:
    """Start a child in its own session: no terminal to ask on, no Ctrl-C meant for us.

    Its ends of the sockets are closed here, None is /dev/null. asyncio's own pipes
    would not do: an ssh over a master hands its descriptors on to that master, and
    asyncio's `wait` would then wait for the far process of an ssh that we killed.
    """
    null = asyncio.subprocess.DEVNULL
    ends = [stdin, stdout, stderr]
    fds = [null if end is None else end.fileno() for end in ends]
    try:
        return await asyncio.create_subprocess_exec(
            *argv, stdin=fds[0], stdout=fds[1], stderr=fds[2], env=env, start_new_session=True
        )
    except FileNotFoundError as error:
        raise MissingProgram(
            f"{argv[0]} is not installed", cause=str(error), hint="install the OpenSSH client"
        ) from error
    finally:
        for one in ends:
            if one is not None:
                one.close()


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Our non-blocking end, and the end for a child."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return ours, theirs


def stream_pair() -> tuple[socket.socket, socket.socket]:
    """The same, for bulk."""
    pair = socket_pair()
    for sock in pair:
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, _STREAM_BUFFER_BYTES)
    return pair


async def end(child: asyncio.subprocess.Process, *, grace_s: float = 3.0) -> None:
    """Terminate a child and reap it; after `grace_s` kill it."""
    if child.returncode is None:
        # Not child.terminate(): it asks for the end first, and a child that has just ended is
        # then reaped twice, here and by asyncio, which takes it for one that exited with 255.
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGTERM)
        try:
            await asyncio.wait_for(child.wait(), grace_s)
        except TimeoutError:
            await kill(child)
    await child.wait()


async def run_child(
    argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float | None = None, what: str = ""
) -> Completed:
    """Run a local program to its end. what: how an error calls it. Raises TimeoutError once it is
    killed for being late, ConnectionFailed for saying more than any answer has."""
    with contextlib.ExitStack() as stack:
        pairs = [socket_pair() for _ in range(3)]
        for ours, theirs in pairs:
            stack.enter_context(ours)
            stack.enter_context(theirs)
        (to, child_in), (out, child_out), (err, child_err) = pairs
        child = await spawn(argv, stdin=child_in, stdout=child_out, stderr=child_err)
        try:
            async with asyncio.timeout(timeout_s):
                said = await asyncio.gather(
                    _read_all(out, what or argv[0]),
                    _read_first(err),
                    _send_all(to, stdin),
                    child.wait(),
                )
        finally:
            await kill(child)
        return Completed(said[3], said[0], said[1])


async def kill(child: asyncio.subprocess.Process) -> None:
    """Kill a child that is still there with all its process group, and reap it."""
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        await child.wait()


async def drain(sock: socket.socket, lines: Lines) -> None:
    """Read a child's output into `lines` until its end, so that the child never blocks on
    it; then close our end."""
    loop = asyncio.get_running_loop()
    with sock, contextlib.suppress(ConnectionError):
        while data := await loop.sock_recv(sock, 65536):
            lines.feed(data)


async def end_drain(drained: asyncio.Task[None]) -> None:
    """After a child's end: take what is left of its output, not waiting for heirs of it."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(drained, 1.0)


async def _read_all(sock: socket.socket, what: str) -> bytes:
    loop = asyncio.get_running_loop()
    data = bytearray()
    with contextlib.suppress(ConnectionError):
        while chunk := await loop.sock_recv(sock, 65536):
            data += chunk
            if len(data) > MOST_BYTES:
                raise too_much(what)
    return bytes(data)


async def _read_first(sock: socket.socket) -> bytes:
    loop = asyncio.get_running_loop()
    data = bytearray()
    with contextlib.suppress(ConnectionError):
        while chunk := await loop.sock_recv(sock, 65536):
            data += chunk[: MOST_ERROR_BYTES - len(data)]
    return bytes(data)


def too_much(what: str) -> ConnectionFailed:
    """The error for an answer that would fill this computer's memory."""
    return ConnectionFailed(
        f"{what} answered with more than {MOST_BYTES >> 20} MB",
        cause="tk stopped reading: no command of tk's has that much to say",
        hint="what does the login shell there print? `tk doctor` shows it",
    )


async def _send_all(sock: socket.socket, data: bytes) -> None:
    # A command need not read its stdin.
    with contextlib.suppress(OSError):
        await asyncio.get_running_loop().sock_sendall(sock, data)
        sock.shutdown(socket.SHUT_WR)
