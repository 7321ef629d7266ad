"""The black box of a job: why it ended, once Slurm has forgotten the job."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab_fixtures import running_lab, ssh, why_no_lab
from tests.support.tkrig import Project, eventually, project_on
from tunnelkit.lab import LabInfo

#: slurmctld looks for jobs to forget once a minute.
_FORGOTTEN_S = 100.0


@pytest.fixture(scope="module")
def forgetful_lab() -> Iterator[LabInfo]:
    """A lab whose Slurm forgets a job soon after its end."""
    if reason := why_no_lab():
        pytest.skip(reason)
    with running_lab() as info:
        if info.scheduler != "slurm":
            pytest.skip("Slurm is not installed")
        conf = info.dir / "etc" / "slurm.conf"
        text = conf.read_text()
        assert "MinJobAge=3600" in text
        conf.write_text(text.replace("MinJobAge=3600", "MinJobAge=2"))
        ssh(info, "login", "scontrol reconfigure")
        yield info


@pytest.fixture
async def up(forgetful_lab: LabInfo) -> AsyncIterator[Project]:
    async with project_on(forgetful_lab) as made:
        yield made


def boxes(project: Project) -> Path:
    return project.lab.home / ".cache" / "tunnelkit" / "boxes"


def lines(project: Project, job: str) -> list[dict[str, Any]]:
    path = boxes(project) / f"{job}.0.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def kinds(project: Project, job: str) -> set[str]:
    return {one["kind"] for one in lines(project, job)}


async def forgotten(project: Project, job: str) -> None:
    """Wait until neither squeue nor scontrol knows the job."""
    async with asyncio.timeout(_FORGOTTEN_S):
        while "JobId=" in await project.do_on_login("scontrol", "show", "job", job, code=None):
            await asyncio.sleep(0.5)


async def why(project: Project, job: str) -> dict[str, Any]:
    answer: dict[str, Any] = (await project.tk("why", job, "--json")).json
    return answer


async def end_recorded(project: Project, job: str) -> None:
    await eventually(lambda: "end" in kinds(project, job), "the box's last record")


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_cancelled_job_is_explained_after_slurm_has_forgotten_it(up: Project) -> None:
    job = (await up.up())["job"]["id"]
    up.write("dies.py", "import os, time; time.sleep(3); os.kill(os.getpid(), 11)\n")
    await up.tk("run", "python", "dies.py", code=None)
    await up.do_on_login("scancel", job)
    await end_recorded(up, job)
    path = boxes(up) / f"{job}.0.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    await forgotten(up, job)

    found = await why(up, job)
    verdict = found["verdicts"][0]
    assert verdict["code"] == "terminated", found
    # The lab's slurmd runs as this user: its name says that it was the scheduler.
    assert verdict["sentence"].startswith("was ended by the scheduler"), found
    assert verdict["certainty"] == "proven"
    assert any("TERM from uid" in one["text"] for one in verdict["because"])
    assert "memory (no kill was counted)" in verdict["excluded"]


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_killed_agent_does_not_end_the_box(up: Project) -> None:
    status = await up.up()
    job, agent = status["job"]["id"], status["agent"]["pid"]
    await eventually(lambda: "head" in kinds(up, job), "the box's first record")
    os.kill(agent, signal.SIGKILL)
    await end_recorded(up, job)
    end = next(one for one in lines(up, job) if one["kind"] == "end")
    assert (end["code"], end["agent"]) == (137, agent)
    up.forget_killed_agents()
    await forgotten(up, job)

    verdict = (await why(up, job))["verdicts"][0]
    assert verdict["code"] == "killed-unknown", verdict
    assert "tk's agent was killed (KILL)" in verdict["sentence"]
    # Who sent it is not known, and it says so.
    assert verdict["certainty"] == "unknown"
    assert any("exit code 137" in one["text"] for one in verdict["because"])


async def test_without_a_box_nothing_is_written(up: Project) -> None:
    up.configure("[allocation]\nblack_box = false\n")
    before = set(boxes(up).glob("*")) if boxes(up).exists() else set()
    job = (await up.up())["job"]["id"]
    await up.tk("run", "true")
    await up.tk("down")
    after = set(boxes(up).glob("*")) if boxes(up).exists() else set()
    assert after == before and not lines(up, job)
