"""Failed jobs that are kept, and let go by each way, on the lab's real Slurm."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.submit_rig import Case, Ended, Submitter
from tests.support.tkrig import Project, eventually

#: How many jobs go through the ways of letting go; by hand 200.
JOBS = int(os.environ.get("TK_KEEP_JOBS", "8"))
#: Seconds before the time limit at which jobs are let go here: Slurm's limits are minutes.
MARGIN_S = 50
#: A job to be entered goes after so long without anybody.
IDLE_S = 60


@pytest.fixture
def rig(project: Project) -> Submitter:
    project.env["TK_KEEP_MARGIN_S"] = str(MARGIN_S)
    return Submitter(project)


class Kept:
    """A job that was submitted, has failed, and is kept."""

    def __init__(self, rig: Submitter, job: str, log: Path) -> None:
        self.rig = rig
        self.job = job
        self.log = log

    def says(self, text: str) -> bool:
        return self.log.exists() and text in self.log.read_text(errors="replace")

    async def ended(self, deadline_s: float = 60) -> Ended:
        return (await self.rig.ended([self.job], deadline_s))[self.job]

    def keeper(self) -> processes.Seen:
        """The process in the place of the batch script."""
        mark = f"/job{int(self.job):05d}/slurm_script"
        mine = [
            one
            for one in processes.look().values()
            if "-I" in one.argv and any(mark in word for word in one.argv)
        ]
        return min(mine, key=lambda one: one.pid)


async def fails(rig: Submitter, *own: str, end: str = "exit 7", options: str = "") -> Kept:
    """Submit a script that fails, and wait until it is kept."""
    text = f"#!/bin/sh\necho began\n{end}\n"
    case = Case(text.encode(), ["-c", "1", *options.split()])
    path = rig.write(case, "fails.sh")
    log = path.with_suffix(".log")
    case.options += ["-o", str(log)]
    job = Kept(rig, await rig.by_tk(case, path, *own), log)
    await eventually(lambda: job.says("the job is kept until"), f"{job.job} is kept", 60)
    return job


async def its_time_is_over(rig: Submitter) -> tuple[Kept, str]:
    return await fails(rig, "--keep-on-failure=2s"), "7:0"


async def nobody_comes(rig: Submitter) -> tuple[Kept, str]:
    return await fails(rig, "--keep-on-failure=1h", "--idle=2s"), "7:0"


async def it_is_released(rig: Submitter) -> tuple[Kept, str]:
    kept = await fails(rig, "--keep-on-failure")
    done = await rig.project.tk("keep", kept.job, "--release")
    assert f"job {kept.job} was let go" in done.out
    return kept, "7:0"


async def it_is_cancelled(rig: Submitter) -> tuple[Kept, str]:
    kept = await fails(rig, "--keep-on-failure")
    await rig.at_login(["scancel", kept.job])
    return kept, ""


async def its_limit_is_near(rig: Submitter) -> tuple[Kept, str]:
    return await fails(rig, "--keep-on-failure=8h", options="-t 1"), "7:0"


async def term_comes(rig: Submitter) -> tuple[Kept, str]:
    kept = await fails(rig, "--keep-on-failure", end="kill -9 $$")
    await rig.at_login(["scancel", "-b", "-s", "TERM", kept.job])
    return kept, "0:9"


async def the_keeper_is_killed(rig: Submitter) -> tuple[Kept, str]:
    kept = await fails(rig, "--keep-on-failure")
    processes.kill([kept.keeper()])
    return kept, "0:9"


async def it_is_kept_a_moment_more(rig: Submitter) -> tuple[Kept, str]:
    kept = await fails(rig, "--keep-on-failure=30s")
    await rig.project.tk("keep", kept.job, "--for", "2s")
    return kept, "7:0"


WAYS: tuple[Callable[[Submitter], Awaitable[tuple[Kept, str]]], ...] = (
    its_time_is_over,
    nobody_comes,
    it_is_released,
    it_is_cancelled,
    its_limit_is_near,
    term_comes,
    the_keeper_is_killed,
    it_is_kept_a_moment_more,
)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.logins(60 * JOBS)
async def test_no_kept_job_is_left_behind(rig: Submitter) -> None:
    few = asyncio.Semaphore(6)
    killed = set()

    async def one(number: int) -> str:
        async with few:
            way = WAYS[number % len(WAYS)]
            kept, code = await way(rig)
            if way is the_keeper_is_killed:
                killed.add(kept.job)
            ended = await kept.ended(120)
            fits = code in ("", ended.fields["ExitCode"])
            return "" if fits else f"{way.__name__}: {ended.fields['ExitCode']}"

    found = await asyncio.gather(*(one(number) for number in range(JOBS)))
    assert [text for text in found if text] == []
    assert await rig.at_login(["squeue", "-h"]) == ""
    assert (await rig.project.tk("keep")).out == "no job of yours is kept\n"
    home = rig.project.lab.home / ".cache" / "tunnelkit" / "kept"
    # What a killed keeper leaves goes once its time is over.
    assert {file.name.partition(".")[0] for file in home.glob("[0-9]*")} == killed


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.logins(30)
async def test_what_is_kept_is_shown_and_can_be_entered(rig: Submitter) -> None:
    """By the job's comment, its log, `tk keep` and a session; who is attached keeps it."""
    kept = await fails(
        rig, "--keep-on-failure=1h", f"--idle={IDLE_S}s", options="--gpus=1 -w node1 --comment=mine"
    )
    comment = await rig.at_login(["squeue", "-h", "-j", kept.job, "-o", "%k"])
    assert comment.startswith("tk: kept after exit code 7 until ")
    assert kept.says("exit code 7; the job is kept until") and kept.says("GPU-hours")
    state = rig.project.lab.home / ".cache" / "tunnelkit" / "kept" / f"{kept.job}.json"
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    (shown,) = (await rig.project.tk("keep", "--json")).json
    assert (shown["job"], shown["code"], shown["gpus"]) == (kept.job, 7, 1)
    assert shown["attached"] is False

    await rig.project.up("--attach-job", kept.job)
    out = (await rig.project.tk("run", "env")).out.splitlines()
    assert f"SLURM_JOB_ID={kept.job}" in out and "CUDA_VISIBLE_DEVICES=0" in out
    await asyncio.sleep(IDLE_S + 5)  # longer than it would be kept without anybody
    (shown,) = (await rig.project.tk("keep", "--json")).json
    assert shown["attached"] is True
    listed = (await rig.project.tk("keep")).out
    assert "failed with exit code 7" in listed and "somebody is attached" in listed
    await rig.project.tk("down")
    ended = await kept.ended(IDLE_S + 60)
    assert kept.says("nobody was attached for 60 s")
    assert (ended.fields["ExitCode"], ended.fields["Comment"]) == ("7:0", "mine")


