"""A `tk` command: while it runs, and when it has ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
from dataclasses import dataclass
from typing import Any

#: How long a command may take before the test fails; the machine may be slow and shared.
PATIENCE_S = 90.0


@dataclass(frozen=True)
class Done:
    """A `tk` command that has ended."""

    argv: tuple[str, ...]
    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"tk {' '.join(self.argv)}: {self.code}\n{self.out}\n{self.err}"

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Terminal:
    """A running `tk` command whose lines (stdout and stderr together) are read as they come."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self._seen = 0
        self._more = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            self.lines.append(line.decode("utf-8", "replace").rstrip("\n"))
            self._more.set()
        self._more.set()

    async def line(self, pattern: str, timeout_s: float = PATIENCE_S) -> re.Match[str]:
        """The next line, after the one this found last, that matches."""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    while self._seen < len(self.lines):
                        found = re.search(pattern, self.lines[self._seen])
                        self._seen += 1
                        if found:
                            return found
                    assert not self._reading.done(), f"ended before {pattern!r}:\n{self.text}"
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            raise AssertionError(f"no line {pattern!r} in:\n{self.text}") from None

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def skip(self) -> None:
        """Look only at lines that come from now on."""
        self._seen = len(self.lines)

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    async def quit(self) -> int:
        """Ctrl-C twice, as one does: the second after the first showed; its exit code."""
        self.skip()
        self.interrupt()
        await self.line("Ctrl-C again: quit")
        self.interrupt()
        return await self.ended()

    async def ended(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for its end; its exit code."""
        async with asyncio.timeout(timeout_s):
            await self.process.wait()
            await self._reading
        assert self.process.returncode is not None
        return self.process.returncode

    async def close(self) -> None:
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.terminate()
            with contextlib.suppress(TimeoutError):
                await self.ended(15.0)
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
