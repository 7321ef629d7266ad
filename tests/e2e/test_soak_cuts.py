"""Link cut after link cut, of random kind and length, while numbered lines go to the node and
back, a debug session steps and files are saved: nothing is lost, doubled or out of order, and
nothing grows. TK_SOAK_CUTS=2000 for the long run (about an hour); it prints its figures.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.tkrig import PATIENCE_S, Project, Terminal, eventually
from tunnelkit import lab as tk_lab
from tunnelkit.lab import LabInfo

pytestmark = pytest.mark.slow

CUTS = int(os.environ.get("TK_SOAK_CUTS", "8"))
SEED = int(os.environ.get("TK_SOAK_SEED", time.time_ns() % 1_000_000))
#: What is allocated once is, by then.
WARM = min(CUTS // 2, 100)
_SYNC_EVERY = 20
_LINE_EVERY_S = 0.005
_FILES = 40

ECHO = """\
import sys
for line in sys.stdin.buffer:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
"""
STEPS = """\
number = 0
while True:
    number += 1
"""
_STOP = 3


@dataclass(frozen=True)
class Use:
    """What a process holds."""

    fds: int
    threads: int
    rss_kib: int

    @classmethod
    def of(cls, pid: int) -> Use:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        fds = len(os.listdir(f"/proc/{pid}/fd"))
        return cls(fds, int(fields["Threads"]), int(fields["VmRSS"].split()[0]))


class Echo:
    """Numbered lines through `tk run`, to the node and back."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self.sent = self.back = 0
        self._more = asyncio.Event()

    async def write(self) -> None:
        while True:
            self._stdin.write(b"%d\n" % self.sent)
            await self._stdin.drain()
            self.sent += 1
            await asyncio.sleep(_LINE_EVERY_S)

    async def read(self) -> None:
        async for line in self._stdout:
            assert int(line) == self.back, f"line {self.back} came as {line!r}"
            self.back += 1
            self._more.set()
        raise AssertionError(f"the stream ended after line {self.back}")

    async def through(self) -> None:
        """Return once what is written from now on comes back: there is a link."""
        wanted = self.sent + 1
        while self.back < wanted:
            self._more.clear()
            await self._more.wait()


