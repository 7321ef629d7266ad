"""`tk why` on a real OpenPBS: what its scheduler says of a job, and how jobs end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.openpbs.project import SiteProject
from tests.support.tkrig import eventually

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]


def qsub(project: SiteProject, words: str, script: str = "sleep 600") -> str:
    return project.site.on("login", "sh", "-c", f"echo '{script}' | qsub -f {words}").strip()


def of(project: SiteProject, job: str) -> dict[str, Any]:
    """What the server has on record of a job that has not ended; {} of another."""
    return next((one for one in project.site.pbs.jobs() if one["id"] == job), {})


async def verdict(project: SiteProject, job: str) -> dict[str, Any]:
    diagnosis = (await project.tk("why", job, "--json")).json
    assert diagnosis["not_asked"] == [], "every command was answered"
    found: dict[str, Any] = diagnosis["verdicts"][0]
    return found


async def until(project: SiteProject, job: str, code: str) -> dict[str, Any]:
    """Wait for the scheduler's next round to lead to that verdict."""
    async with asyncio.timeout(60):
        while (found := await verdict(project, job))["code"] != code:
            await asyncio.sleep(0.5)
    return found


async def test_jobs_that_wait(project: SiteProject) -> None:
    first = qsub(project, "-l select=1:ncpus=1:ngpus=1:host=node1 -l walltime=600")
    await eventually(lambda: of(project, first).get("job_state") == "R", "the first runs", 60.0)
    waits = qsub(project, "-l select=1:ncpus=1:ngpus=2:host=node1 -l walltime=600")
    found = await until(project, waits, "busy")
    told = [one["text"] for one in found["because"]]
    assert any("Not Running: Insufficient amount of resource: ngpus" in one for one in told)
    assert any("node1 1 GPU, 3 CPUs" in one for one in told), told
    never = await until(project, qsub(project, "-l select=1:ncpus=1:ngpus=9"), "never")
    assert never["certainty"] == "proven" and "9 asked for" in never["sentence"]
    nowhere = await until(project, qsub(project, "-l select=1:ncpus=1:host=node99"), "never")
    assert "node99" in nowhere["sentence"]
    held = await verdict(project, qsub(project, "-h -l select=1:ncpus=1"))
    assert held["code"] == "held-you"
    after = await verdict(project, qsub(project, f"-W depend=afterok:{first} -l select=1:ncpus=1"))
    assert after["code"] == "dependency" and first in after["sentence"]
    later = await verdict(project, qsub(project, "-a 203001010000 -l select=1:ncpus=1"))
    assert later["code"] == "begin" and later["certainty"] == "proven"


async def test_jobs_that_have_ended(project: SiteProject) -> None:
    project.site.pbs.qmgr("set server job_history_enable = True")
    deleted = qsub(project, "-l select=1:ncpus=1")
    await eventually(lambda: of(project, deleted).get("substate") == "42", "it runs", 60.0)
    project.site.on("login", "qdel", deleted)
    assert (await until(project, deleted, "cancelled"))["sentence"].endswith("by you")
    slow = qsub(project, "-N slow -o slow.out -e slow.err -l select=1:ncpus=1 -l walltime=3")
    await eventually(lambda: not of(project, slow), "its time limit", 120.0)
    found = await verdict(project, slow)
    assert found["code"].startswith("timeout")
    assert any("-29" in one["text"] for one in found["because"])
