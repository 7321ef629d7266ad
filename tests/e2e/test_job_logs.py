"""`tk logs JOB`: logs of jobs that a user submitted, on the lab's real Slurm."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.lab_fixtures import ssh
from tests.support.login_rig import LoginHost
from tests.support.tkrig import Project, eventually

pytestmark = pytest.mark.slow

#: Writes 5 MB in bursts: numbered lines with text that does not compress to nothing. Goes on from
#: the half of it once the file `go` is there.
WRITER = """\
import os, random, sys, time
random.seed(7)
written = 0
number = 0
waited = False
while written < 5_000_000:
    line = "%07d %s\\n" % (number, "".join(random.choices("abcdefghij \\033[0m", k=120)))
    sys.stdout.write(line)
    written += len(line)
    number += 1
    if number % 2000 == 0:
        sys.stdout.flush()
        time.sleep(0.05)
    if written > 2_500_000 and not waited:
        sys.stdout.flush()
        waited = True
        while not os.path.exists("go"):
            time.sleep(0.1)
print("the last line", flush=True)
"""

FAILS = """\
import os, sys, time
rank = int(os.environ["SLURM_PROCID"])
def collate(batch):
    return batch["label"]
print("rank", rank, "begins", flush=True)
if rank == 1:
    open("failed-1", "w").close()
    collate({"image": 1})
while not os.path.exists("failed-1"):
    time.sleep(0.05)
time.sleep(1)
raise ConnectionResetError(104, "Connection reset by peer")
"""


async def at_login(project: Project, command: str) -> str:
    return (await asyncio.to_thread(ssh, project.lab, "login", command)).strip()


class Batch:
    """A directory on the cluster with batch jobs of the user's own."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.dir = Path(project.lab.home) / f"batch-{project.dir.name}"
        self.dir.mkdir()

    async def submit(self, script: str, *options: str) -> str:
        """Submit a script; return its job's id."""
        (self.dir / "logs").mkdir(exist_ok=True)
        (self.dir / "job.sh").write_text(f"#!/bin/sh\n{script}\n")
        words = " ".join(options)
        return await at_login(
            self.project, f"cd {self.dir} && sbatch --parsable -c 1 -t 5 {words} job.sh"
        )

    async def writes(self, *options: str) -> str:
        """Submit a job that writes 5 MB."""
        (self.dir / "writer.py").write_text(WRITER)
        return await self.submit(f"exec {sys.executable} writer.py", *options)

    async def ended(self, job: str) -> None:
        """Wait for a job's end."""
        while await at_login(self.project, f"squeue -h -j {job} -t R,PD,CG -o %T"):
            await asyncio.sleep(0.2)


@pytest.fixture
def batch(project: Project) -> Batch:
    return Batch(project)


