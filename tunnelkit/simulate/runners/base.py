"""A run under limits, and the interface of what holds it to them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tunnelkit.errors import MissingProgram

_CHUNK = 64 * 1024
#: How often what is left of a run is killed, and how long between: 10 s in all.
TRIES, AGAIN_S = 500, 0.02


@dataclass(frozen=True, slots=True)
class Limits:
    """A job's limits on one node; None: none.

    time_s: the job's. stop_s: when the user wants the run to be stopped, before that.
    """

    mem_bytes: int | None = None
    cpus: int | None = None
    time_s: float | None = None
    stop_s: float | None = None


@dataclass(frozen=True)
class LocalJob:
    """One run. name: unique, for what is made for it. directory: where it runs. work: a private
    directory of its own. image: for containers, "" for none."""

    name: str
    argv: Sequence[str]
    environ: Mapping[str, str]
    directory: Path
    work: Path
    limits: Limits
    image: str = ""


@dataclass(slots=True)
class MemoryUse:
    """Memory of a run. used: now. kills: processes that were killed for it; None if nobody counts.

    at_limit: how often the limit was reached with nothing left to free; None: as kills."""

    used: int | None = None
    peak: int | None = None
    kills: int | None = None
    at_limit: int | None = None

    def later(self, new: MemoryUse) -> None:
        """Take what a later look has seen; what it lacks stays as it was."""
        self.used = new.used if new.used is not None else self.used
        self.peak = max((one for one in (self.peak, new.peak, new.used) if one), default=None)
        self.kills = new.kills if new.kills is not None else self.kills
        self.at_limit = new.at_limit if new.at_limit is not None else self.at_limit


class Child:
    """A process with the read end of its output.

    The pipe is not asyncio's: with that, `wait` would wait for all who inherited it."""

    def __init__(self, process: asyncio.subprocess.Process, output: int) -> None:
        self.process = process
        self._output: int | None = output

    @property
    def pid(self) -> int:
        """Its number."""
        return self.process.pid

    @property
    def ended(self) -> bool:
        """True once it has been waited for."""
        return self.process.returncode is not None

    async def wait(self) -> int:
        """Return its code; minus a signal's number."""
        return await self.process.wait()

    async def read(self, take: Callable[[bytes], None]) -> None:
        """Hand over the output as it comes, until nobody can write any more."""
        if self._output is None:
            return
        file = os.fdopen(self._output, "rb", 0)
        self._output = None
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), file
        )
        try:
            while data := await reader.read(_CHUNK):
                take(data)
        finally:
            transport.close()

    def close(self) -> None:
        """Close the output, if nobody has read it."""
        if self._output is not None:
            os.close(self._output)
            self._output = None


class Started(Protocol):
    """A run that goes on. child: its first process, or what stands for it."""

    child: Child

    def memory(self) -> MemoryUse:
        """Return what it uses now; quick."""
        ...

    async def signal(self, number: signal.Signals) -> None:
        """Send a signal to all its processes."""
        ...

    def pids(self) -> list[int]:
        """Return its processes, as far as they can be seen."""
        ...

    async def finish(self) -> MemoryUse:
        """Return the last counts, once the first process has ended."""
        ...


class Runner(Protocol):
    """One way. source: where its counts come from, as evidence names it.

    watches: tk itself has to look at the memory and to kill."""

    name: str
    source: str
    watches: bool

    async def problem(self, job: LocalJob) -> str:
        """Return why it can't be used here; "" if it can."""
        ...

    def started(self, job: LocalJob) -> AbstractAsyncContextManager[Started]:
        """Run the job; at the end of the context nothing of it is left."""
        ...


async def start(
    argv: Sequence[str], job: LocalJob, environ: Mapping[str, str] | None = None
) -> Child:
    """Start a process in a session of its own: Ctrl-C at tk's terminal does not reach it.

    Its stdout and stderr come in one pipe, as a job's log. Raises MissingProgram."""
    output, child_end = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=subprocess.DEVNULL,
            stdout=child_end,
            stderr=child_end,
            cwd=job.directory,
            env=dict(job.environ if environ is None else environ),
            start_new_session=True,
        )
    except OSError as error:
        os.close(output)
        raise MissingProgram(
            f"{argv[0]} can't be started",
            cause=error.strerror,
            hint="its first line names its interpreter; is it installed here?",
        ) from error
    finally:
        os.close(child_end)
    return Child(process, output)


@dataclass(frozen=True)
class Answer:
    """The end of a small command. code: None if it gave no answer in time, or is not there."""

    code: int | None
    text: str = field(default="")


async def ask(argv: Sequence[str], limit_s: float = 20.0) -> Answer:
    """Run a small command to its end; never raises for what it does."""
    try:
        child = await asyncio.create_subprocess_exec(
            *argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return Answer(None, error.strerror or str(error))
    try:
        async with asyncio.timeout(limit_s):
            out, _ = await child.communicate()
    except TimeoutError:
        return Answer(None, f"no answer within {limit_s:.0f} s")
    finally:
        if child.returncode is None:
            send(child.pid, signal.SIGKILL)
            await child.wait()
    return Answer(child.returncode, out[-4000:].decode("utf-8", "replace").strip())


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process, if it is still there and ours."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def last_line(text: str) -> str:
    """Return the last line of an answer, for an error."""
    return (text.splitlines() or [""])[-1][:200]
