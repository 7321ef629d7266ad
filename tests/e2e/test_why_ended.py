"""`tk why` on ended jobs of a real Slurm: scripts that fail in one way each, and healthy ones."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import short_dir
from tests.support.terminal import PATIENCE_S
from tests.support.tkrig import Project, eventually
from tunnelkit import lab as tk_lab
from tunnelkit.lab import LabInfo

_ENDS_S = 120.0
_RANKS = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 2:
    time.sleep(1)
    {}["label"]
dist.all_reduce(torch.ones(1))
dist.barrier()
"""
_COLLATE = """
def collate(row):
    return row["label"]
collate({})
"""
_CUDA_OOM = """
class OutOfMemoryError(RuntimeError): pass
OutOfMemoryError.__module__ = "torch"
raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity "
    "of 39.39 GiB of which 1.75 GiB is free. Process 77 has 30.10 GiB memory in use.")
"""
_FULL = """
with open("{small}/x.bin", "wb", buffering=0) as file:
    for part in range(16):
        file.write(bytes(1 << 20))
"""
_HANDLED = """
import sys, traceback
try:
    {}["a"]
except KeyError:
    traceback.print_exc()
"""


@dataclass(frozen=True)
class Case:
    """script: sh, where {py} is a Python and {dir} the test's directory. code, certainty: of the
    first verdict. words: in its sentence. also: the second verdict's code."""

    script: str
    code: str
    certainty: str
    words: str = ""
    also: str = ""
    first_line: str = "#!/bin/bash"
    options: tuple[str, ...] = ()


CASES: dict[str, Case] = {
    "exception": Case("{py} {dir}/collate.py", "exception", "proven",
                      "KeyError: 'label' at collate.py:3 in collate"),
    "exit code": Case("echo working; exit 7", "exit-unknown", "unknown", "exit code 7"),
    "no directory for the log": Case("echo x", "launch-output", "proven",
                                     options=("-o", "{dir}/absent/%j.log")),
    "bad interpreter": Case("x", "launch-interpreter", "proven", "/no/such/python",
                            first_line="#!/no/such/python"),
    "command not found": Case("module load x; tranline --x", "not-found", "proven", "tranline"),
    "not executable": Case("echo > {dir}/plain; {dir}/plain", "not-executable", "proven"),
    "no such program": Case("{py} {dir}/absent.py", "not-found", "proven", "absent.py"),
    "segfault": Case("{py} -X faulthandler -c 'import ctypes; ctypes.string_at(0)'", "segfault",
                     "proven", "segmentation fault, at <string>:1"),
    "abort": Case("{py} -c 'import os; os.abort()'", "abort", "proven"),
    "killed by itself": Case("kill -KILL $$", "killed-unknown", "unknown"),
    "killed child": Case("{py} -c 'import os; os.kill(os.getpid(), 9)'", "killed-unknown",
                         "unknown"),
    "hidden step": Case("srun -n1 sh -c 'exit 3'\necho done\nexit 0", "step-failed", "likely",
                        "Exited with exit code 3"),
    "hidden exception": Case("srun -n1 {py} {dir}/collate.py\nexit 0", "exception", "proven",
                             "KeyError: 'label'", also="step-failed"),
    "memory refused": Case("ulimit -v 2000000\n{py} -c 'bytearray(10 << 30)'", "exception",
                           "proven", "MemoryError"),
    "GPU memory": Case("{py} {dir}/cuda_oom.py", "gpu-oom", "proven", "2.50 GiB"),
    "missing module": Case("{py} -c 'import notthere'", "missing-module", "proven", "notthere"),
    "time limit": Case("echo step 1/10\nsleep 300", "timeout", "proven"),
    "cancelled": Case("sleep 300", "cancelled", "proven"),
    "healthy": Case("echo fine", "ok", "proven"),
    "healthy, with a handled exception": Case("{py} {dir}/handled.py", "ok", "proven"),
    "healthy, ends its own helper": Case(
        "srun -n1 sh -c 'touch {dir}/begun; sleep 300' &\n"
        "until [ -e {dir}/begun ]; do sleep 0.1; done\nkill $!; wait; exit 0", "ok", "proven"),
    "handled exception, then a code": Case(
        "{py} {dir}/handled.py\nfor i in $(seq 40); do echo step $i; done; exit 5",
        "exit-unknown", "unknown"),
}  # fmt: skip
if importlib.util.find_spec("torch") is not None:
    CASES["torchrun"] = Case(
        "{py} -m torch.distributed.run --standalone --nproc-per-node 4 {dir}/ranks.py",
        "exception", "proven", "KeyError: 'label' at ranks.py:6 (rank 2)", options=("-n", "4"),
    )  # fmt: skip


class Jobs:
    """The cases as jobs of the lab's Slurm; they run side by side."""

    def __init__(self, lab: LabInfo, base: Path) -> None:
        self.lab, self.base = lab, base
        self.ids: dict[str, str] = {}
        for name, text in (("collate", _COLLATE), ("cuda_oom", _CUDA_OOM), ("ranks", _RANKS),
                           ("handled", _HANDLED)):  # fmt: skip
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


@pytest.mark.parametrize("name", CASES)
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
async def test_a_full_file_system(project: Project, jobs: Jobs) -> None:
    # The job mounts it: a node of the lab has its own mounts.
    (jobs.base / "small").mkdir()
    (jobs.base / "full.py").write_text(_FULL.format(small=jobs.base / "small"))
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
