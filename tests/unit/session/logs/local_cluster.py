"""A cluster whose login host is this machine: real sh, pipes as a link has them, cut at will."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tunnelkit.errors import ConnectionFailed
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import Command, Scheduler
from tunnelkit.scheduler.poller import Run
from tunnelkit.scheduler.slurm.adapter import Slurm
from tunnelkit.session.logs.cluster import LogCluster


class LocalStream:
    """See `ByteStream`. After `room` bytes the link is cut; None: never."""

    def __init__(self, process: asyncio.subprocess.Process, sock: socket.socket) -> None:
        self._process = process
        self._sock = sock

    def fileno(self) -> int:
        return self._sock.fileno()

    async def wait(self) -> int:
        return await self._process.wait()

    def diagnosis(self) -> str:
        return "sh: not here"

    async def close(self) -> None:
        self._sock.close()
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


@dataclass
class LocalLink:
    """Streams that end after some bytes each; then the link is down until `reopen`.

    programs: a directory whose programs the shell finds before all others.
    """

    cut_after: list[int] = field(default_factory=list)
    shell: str = "sh"
    programs: Path | None = None
    opened: int = 0
    down: int = 0
    alive: bool = True
    alive_asked: asyncio.Queue[None] = field(default_factory=asyncio.Queue)
    _streams: list[LocalStream] = field(default_factory=list)

    async def open_stream(self, argv: Sequence[str]) -> LocalStream:
        """Start a command, as ssh would."""
        if self.down:
            raise ConnectionFailed("no link", hint="wait", transient=True)
        self.opened += 1
        words = [self.shell, *argv[1:]]
        if self.cut_after:
            # dd ends the pipe at that byte, in the midst of whatever comes; unlike head it holds
            # nothing back.
            inner = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
            dd = "dd bs=65536 iflag=count_bytes status=none"
            words = ["sh", "-c", f"{inner} | {dd} count={self.cut_after.pop(0)}"]
        near, far = socket.socketpair()
        near.setblocking(False)
        with far:
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=far.fileno(),
                env={**os.environ, "PATH": f"{self.programs or ''}:{os.environ['PATH']}"},
            )
        stream = LocalStream(process, near)
        self._streams.append(stream)
        return stream

    async def reopen(self) -> None:
        """Bring the link back, at the last of some attempts."""
        if self.down:
            self.down -= 1
        if self.down:
            raise ConnectionFailed("still down", hint="wait", transient=True)

    def cluster(self, scheduler: Scheduler | None = None, run: Run | None = None) -> LogCluster:
        """Return the cluster by this link. run: answers as the scheduler's programs."""
        scheduler = scheduler or Slurm()
        inspector = scheduler.inspector()
        assert inspector is not None

        async def nothing(command: Command) -> Completed:
            raise AssertionError(command)

        async def is_alive() -> bool:
            self.alive_asked.put_nowait(None)
            return self.alive

        asked = (scheduler, inspector, run or nothing)
        return LogCluster("login", *asked, self.open_stream, is_alive, self.reopen)


def put_program(directory: Path, name: str, before: str) -> Path:
    """Put a program into a directory that does something, then what the one of its name does."""
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(f'#!/bin/sh\n{before}\nexec {shutil.which(name)} "$@"\n')
    path.chmod(0o755)
    return directory
