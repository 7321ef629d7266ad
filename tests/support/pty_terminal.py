"""A `tk` command on a terminal of its own, as a person has it: keys in, screen out."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import signal
import struct
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.tkrig import _TK, PATIENCE_S, Project

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Screen:
    """The command and all that it has written. Made by `on_a_terminal`."""

    def __init__(self, process: asyncio.subprocess.Process, master: int) -> None:
        self.process = process
        self.raw = ""
        self._master = master
        self._seen = 0
        self._more = asyncio.Event()
        os.set_blocking(master, False)
        asyncio.get_running_loop().add_reader(master, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._master, 65536)
        except BlockingIOError:
            return
        except OSError:  # the far side of the pty has been closed
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._master)
        self.raw += data.decode("utf-8", "replace")
        self._more.set()

    @property
    def text(self) -> str:
        """Everything so far, without escape codes; a line that is rewritten counts as new."""
        return _ESCAPES.sub("", self.raw).replace("\r\n", "\n").replace("\r", "\n")

    @property
    def lines(self) -> list[str]:
        """What is on the screen at last: of a line that was rewritten, its last text."""
        text = _ESCAPES.sub("", self.raw).replace("\r\n", "\n").removesuffix("\n")
        return [line.rpartition("\r")[2] for line in text.split("\n")]

    async def shows(self, pattern: str, timeout_s: float = PATIENCE_S) -> re.Match[str]:
        """Wait for text that matches, after what was found last."""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    found = re.compile(pattern, re.MULTILINE).search(self.text, self._seen)
                    if found:
                        self._seen = found.end()
                        return found
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            raise AssertionError(f"no {pattern!r} in:\n{self.text}") from None

    def type(self, keys: str) -> None:
        """Press keys; "\\x03" is Ctrl-C."""
        os.write(self._master, keys.encode())

    def resize(self, rows: int, columns: int) -> None:
        """Another window size, told to the command as a terminal does."""
        _set_size(self._master, rows, columns)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGWINCH)

    def flags(self) -> int:
        """The terminal's local modes: ECHO, ICANON, ISIG ..."""
        return int(termios.tcgetattr(self._master)[3])

    async def ended(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for its end; its exit code."""
        async with asyncio.timeout(timeout_s):
            return await self.process.wait()

    async def close(self) -> None:
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)


def _set_size(fd: int, rows: int, columns: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _own_terminal() -> None:
    """In the child: its stdin becomes its controlling terminal, so that Ctrl-C is a signal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@asynccontextmanager
async def on_a_terminal(
    project: Project,
    *args: str,
    program: str = str(_TK),
    rows: int = 30,
    columns: int = 100,
    **env: str,
) -> AsyncIterator[Screen]:
    """`tk ARGS` (or another program) in the project, on a fresh pseudo terminal."""
    master, slave = os.openpty()
    _set_size(slave, rows, columns)
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            *args,
            cwd=project.dir,
            env={**project.env, "TERM": "xterm-256color", **env},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=_own_terminal,
        )
    finally:
        os.close(slave)
    screen = Screen(process, master)
    try:
        yield screen
    finally:
        await screen.close()
