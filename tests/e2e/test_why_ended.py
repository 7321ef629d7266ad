"""`tk why` on ended jobs of a real Slurm: scripts that fail in one way each, and healthy ones."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import short_dir
from tests.support.terminal import PATIENCE_S
from tests.support.tkrig import Project, eventually
from tests.support.why_cases.ended import CASES, FILES, FULL, Case
from tunnelkit import lab as tk_lab
from tunnelkit.lab import LabInfo

pytestmark = pytest.mark.slow

_ENDS_S = 120.0


class Jobs:
    """The cases as jobs of the lab's Slurm; they run side by side."""

    def __init__(self, lab: LabInfo, base: Path) -> None:
        self.lab, self.base = lab, base
        self.ids: dict[str, str] = {}
        for name, text in FILES.items():
            (base / f"{name}.py").write_text(text)

    def on(self, *argv: str) -> str:
        """Run this on the login host; return what it printed."""
        done = subprocess.run(
            [*tk_lab.on("login", self.lab.dir), *argv], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def submit(self, name: str, case: Case) -> str:
        """Submit a case; return its job's id."""
        values = {"py": sys.executable, "dir": str(self.base)}

        def filled(text: str) -> str:
            for key, value in values.items():
                text = text.replace("{" + key + "}", value)
            return text

        path = self.base / f"{len(self.ids)}.sh"
        path.write_text(f"{case.first_line}\n{filled(case.script)}\n")
        options = [filled(word) for word in case.options]
        output = [] if "-o" in options else ["-o", f"{self.base}/%j.log"]
        self.ids[name] = self.on("sbatch", "--parsable", *output, *options, str(path))
        return self.ids[name]

    def state(self, name: str) -> str:
        """A job's state, as squeue has it."""
        return self.on("squeue", "-h", "-t", "all", "-j", self.ids[name], "-o", "%T")

    def wait(self, name: str, *states: str) -> None:
        """Wait until a job has one of these states."""
        ends = time.monotonic() + _ENDS_S
        while self.state(name) not in states:
            assert time.monotonic() < ends, f"{name}: {self.state(name)}"
            time.sleep(0.2)


_OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")


@pytest.fixture(scope="module")
def jobs(lab: LabInfo) -> Iterator[Jobs]:
    """All cases, ended."""
    if lab.scheduler != "slurm":
        pytest.skip("Slurm is not installed")
    base = short_dir("w")
    jobs = Jobs(lab, base)
    try:
        for name, case in CASES.items():
            jobs.submit(name, case)
        jobs.wait("cancelled", "RUNNING")
        jobs.on("scancel", jobs.ids["cancelled"])
        jobs.wait("time limit", "RUNNING")
        soon = '$(date -d "+2 seconds" +%Y-%m-%dT%H:%M:%S)'
        jobs.on("sh", "-c", f"scontrol update jobid={jobs.ids['time limit']} EndTime={soon}")
        for name in CASES:
            jobs.wait(name, *_OVER)
        yield jobs
    finally:
        if jobs.ids:
            jobs.on("scancel", *jobs.ids.values())
        shutil.rmtree(base)


async def why(project: Project, job_id: str) -> list[dict[str, Any]]:
    """The verdicts of `tk why JOB --json`."""
    info = (await project.tk("why", job_id, "--json")).json
    assert info["stage"] == "ended"
    return list(info["verdicts"])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.why(name[:7] if name[:7] == "healthy" else "ended"))
        for name in CASES
    ],
)
async def test_why_it_ended(project: Project, jobs: Jobs, name: str) -> None:
    case = CASES[name]
    first, *others = await why(project, jobs.ids[name])
    assert (first["code"], first["certainty"]) == (case.code, case.certainty), first
    assert case.words in first["sentence"]
    assert [one["code"] for one in others] == ([case.also] if case.also else [])


async def test_the_text_says_what_happened_and_what_to_type(project: Project, jobs: Jobs) -> None:
    done = await project.tk("why", jobs.ids["no directory for the log"])
    number = jobs.ids["no directory for the log"]
    assert done.out.startswith(f"job {number} never ran: Slurm could not open its output file")
    assert f"mkdir -p {jobs.base}/absent" in done.out
    failed = await project.tk("why", jobs.ids["exception"], "--check", code=14)
    assert 'collate.py:3  return row["label"]' in failed.out
    await project.tk("why", jobs.ids["healthy"], "--check")


@pytest.mark.root
@pytest.mark.why("ended")
async def test_a_full_file_system(project: Project, jobs: Jobs) -> None:
    # The job mounts it: a node of the lab has its own mounts.
    (jobs.base / "small").mkdir()
    (jobs.base / "full.py").write_text(FULL.format(small=jobs.base / "small"))
    mount = "mount -t tmpfs -o size=2m tmpfs {dir}/small || exit 99"
    script = f"{mount}\n{{py}} {{dir}}/full.py; code=$?\numount {{dir}}/small\nexit $code"
    jobs.submit("full", Case(script, "", ""))
    jobs.wait("full", *_OVER)
    [first] = await why(project, jobs.ids["full"])
    assert (first["code"], first["certainty"]) == ("disk-full", "proven")


async def test_the_sessions_end_says_the_verdict(project: Project, jobs: Jobs) -> None:
    go = jobs.base / "go"
    script = f"until [ -e {go} ]; do sleep 0.2; done\n{{py}} {{dir}}/collate.py"
    number = jobs.submit("adopted", Case(script, "", ""))
    jobs.wait("adopted", "RUNNING")
    await project.up("--attach-job", number)
    loop = await project.loop("python", "2.py")
    go.touch()
    await loop.line(r"the loop has ended: ")
    await eventually(lambda: jobs.state("adopted") == "FAILED", "the job has failed")

    async def detail() -> str:
        return str((await project.status())["detail"])

    async with asyncio.timeout(PATIENCE_S):
        while "KeyError" not in await detail():
            await asyncio.sleep(0.2)
    words = "failed: KeyError: 'label' at collate.py:3 in collate; "
    assert f"job {number}: FAILED, {words}`tk why {number}` says more" in await detail()


async def test_a_forgotten_job_is_said_to_be_one(project: Project, jobs: Jobs) -> None:
    [first] = await why(project, "999999")
    assert (first["code"], first["certainty"]) == ("no-record", "unknown")
