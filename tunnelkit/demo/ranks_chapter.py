"""The demo's chapter of four ranks: one hangs, `tk ranks` names it, the console looks inside."""

from __future__ import annotations

import asyncio
import re
import shlex
import time
from collections.abc import Callable

from tunnelkit.demo.places import Places
from tunnelkit.demo.programs import Failed, Tk
from tunnelkit.demo.timeline import Timeline
from tunnelkit.errors import TimeoutExpired

RANKS, LATE = 4, 2
#: The job has fewer CPUs than there are ranks.
_LOOP = ("loop", "srun", "-n", str(RANKS), "--overcommit", "python", "ranks.py")
_LOOKS = ("console", str(LATE), "-c", "pause", "-c", "p path")
_WAIT_S = 60.0
#: In the output of the loop.
_ALL_WAIT, _ENDED = f"all {RANKS} ranks wait", "run 1 · ended"


class RanksChapter:
    """Four ranks by srun, within the job that is there. see: remembers the demo's processes."""

    def __init__(self, places: Places, tk: Tk, show: Timeline, see: Callable[[], None]) -> None:
        self._places = places
        self._tk = tk
        self._show = show
        self._see = see

    async def play(self) -> None:
        """From four waiting ranks to their common end. Raises TunnelkitError, OSError."""
        self._show.step(f"$ tk {' '.join(_LOOP)}", f"now {RANKS} ranks; one will hang")
        async with self._tk.running(*_LOOP, output=self._places.ranks_output) as loop:
            await self._until(self._says(_ALL_WAIT), loop, f"{RANKS} ranks that wait")
            await self._all_known()
            self._see()
            self._show.done(f"{RANKS} ranks wait for a debugger: an editor, or a console.")
            await self._begin(loop)
            await self._name_late()
            await self._look_inside()
            await self._mend(loop)

    async def _begin(self, loop: asyncio.subprocess.Process) -> None:
        self._show.step("$ tk console -c c", "all of them may run")
        self._show.done(" ".join((await self._tk.run("console", "-c", "c")).split()))
        for rank in range(RANKS):
            await self._until(self._says(f"rank {rank} begins"), loop, f"rank {rank}")

    async def _name_late(self) -> None:
        self._show.step("$ tk ranks", "the job hangs: who is where? nobody is stopped for it")
        lines = [line for line in (await self._tk.run("ranks")).splitlines() if line.strip()]
        alone = re.compile(rf"\w +{LATE} +1 +ranks\.py:\d+ load ")
        if not any(map(alone.match, lines)):
            raise Failed(f"tk ranks does not show rank {LATE} apart", log="\n".join(lines))
        self._show.done(f"Rank {LATE} is somewhere else than the others:")
        for line in lines[1:]:
            self._show.detail(line, "cyan")

    async def _look_inside(self) -> None:
        self._show.step(f"$ tk {shlex.join(_LOOKS)}", "one rank is paused, and asked")
        # The last two lines: before them the console says where the rank was.
        place, value = (await self._tk.run(*_LOOKS)).splitlines()[-2:]
        missing = f"shard{LATE}.txt"
        if value.strip() != repr(missing):
            raise Failed("the console shows another value", cause=f"{place}; {value}")
        self._show.done(f"path = {value.strip()}: that shard is missing. It stands at:")
        self._show.detail(" ".join(place.split()), "cyan")

    async def _mend(self, loop: asyncio.subprocess.Process) -> None:
        missing = self._places.project / f"shard{LATE}.txt"
        words = ("console", str(LATE), "-c", "c")
        self._show.step(f"write {missing.name}; $ tk {' '.join(words)}", "here, on the laptop")
        missing.write_text("3.0\n4.0\n")
        await self._tk.run(*words)
        await self._until(self._says(_ENDED), loop, "the end of the ranks")
        if f"{_ENDED}: exit code 0" not in self._output():
            raise Failed("ranks.py ended badly", log=self._output())
        self._show.done(f"The mirror has it on the node: the {RANKS} ranks met, exit code 0.")

    # -- inside --------------------------------------------------------------

    async def _all_known(self) -> None:
        """Wait until the session has them, too: the loop's line is the node's."""
        deadline = time.monotonic() + _WAIT_S
        while len((await self._tk.status())["loops"][-1]["ranks"] or ()) < RANKS:
            if time.monotonic() > deadline:
                raise TimeoutExpired(f"the session has not seen {RANKS} ranks")

    def _says(self, text: str) -> Callable[[], bool]:
        """Return a test whether the loop's output has a text."""
        return lambda: text in self._output()

    async def _until(
        self, condition: Callable[[], bool], loop: asyncio.subprocess.Process, what: str
    ) -> None:
        """Wait for something of the loop's output."""
        deadline = time.monotonic() + _WAIT_S
        while not condition():
            if loop.returncode is not None:
                raise Failed("tk loop ended at once", log=self._output())
            if time.monotonic() > deadline:
                raise TimeoutExpired(f"not there within {_WAIT_S:.0f} s: {what}")
            await asyncio.sleep(0.05)

    def _output(self) -> str:
        return self._places.ranks_output.read_text(errors="replace")
