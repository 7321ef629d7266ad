"""`exec` channels: one process, its stdin and stdout on the channel, stderr on a second one.

Header: {"type": "exec", "argv": [...], "cwd": "...", "env": {...}, "pty": {"rows": 24, "cols": 80}}
The channel's last word is how the process ended: {"code": 0, "signal": null, ...}.
"""

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import termios
from typing import Dict, List, Mapping, Optional

from tunnelkit.agent.processes.table import ChildProcess, ProcessTable
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.fd_io import read_fd, write_fd
from tunnelkit.mux.mux import Mux
from tunnelkit.mux.tasks import cancel_all, first_of

_HANGUP_GRACE_S = 5.0
#: How long the pipes of a process that has ended may be silent before they are let go.
_STRANGER_S = 1.0


class ExecChannel:
    """One process behind an exec channel. `run` owns it to its end."""

    def __init__(self, table: ProcessTable, mux: Mux, channel: Channel) -> None:
        self._table = table
        self._mux = mux
        self._channel = channel
        self._pty: Optional[int] = None
        self.process: Optional[ChildProcess] = None
        self._drained_bytes = 0
        self._writing = 0

    async def run(self, header: Mapping[str, object]) -> None:
        """Start the process, carry its streams, report its end."""
        try:
            argv, cwd, env = command_of(header)
            size = header.get("pty")
            if isinstance(size, dict) and size:
                rows, cols = int(size.get("rows", 24)), int(size.get("cols", 80))
                await self._run_pty(argv, cwd, env, rows, cols)
            else:
                await self._run_pipes(argv, cwd, env)
        except (OSError, ValueError, TypeError) as error:
            self._channel.close({"error": start_error(header, error)})

    def resize(self, rows: int, cols: int) -> None:
        """Tell a process on a terminal its new size."""
        if self._pty is not None:
            _set_size(self._pty, rows, cols)

    async def _run_pty(
        self, argv: List[str], cwd: str, env: Dict[str, str], rows: int, cols: int
    ) -> None:
        master, slave = os.openpty()
        _set_size(slave, rows, cols)
        os.set_blocking(master, False)
        self._pty = master
        try:
            try:
                self.process = self._table.spawn(
                    argv,
                    cwd=cwd,
                    env=env,
                    stdin=slave,
                    stdout=slave,
                    stderr=slave,
                    controlling_tty=True,
                )
            finally:
                os.close(slave)
            feeder = asyncio.ensure_future(self._feed(master, close=False))
            output = asyncio.ensure_future(self._drain(master, self._channel))
            try:
                await self._finish(self.process, [output])
            finally:
                await cancel_all(feeder)
        finally:
            self._pty = None
            os.close(master)

    async def _run_pipes(self, argv: List[str], cwd: str, env: Dict[str, str]) -> None:
        self.process, fds = self._table.spawn_piped(argv, cwd=cwd, env=env)
        in_write, out_read, err_read = fds
        errors = self._mux.open({"type": "stderr", "for": self._channel.id})
        feeder = asyncio.ensure_future(self._feed(in_write, close=True))
        outputs = [
            asyncio.ensure_future(self._drain(out_read, self._channel)),
            asyncio.ensure_future(self._drain(err_read, errors)),
        ]
        try:
            await self._finish(self.process, outputs)
        finally:
            errors.close()
            await cancel_all(feeder, *outputs)
            os.close(out_read)
            os.close(err_read)

    async def _finish(self, process: ChildProcess, outputs: "List[asyncio.Task[None]]") -> None:
        """Wait for process and output; if the far end hangs up first, so does the process."""
        gone = asyncio.ensure_future(self._channel.closed())
        try:
            await first_of(process.exited, gone)
            if not process.exited.done():
                if self._mux.ended is None:
                    process.signal(signal.SIGHUP)
                    await self._table.end(process, _HANGUP_GRACE_S)
                else:
                    # The session died or was replaced, which is not the user's wish: work goes on.
                    await process.exited
            await self._rest_of(outputs)
            self._channel.close(process.exited.result().describe())
        finally:
            await cancel_all(gone)

    async def _rest_of(self, outputs: "List[asyncio.Task[None]]") -> None:
        """Wait for what the process wrote before it ended.

        Something that it left behind may hold the pipes open: once they are silent and
        nothing waits for the far end to take it, nobody waits for strangers.
        """
        while True:
            before = self._drained_bytes
            _, pending = await asyncio.wait(outputs, timeout=_STRANGER_S)
            if not pending or (before == self._drained_bytes and not self._writing):
                return
            if self._channel.is_over:
                return

    async def _drain(self, fd: int, channel: Channel) -> None:
        with contextlib.suppress(OSError):
            while True:
                data = await read_fd(fd)
                if not data:
                    return
                self._drained_bytes += len(data)
                self._writing += 1
                try:
                    await channel.write(data)
                finally:
                    self._writing -= 1

    async def _feed(self, fd: int, *, close: bool) -> None:
        try:
            while True:
                data = await self._channel.read()
                if not data:
                    break
                await write_fd(fd, data)
        except OSError:
            pass
        finally:
            if close:
                os.close(fd)


def command_of(header: Mapping[str, object]) -> "tuple[List[str], str, Dict[str, str]]":
    """argv, working directory and environment that a header asks for. Raises ValueError."""
    words, changes = header.get("argv") or [], header.get("env") or {}
    if not isinstance(words, list) or not isinstance(changes, dict):
        raise ValueError("a command is a list, its environment an object")
    argv = [str(word) for word in words]
    if not argv:
        argv = [os.environ.get("SHELL") or "/bin/sh", "-l"]
    cwd = os.path.expanduser(str(header.get("cwd") or "~"))
    if not os.path.isdir(cwd):
        why = ", which stands for yours: cd to one that is mirrored" if header.get("here") else ""
        raise ValueError(f"{os.uname()[1]} has no directory {cwd}{why}")
    env = dict(os.environ)
    for key, value in changes.items():
        env[str(key)] = str(value)
    return argv, cwd, env


def start_error(header: Mapping[str, object], error: BaseException) -> str:
    """One line for a process that could not be started."""
    argv = header.get("argv")
    program = argv[0] if isinstance(argv, list) and argv else "shell"
    if isinstance(error, FileNotFoundError):
        return f"{program}: command not found"
    if isinstance(error, OSError):
        return f"{program}: {error.strerror}"
    return str(error)


def _set_size(fd: int, rows: int, cols: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
