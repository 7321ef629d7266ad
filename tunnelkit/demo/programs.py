"""The real `tk`, run as a user would run it, apart from the demo's own terminal."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tunnelkit.demo.places import tk_argv
from tunnelkit.errors import ExitCode, TimeoutExpired, TunnelkitError
from tunnelkit.session.runtime.status import SessionStatus

#: Seconds that a program may take to stop: `tk lab up` takes down what it began.
_STOP_S = 15.0


class Failed(TunnelkitError):
    """A step of the demo failed; `log` is the text that tells more, `status` the exit code."""

    def __init__(
        self,
        message: str,
        *,
        cause: str | None = None,
        log: str = "",
        status: int = int(ExitCode.FAILURE),
    ) -> None:
        super().__init__(message, cause=cause)
        self.log = log
        self.status = status


class Tk:
    """Runs `tk` with one environment, in one directory."""

    def __init__(self, environ: Mapping[str, str], cwd: Path) -> None:
        self._environ = dict(environ)
        self._cwd = cwd

    async def run(self, *words: str, timeout_s: float = 120.0) -> str:
        """Run to the end; what it wrote on stdout. Raises Failed, TimeoutExpired."""
        process = await self._start(words, subprocess.PIPE, subprocess.PIPE)
        try:
            async with asyncio.timeout(timeout_s):
                out, errors = await process.communicate()
        except TimeoutError:
            raise TimeoutExpired(
                f"tk {' '.join(words)} did not end within {timeout_s:.0f} s"
            ) from None
        finally:
            await _stop(process, signal.SIGINT)
        if process.returncode != 0:
            raise Failed(
                f"tk {' '.join(words)} ended with exit code {process.returncode}",
                log=errors.decode(errors="replace"),
                # A negative one is the signal that ended it.
                status=max(process.returncode or 0, int(ExitCode.FAILURE)),
            )
        return out.decode(errors="replace")

    async def status(self) -> SessionStatus:
        """The answer of `tk status --json`."""
        answer: SessionStatus = json.loads(await self.run("status", "--json"))
        return answer

    @asynccontextmanager
    async def running(self, *words: str, output: Path) -> AsyncIterator[asyncio.subprocess.Process]:
        """A `tk` in the background, its output in a file; ended (TERM) on exit."""
        fd = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            process = await self._start(words, fd, subprocess.STDOUT)
        finally:
            os.close(fd)
        try:
            yield process
        finally:
            await _stop(process, signal.SIGTERM)

    async def _start(
        self, words: tuple[str, ...], stdout: int, stderr: int
    ) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *tk_argv(),
            *words,
            env=self._environ,
            cwd=self._cwd,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            # A Ctrl-C is the demo's alone: it ends its programs one by one.
            start_new_session=True,
        )


async def _stop(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Tell it to end, and see to it."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)
    try:
        async with asyncio.timeout(_STOP_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
