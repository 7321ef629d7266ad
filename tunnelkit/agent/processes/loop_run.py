"""One generation of a loop: a process, what it writes, and the word that lets it begin."""

import asyncio
import contextlib
import json
import os
import socket
import time
from typing import Callable, Dict, List, Optional, Sequence

from tunnelkit.agent.processes.table import ChildProcess, ProcessTable
from tunnelkit.mux.fd_io import read_fd
from tunnelkit.mux.loop_records import STDERR, STDOUT
from tunnelkit.mux.tasks import cancel_all

_READ_BYTES = 64 * 1024

OnOutput = Callable[[int, bytes], None]
OnTold = Callable[[Dict[str, object]], None]


class LoopRun:
    """A generation's process with its streams. Its owner calls `begin`, and `close` at the end.

    streams: (what to call it, fd to read) of its output. control: its end says when the
    program may be read (debuggee/fork_server.py); None: it began when it was started.
    """

    def __init__(
        self,
        number: int,
        process: ChildProcess,
        streams: Dict[int, int],
        control: Optional[socket.socket] = None,
    ) -> None:
        self.number = number
        self.process = process
        self.dialled = False
        #: Who has it; "" before anybody does.
        self.client = ""
        self.attached = asyncio.Event()
        #: Since when its program may run: it has its turn, and an editor.
        self._released_s = 0.0
        self._streams = streams
        self._control = control
        self._reading: List[asyncio.Task[None]] = []

    def has_client(self, who: str) -> None:
        """An editor is on it."""
        self.client = who
        self.attached.set()
        self._released_s = time.monotonic()

    def waited_s(self, duration_s: float) -> Optional[float]:
        """Seconds of its life in which it waited for an editor; None if unknown."""
        if not self.dialled:
            return None
        if not self.attached.is_set():
            return duration_s
        return min(duration_s, max(0.0, self._released_s - self.process.started_s))

    def listen_on(self, control: socket.socket) -> None:
        """Hear on this what the process tells; to be called before `begin`."""
        self._control = control

    def begin(self, on_output: OnOutput, on_told: OnTold) -> None:
        """Its turn has come: read what it writes, and let it read its program."""
        self._released_s = time.monotonic()
        for kind, fd in self._streams.items():
            self._reading.append(asyncio.ensure_future(self._collect(fd, kind, on_output)))
        self._streams = {}
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.send(b"g")
            self._reading.append(asyncio.ensure_future(self._listen(self._control, on_told)))

    async def drain(self, patience_s: float) -> None:
        """Wait until its output has ended, but not for heirs of its pipes."""
        if self._reading:
            await asyncio.wait(self._reading, timeout=patience_s)

    async def close(self) -> None:
        """Let go of its streams; the process is not touched."""
        await cancel_all(*self._reading)
        for fd in self._streams.values():
            os.close(fd)
        self._streams = {}
        if self._control is not None:
            self._control.close()
            self._control = None

    async def _collect(self, fd: int, kind: int, on_output: OnOutput) -> None:
        os.set_blocking(fd, False)
        try:
            with contextlib.suppress(OSError):
                while True:
                    data = await read_fd(fd, _READ_BYTES)
                    if not data:
                        return
                    on_output(kind, data)
        finally:
            os.close(fd)

    async def _listen(self, control: socket.socket, on_told: OnTold) -> None:
        loop = asyncio.get_running_loop()
        text = b""
        with contextlib.suppress(OSError, ValueError):
            while True:
                data = await loop.sock_recv(control, _READ_BYTES)
                if not data:
                    return
                *lines, text = (text + data).split(b"\n")
                for line in lines:
                    on_told(dict(json.loads(line)))


def spawn(
    table: ProcessTable,
    number: int,
    argv: List[str],
    *,
    cwd: str,
    env: Dict[str, str],
    pass_fds: Sequence[int] = (),
) -> LoopRun:
    """A new process as a run: nothing to read, its output on pipes, all that descends from it
    marked. Raises OSError."""
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    null = os.open(os.devnull, os.O_RDONLY)
    try:
        process = table.spawn(
            argv,
            cwd=cwd,
            env=env,
            stdin=null,
            stdout=out_write,
            stderr=err_write,
            pass_fds=pass_fds,
            marked=True,
        )
    except BaseException:
        os.close(out_read)
        os.close(err_read)
        raise
    finally:
        for fd in (null, out_write, err_write):
            os.close(fd)
    return LoopRun(number, process, {STDOUT: out_read, STDERR: err_read})