class Followed:
    """A `tk logs -f` that runs, and what it has printed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.printed = bytearray()
        self._process = process
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while data := await self._process.stdout.read(1 << 16):
            self.printed.extend(data)

    async def has(self, size: int) -> None:
        """Wait until that many bytes have come."""
        await eventually(lambda: len(self.printed) >= size, f"{size} bytes have come", 60)

    async def end(self) -> bytes:
        """Wait for its end, which is no failure; return all that it has printed."""
        async with asyncio.timeout(90):
            assert await self._process.wait() == 0
            await self._reading
        return bytes(self.printed)


async def test_a_job_without_a_session_is_followed_to_its_end(
    project: Project, batch: Batch
) -> None:
    job = await batch.writes()
    followed = Followed(await project.piped("logs", job, "-f"))
    await followed.has(2_400_000)
    (batch.dir / "go").touch()
    printed = await followed.end()
    log = (batch.dir / f"slurm-{job}.out").read_bytes()
    assert len(log) > 5_000_000
    assert log.endswith(b"the last line\n")
    assert printed == log
    # Whole, once it has ended; and only its last lines.
    done = await project.tk("logs", job)
    assert done.out.encode() == log
    assert (await project.tk("logs", job, "-n", "1")).out == "the last line\n"


@pytest.mark.logins(3)
async def test_cuts_of_an_own_connection_lose_no_byte(login: LoginHost, by_login: Project) -> None:
    batch = Batch(by_login)
    job = await batch.writes()
    followed = Followed(await by_login.piped("logs", job, "-f"))
    await followed.has(300_000)
    login.cut()
    await followed.has(2_400_000)
    login.cut()
    (batch.dir / "go").touch()
    assert await followed.end() == (batch.dir / f"slurm-{job}.out").read_bytes()


@pytest.mark.logins(2)
async def test_a_cut_of_the_sessions_connection_loses_no_byte(
    login: LoginHost, by_login: Project
) -> None:
    batch = Batch(by_login)
    await by_login.up("node1", "--cpus", "1")
    job = await batch.writes("-w", "node2")
    followed = Followed(await by_login.piped("logs", job, "-f"))
    await followed.has(300_000)
    login.cut()
    (batch.dir / "go").touch()
    assert await followed.end() == (batch.dir / f"slurm-{job}.out").read_bytes()


async def test_a_failed_job_by_the_session_and_without(project: Project, batch: Batch) -> None:
    (batch.dir / "fails.py").write_text(FAILS)
    job = await batch.submit(
        f"srun -l -n 2 {sys.executable} fails.py",
        "-n 2",
        "--output=logs/%x-%j.out",
        "--error=logs/%x-%j.err",
        "-J train",
        "--open-mode=append",
    )
    await batch.ended(job)
    out, err = (batch.dir / f"logs/train-{job}.{end}" for end in ("out", "err"))
    for session in (False, True):
        if session:
            await project.up("node1", "--cpus", "1")
        assert (await project.tk("logs", job)).out == out.read_text()
        assert (await project.tk("logs", job, "--err")).out == err.read_text()
        assert (await project.tk("logs", job, "--rank", "1")).out == "rank 1 begins\n"
        missing = await project.tk("logs", job, "--rank", "7", code=1)
        assert "no line of rank 7" in missing.err
        last = await project.tk("logs", job, "--err", "--last-error")
        lines = last.out.splitlines()
        assert lines[0] == "Traceback (most recent call last):"
        assert '    return batch["label"]' in lines
        assert lines[-1] == "KeyError: 'label'"
        assert last.err.startswith(f"rank 1, {err}")
        told = json.loads((await project.tk("logs", job, "--err", "--last-error", "--json")).out)
        assert (told["type"], told["rank"], told["line"]) == ("KeyError", 1, 4)
        place = json.loads((await project.tk("logs", job, "--json")).out)
        assert (place["path"], place["stderr_path"]) == (str(out), str(err))
        assert (place["state"], place["known_from"]) == ("ended", "scheduler")
        none = await project.tk("logs", job, "--last-error", code=1)
        assert "no traceback" in none.err


async def test_a_job_that_waits_or_has_no_log(project: Project, batch: Batch) -> None:
    job = await batch.submit("echo hello", "--hold")
    assert "has no log at" in (await project.tk("logs", job, code=1)).err
    terminal = await project.terminal("logs", job, "-f")
    await terminal.line("waiting for .*not there yet")
    await at_login(project, f"scontrol release {job}")
    await terminal.line("^hello$")
    assert await terminal.ended() == 0
    unknown = await project.tk("logs", "999999", code=7)
    assert "where job 999999 wrote its log is not known" in unknown.err


async def test_the_log_of_a_job_that_slurm_has_forgotten(project: Project, batch: Batch) -> None:
    job = await batch.submit("echo hello")
    await batch.ended(job)
    await project.tk("logs", job)
    # The lab's Slurm keeps jobs for minutes: another id stands for one that it no longer knows.
    known = Path(project.env["TK_STATE_DIR"]) / "job-logs.json"
    rows = json.loads(known.read_text())
    rows["login 888888"] = next(row for key, row in rows.items() if key.endswith(f" {job}"))
    known.write_text(json.dumps(rows))
    done = await project.tk("logs", "888888")
    assert done.out == "hello\n"
    assert "the scheduler has forgotten job 888888; tk saw its log at" in done.err
    # One that tk has not seen either: the user knows the file.
    (batch.dir / "own.log").write_text(
        "epoch 1\nTraceback (most recent call last):\n"
        '  File "/h/t.py", line 8, in f\n    x[1]\nKeyError: 1\n'
    )
    file = str(batch.dir / "own.log")
    assert (await project.tk("logs", "888887", "--file", file)).out.startswith("epoch 1\n")
    place = json.loads((await project.tk("logs", "888887", "--file", file, "--json")).out)
    assert (place["path"], place["known_from"]) == (file, "you")
    [first] = (await project.tk("why", "888887", "--log", file, "--json")).json["verdicts"]
    assert (first["code"], first["certainty"]) == ("exception", "likely")
    assert "name it" in (await project.tk("why", "--log", file, code=2)).err
    assert "name it" in (await project.tk("logs", "--file", file, code=2)).err
