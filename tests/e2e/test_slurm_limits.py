"""The time limit draws near, and is reached: on the lab's real Slurm."""

from __future__ import annotations

import asyncio

import pytest

from tests.support import processes
from tests.support.editors import said
from tests.support.tkrig import PATIENCE_S, PROGRAM, Project, eventually, line_of

STOP = line_of(PROGRAM, "total += step")


async def scontrol(project: Project, job: str, change: str) -> None:
    """Slurm lets its administrator change a running job."""
    await project.do_on_login("sh", "-c", f"scontrol update job={job} {change}")


async def reconnected(project: Project) -> None:
    """A cut, after which the scheduler is asked at once."""
    processes.kill(project.ssh_processes())
    await project.tk("run", "true")


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("counted_logins")
@pytest.mark.logins(4)  # it cuts three times
async def test_it_is_told_at_10_and_2_minutes_once_and_then_the_end(project: Project) -> None:
    status = await project.up("--time", "60", "--cpus", "2")
    job = status["job"]["id"]
    assert status["job"]["time_is_near"] is False
    terminal = await project.loop("python", "2.py")
    editor, _, _ = await project.f5_to_stop(STOP)

    await scontrol(project, job, "TimeLimit=10")
    await reconnected(project)
    await terminal.line(r"the time limit is near: the job ends in (9|10) minutes")
    await eventually(lambda: "ends in" in said(editor), "the editor is told")
    near = await project.status()
    assert near["job"]["time_is_near"] is True and near["job"]["time_left_s"] <= 600

    await scontrol(project, job, "TimeLimit=2")
    await reconnected(project)
    await terminal.line(r"the time limit is near: the job ends in (\d+ s|[12] minutes?)")

    # Each once: neither a further cut nor another session says it again.
    await reconnected(project)
    processes.kill([near["pid"]])
    again = await project.up()
    assert again["job"]["id"] == job
    await terminal.line("the session is back")
    assert terminal.text.count("the time limit is near") == 2
    assert said(editor).count("the time limit is near") == 2

    now = '$(date -d "+2 seconds" +%Y-%m-%dT%H:%M:%S)'
    await scontrol(project, job, f'EndTime="{now}"')
    async with asyncio.timeout(PATIENCE_S):
        while "TIMEOUT" not in (await project.status())["detail"]:
            await asyncio.sleep(0.2)
    text = (await project.tk("status")).out
    assert f"job {job}: TIMEOUT, the job reached its time limit; `tk up --time` asks" in text
    await terminal.line(r"the loop has ended: ")
    assert await terminal.ended() == 8