@pytest.mark.logins(20)
async def test_one_element_of_an_array_is_kept(rig: Submitter) -> None:
    case = Case(b"#!/bin/sh\nexit 3\n", ["-a", "0-3", "-o", f"{rig.out}/%a.log"])
    array = await rig.by_tk(case, rig.write(case, "array.sh"), "--keep-on-failure")

    def words() -> str:
        return "".join(path.read_text() for path in rig.out.glob("*.log"))

    await eventually(lambda: words().count("not kept: 1 of this job array") == 3, "three ended", 60)
    (shown,) = (await rig.project.tk("keep", "--json")).json
    assert shown["array"].startswith(f"{array}_")
    await rig.project.tk("keep", shown["array"], "--release")
    assert await rig.at_login(["squeue", "-h"]) == ""


@pytest.mark.logins(12)
async def test_what_does_not_fail_or_has_no_time_is_not_kept(rig: Submitter) -> None:
    rig.project.env["TK_KEEP_MARGIN_S"] = "300"
    for end, options, code, words in (
        ("exit 0", [], "0:0", ""),
        ("exit 5", ["-t", "2"], "5:0", "its time limit is too near to keep it"),
    ):
        log = rig.out / f"{code}.log"
        case = Case(f"#!/bin/sh\n{end}\n".encode(), [*options, "-o", str(log)])
        job = await rig.by_tk(case, rig.write(case, "a.sh"), "--keep-on-failure")
        ended = (await rig.ended([job]))[job]
        assert ended.fields["ExitCode"] == code
        assert words in log.read_text() and "kept until" not in log.read_text()


@pytest.mark.logins(6)
async def test_mistakes_are_named(rig: Submitter) -> None:
    done = await rig.project.tk("keep", "4711", "--release", code=2)
    assert "job 4711 is not kept" in done.err
    done = await rig.project.tk("keep", "--release", "--for", "1h", code=2)
    assert "exclude one another" in done.err
    done = await rig.project.tk("keep", "--for", "soon", code=2)
    assert "is no time" in done.err
    assert (await rig.project.tk("keep", "--list", "--json")).json == []