class Debugging:
    """One debug session that stops at each turn of a loop."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self.stops = 0

    async def run(self) -> None:
        editor, thread, frame = await self._project.f5_to_stop(_STOP, file="steps.py")
        while True:
            assert await editor.evaluate("number", frame) == str(self.stops)
            self.stops += 1
            await editor.request("continue", threadId=thread)
            thread, frame = await editor.stopped(PATIENCE_S)
            await asyncio.sleep(0.05)


class Saving:
    """A person who saves, and sometimes wants to know it there."""

    def __init__(self, project: Project, dice: random.Random) -> None:
        self._project = project
        self._dice = dice
        self.saves = 0

    async def run(self) -> None:
        while True:
            name = f"saved/f{self._dice.randrange(_FILES)}.txt"
            self._project.write(name, f"{self.saves}\n" * self._dice.randint(1, 200))
            self.saves += 1
            await asyncio.sleep(self._dice.uniform(0.02, 0.3))

    async def is_there(self) -> None:
        """A barrier; then no file is older there than it was here before."""
        before = {path: path.read_text() for path in (self._project.dir / "saved").iterdir()}
        await self._project.tk("sync", "--wait")
        for path, text in before.items():
            there = self._project.remote(f"saved/{path.name}").read_text()
            assert int(there.split()[0]) >= int(text.split()[0]), path.name


async def _one_cut(lab: LabInfo, project: Project, dice: random.Random) -> str:
    """Of most kinds the laptop is told at once; a black hole must be noticed, or waited out."""
    kind = dice.choices(["reset", "hole", "killed", "long hole"], [60, 25, 14, 1])[0]
    if kind == "killed":
        processes.kill(project.ssh_processes())
        return kind
    length_s = 17.0 if kind == "long hole" else min(dice.expovariate(1 / 0.3), 5.0)
    (tk_lab.reset if kind == "reset" else tk_lab.cut)(lab.dir)
    try:
        await asyncio.sleep(length_s)
    finally:
        tk_lab.heal(lab.dir)
    return kind


@asynccontextmanager
async def _working(*works: asyncio.Task[None]) -> AsyncIterator[None]:
    """They go on until the end of the context; the first error ends it."""

    async def watch(whom: asyncio.Task[None] | None) -> None:
        done, _ = await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
        if whom is not None:
            whom.cancel(f"{done}")

    watching = asyncio.create_task(watch(asyncio.current_task()))
    try:
        yield
    finally:
        watching.cancel()
        failed = [work.exception() for work in works if work.done() and not work.cancelled()]
        for work in works:
            work.cancel()
        await asyncio.gather(watching, *works, return_exceptions=True)
        for error in failed:
            if error is not None:
                raise error


@pytest.mark.timeout(240 + 6 * CUTS)
async def test_cut_after_cut_and_nothing_is_lost(project: Project, healed: LabInfo) -> None:
    dice = random.Random(SEED)
    print(f"TK_SOAK_SEED={SEED}")
    project.write("echo.py", ECHO)
    project.write("steps.py", STEPS)
    status = await project.up("node1", "--cpus", "2")
    terminal = await project.loop("python", "steps.py")
    watched = {"session": int(status["pid"]), "agent": int(status["agent"]["pid"])}
    running = await project.piped("run", "python", "-u", "echo.py")
    echo, debugging, saving = Echo(running), Debugging(project), Saving(project, dice)
    works = [echo.write(), echo.read(), debugging.run(), saving.run()]
    kinds: dict[str, int] = {}
    before: dict[str, Use] = {}
    async with (
        _told(project, terminal, watched["session"]),
        _working(*(asyncio.create_task(work) for work in works)),
    ):
        await echo.through()
        for number in range(CUTS):
            if number == WARM:
                await project.all_loaded()
                before, far_before = await _settled(project, watched)
            kind = await _one_cut(healed, project, dice)
            kinds[kind] = kinds.get(kind, 0) + 1
            async with asyncio.timeout(PATIENCE_S):
                await echo.through()
            if number % _SYNC_EVERY == _SYNC_EVERY - 1:
                await saving.is_there()
        await saving.is_there()
        stops = debugging.stops
        await eventually(lambda: debugging.stops > stops, "the debug session steps on")
        after, far_after = await _settled(project, watched)
    with contextlib.suppress(ProcessLookupError):
        running.terminate()
    await running.wait()
    print(
        f"{CUTS} cuts {kinds}: {echo.back} lines, {debugging.stops} stops, {saving.saves} saves; "
        f"{before} -> {after}; on the cluster {far_before} -> {far_after} processes"
    )
    assert far_after <= far_before
    for name, held in after.items():
        assert held.fds <= before[name].fds + 4, f"{name}: {before[name]} -> {held}"
        assert held.threads <= before[name].threads + 2, f"{name}: {before[name]} -> {held}"
        grown_kib = held.rss_kib - before[name].rss_kib
        assert grown_kib <= 8192, f"{name}: {before[name]} -> {held}"


@asynccontextmanager
async def _told(project: Project, terminal: Terminal, session: int) -> AsyncIterator[None]:
    """What the other side saw, with any failure."""
    try:
        yield
    except BaseException:
        # What each of its tasks waits for goes to its log.
        with contextlib.suppress(ProcessLookupError):
            os.kill(session, signal.SIGUSR2)
            time.sleep(1.0)
        for log in project.base.glob("s/*/session.log"):
            print(log.read_text(errors="replace")[-60_000:])
        print("\n".join(terminal.lines[-40:]), f"at {time.asctime()}", sep="\n")
        raise


async def _settled(project: Project, watched: dict[str, int]) -> tuple[dict[str, Use], int]:
    """What they hold, and how many processes of ours the cluster has, once none comes or goes:
    those of past links are gone."""
    async with asyncio.timeout(PATIENCE_S):
        last, now = set[int](), _far(project)
        while not now or now != last:
            await asyncio.sleep(0.5)
            last, now = now, _far(project)
    return {name: Use.of(pid) for name, pid in watched.items()}, len(now)


def _far(project: Project) -> set[int]:
    return {one.pid for one in (*project.cluster_processes(), *project.sshd_connections())}
