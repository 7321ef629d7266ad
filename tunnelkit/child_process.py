"""Child processes with one owner and an explicit end, and bounded records of their output."""

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
#: Limits of stdout and stderr: a list of a million files is 100 MB; of errors the first count.
MOST_BYTES = 256 << 20
MOST_ERROR_BYTES = 1 << 20


class Lines:
    """The last lines of a text source; `mark` and `since` select the lines after a moment.

    on_line: called with each whole line as it comes."""

    def __init__(self, keep: int = 200, on_line: Callable[[str], None] | None = None) -> None:
        self._on_line = on_line
        self._lines: deque[str] = deque(maxlen=keep)
        self._rest = b""
        self._count = 0
        self._changed = asyncio.Event()

    def feed(self, data: bytes) -> None:
        """Add bytes of the source, in any pieces."""
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
        """Return a position for `since`."""
        return self._count

    def since(self, mark: int) -> list[str]:
        """Return the kept whole lines that came after `mark`."""
        return list(self._lines)[max(0, len(self._lines) - (self._count - mark)) :]

    def text(self) -> str:
        """Return all kept text, an unfinished last line included."""
        return "\n".join([*self._lines, self._rest.decode("utf-8", "replace")]).strip()

    async def wait_for(self, needle: str, *, mark: int = 0) -> str:
        """Wait for a line after `mark` that holds `needle`; return it."""
        while True:
            self._changed.clear()
            for line in self.since(mark):
                if needle in line:
                    return line
            await self._changed.wait()


class LogPipe:
    """A file for `ssh -E`: ssh's own messages, apart from the remote command's stderr.

    Not an inherited descriptor, because ssh closes those first. With /proc it is a pipe by its name
    there: the name ends with this process, and an ssh that opens it too late ends by itself. Else
    it is a fifo; an ssh that opens a fifo whose reader was killed waits without end.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._fds: list[int] = []
        self._path: Path | None = None
        self._fifo: Path | None = None
        self.lines = Lines()

    @property
    def path(self) -> Path:
        """The path for `ssh -E`; valid between entering and `close`."""
        assert self._path is not None, "LogPipe is entered before it is used"
        return self._path

    def __enter__(self) -> Self:
        names = own_fds()
        # The write end in this process prevents end-of-file until `close`.
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
        """Read what is left, and close. Idempotent."""
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
    """Return the directory with names of this process's descriptors; None if there is none."""
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
    """Start a child in its own session: it has no terminal for questions and gets no Ctrl-C.

    The child's ends of the sockets are closed here; None is /dev/null. asyncio's own pipes
    don't work: an ssh over a master passes its descriptors to that master, and
    asyncio's `wait` would then wait for the remote process of an ssh that was killed.
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
    """Return a non-blocking end for this process, and the end for a child."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return ours, theirs


def stream_pair() -> tuple[socket.socket, socket.socket]:
    """Return a socket pair with large buffers, for bulk data."""
    pair = socket_pair()
    for sock in pair:
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, _STREAM_BUFFER_BYTES)
    return pair


async def end(child: asyncio.subprocess.Process, *, grace_s: float = 3.0) -> None:
    """Terminate a child and reap it; after `grace_s` kill it."""
    if child.returncode is None:
        # Not child.terminate(): it polls the child first, and a child that has just ended is
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
    """Run a local program to its end.

    what: its name in errors. Raises TimeoutError after it was killed at its limit, and
    ConnectionFailed if its output exceeds every valid answer."""
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
    """Kill a running child with its process group, and reap it."""
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        await child.wait()


async def drain(sock: socket.socket, lines: Lines) -> None:
    """Read a child's output into `lines` until its end, then close this end.

    The child never blocks on its output."""
    loop = asyncio.get_running_loop()
    with sock, contextlib.suppress(ConnectionError):
        while data := await loop.sock_recv(sock, 65536):
            lines.feed(data)


async def end_drain(drained: asyncio.Task[None]) -> None:
    """Read a child's remaining output after its end; don't wait for processes that inherited it."""
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
    """Return the error for an answer that would fill this computer's memory."""
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
