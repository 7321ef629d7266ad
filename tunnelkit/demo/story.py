"""The demo on a cluster with ssh: login, two nodes, Slurm where it is installed."""

from __future__ import annotations

import asyncio
import subprocess
import time

from tunnelkit import lab
from tunnelkit.demo.debug_story import DebugStory
from tunnelkit.demo.editor import DemoEditor
from tunnelkit.demo.job_chapter import JobChapter
from tunnelkit.demo.places import Places
from tunnelkit.demo.programs import Failed, Tk
from tunnelkit.demo.ranks_chapter import RanksChapter
from tunnelkit.demo.timeline import Timeline

_NODE = "node1"
_JOB_GONE_S = 30.0


class Story(DebugStory):
    """See `DebugStory`. scheduler: auto, slurm or none."""

    node = _NODE

    def __init__(self, places: Places, tk: Tk, show: Timeline, scheduler: str) -> None:
        super().__init__(places, tk, show)
        self._scheduler = scheduler
        self._job: str | None = None

    async def play(self) -> None:
        """See `DebugStory.play`."""
        await self._lab_up()
        await self._init()
        await self._up()
        await self.debug()
        if self._job is not None:
            await RanksChapter(self._places, self._tk, self._show, self.see).play()
            await JobChapter(self._tk, self._show).play()

    async def end(self) -> None:
        """See `DebugStory.end`."""
        self.see()
        self._show.step("$ tk down")
        await self._tk.run("down")
        await self._job_gone()
        what = f"squeue shows no job {self._job} any more" if self._job else "its agent has ended"
        self._show.done(f"Session, tunnels, mirror and debuggee are gone; {what}.")
        await self.lab_down()

    async def _lab_up(self) -> None:
        words = ["lab", "up", "--memory-limits"]
        if self._scheduler != "auto":
            words += ["--scheduler", self._scheduler]
        self._show.step(f"$ tk {' '.join(words)}", "you won't need this: you have a cluster")
        await self._tk.run(*words)
        info = await asyncio.to_thread(lab.info, self._places.lab)
        what = "real sshd and Slurm" if info.scheduler == "slurm" else "real sshd, no Slurm"
        self._show.done(f"A cluster of login, node1 and node2: {what}, on loopback, run by you.")
        for note in info.notes:
            if "No Slurm" in note:
                self._show.detail(note, "yellow")

    async def _init(self) -> None:
        self._show.step("$ tk init --profile lab", "once per project; for yours: --login HOST")
        await self._tk.run("init", "--profile", "lab", "--yes")
        self._show.done("Wrote tunnelkit.toml and .vscode/: F5 there goes through tk.")

    async def _up(self) -> None:
        job = await self.up(_NODE, "--gpus", "1", "--cpus", "2")
        if job is None:
            where = f"{_NODE} by ssh: without a scheduler there is no job, no GPU"
        else:
            self._job = str(job["id"])
            where = f"Slurm job {self._job} on {_NODE} with a (pretend) GPU"
        self._show.done(f"One ssh login, then {where}.")
        self._show.detail(f"{self.files} files are mirrored there; so is every save from now.")

    async def tell_where(self, editor: DemoEditor) -> None:
        """Show node, job and GPU as the stopped program itself sees them."""
        node = await editor.variable("SLURMD_NODENAME") or await editor.variable("TK_LAB_HOST")
        job, gpus = await editor.variable("SLURM_JOB_ID"), None
        found = [f"node {node}"]
        if self._job is not None:
            gpus = await editor.variable("CUDA_VISIBLE_DEVICES")
            self.require(bool(gpus), "the program sees no GPU", "CUDA_VISIBLE_DEVICES is not set")
            found += [f"SLURM_JOB_ID={job}", f"CUDA_VISIBLE_DEVICES={gpus}"]
        self.require(
            (node, job) == (_NODE, self._job), "the program runs elsewhere", f"{node}, job {job}"
        )
        self._show.detail(f"The program says: {', '.join(found)}")

    async def _job_gone(self) -> None:
        if self._job is None:
            return
        squeue = [*lab.on("login", self._places.lab), "squeue", "--noheader"]
        deadline = time.monotonic() + _JOB_GONE_S
        while left := (await asyncio.to_thread(subprocess.check_output, squeue, text=True)).strip():
            if time.monotonic() > deadline:
                raise Failed(f"job {self._job} is still in the queue", log=left)
            await asyncio.sleep(0.1)
