"""The demo's chapter of a batch job: it is killed for memory, and `tk why` says so."""

from __future__ import annotations

import asyncio
import json
import time

from tunnelkit.demo.programs import Failed, Tk
from tunnelkit.demo.timeline import Timeline
from tunnelkit.errors import TimeoutExpired

_SCRIPT = "night.sh"
_SAYS = "Slurm killed it for memory"
#: The labels of the lines that are shown; the lab has no accounting to ask.
_SHOWN = ("because", "next")
_WAIT_S = 60.0
_AGAIN_S = 0.3


class JobChapter:
    """One batch job, submitted and explained."""

    def __init__(self, tk: Tk, show: Timeline) -> None:
        self._tk = tk
        self._show = show

    async def play(self) -> None:
        """From the submission to the reason of its end. Raises TunnelkitError, OSError."""
        self._show.step(f"$ tk submit {_SCRIPT}", "a batch job of your own, for the night")
        job = str(json.loads(await self._tk.run("submit", "--json", _SCRIPT))["job"])
        self._show.done(f"Job {job} was submitted as by sbatch. It fails while nobody looks.")
        await self._ended(job)
        self._show.step(f"$ tk why {job}", "in the morning")
        lines = [line for line in (await self._tk.run("why", job)).splitlines() if line.strip()]
        if _SAYS not in lines[0]:
            raise Failed("tk why does not say that memory was the reason", log="\n".join(lines))
        self._show.done(f"{lines[0]}:")
        for line in lines[1:]:
            if line.split()[0] in _SHOWN:
                self._show.detail(line.removeprefix("  "), "cyan")

    async def _ended(self, job: str) -> None:
        deadline = time.monotonic() + _WAIT_S
        while True:
            found = json.loads(await self._tk.run("why", job, "--sample", "0", "--json"))
            if found["stage"] == "ended":
                return
            if time.monotonic() > deadline:
                raise TimeoutExpired(
                    f"the job has not ended within {_WAIT_S:.0f} s", cause=str(found)
                )
            await asyncio.sleep(_AGAIN_S)
