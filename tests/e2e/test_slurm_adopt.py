"""`tk up --attach-job`: an allocation that a person made by hand, on the lab's real Slurm."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest

from tests.lab_fixtures import ssh
from tests.support import processes
from tests.support.tkrig import PROGRAM, Project, line_of
from tunnelkit.errors import AllocationError

pytestmark = pytest.mark.slow

STOP = line_of(PROGRAM, "total += step")
WIRE_ONLY = '[cluster]\nnode_ssh = "no"\n'


async def at_login(project: Project, command: str) -> str:
    return (await asyncio.to_thread(ssh, project.lab, "login", command)).strip()


async def state_of(project: Project, job: str) -> str:
    return await at_login(project, f"squeue -h -t all -j {job} -o %T")


@pytest.fixture
async def by_hand(project: Project) -> AsyncIterator[str]:
    """A job as a person would submit it, running on node1."""
    words = "-w node1 -c 2 --gpus 1 -t 10 -o /dev/null --wrap 'sleep 600'"
    job = await at_login(project, f"sbatch --parsable {words}")
    while await state_of(project, job) != "RUNNING":
        await asyncio.sleep(0.1)
    yield job
    await at_login(project, f"scancel {job}")


async def test_it_is_used_left_alone_and_survives(project: Project, by_hand: str) -> None:
    """Where nodes refuse ssh, which is the harder way: somebody must keep the agent's step."""
    project.configure(WIRE_ONLY)
    status = await project.up("--attach-job", by_hand)
    job = status["job"]
    assert (job["id"], job["adopted"], job["made_by"]) == (by_hand, True, "you")
    assert (status["node"], status["route"]) == ("node1", "srun")
    assert 0 < job["time_left_s"] <= 600
    assert "adopted: tk down leaves it" in (await project.tk("status")).out
    await is_inside(project, by_hand)
    await project.loop("python", "2.py")
    editor, thread, frame = await project.f5_to_stop(STOP)
    assert await editor.evaluate("os.environ['SLURM_JOB_ID']", frame) == f"'{by_hand}'"

    # Neither a dead ssh nor a killed session takes the agent along.
    processes.kill(project.ssh_processes())
    await editor.request("next", threadId=thread)
    thread, frame = await editor.stopped(60)
    assert frame["line"] == STOP + 1
    await project.tk("sync")
    processes.kill([status["pid"]])
    again = await project.up()
    assert (again["job"]["id"], again["agent"]["pid"]) == (by_hand, status["agent"]["pid"])
    assert again["job"]["made_by"] == "you"

    down = await project.tk("down")
    assert f"job {by_hand} is yours and goes on" in down.out
    await only_the_job_is_left(project, by_hand)


async def is_inside(project: Project, job: str) -> None:
    """All that the job has is there for what tk starts."""
    env = (await project.tk("run", "env")).out.splitlines()
    for word in (f"SLURM_JOB_ID={job}", "CUDA_VISIBLE_DEVICES=0", "SLURM_CPUS_ON_NODE=2"):
        assert word in env


async def only_the_job_is_left(project: Project, job: str) -> None:
    await project.nothing_left()
    assert await state_of(project, job) == "RUNNING"
    assert await at_login(project, f"squeue -h -s -j {job} -o %i | grep -v batch || true") == ""


async def test_by_ssh_and_what_a_killed_session_left_is_ended(
    project: Project, by_hand: str
) -> None:
    status = await project.up("--attach-job", by_hand)
    assert status["route"] == "ssh"
    await is_inside(project, by_hand)
    processes.kill([status["pid"]])
    done = await project.tk("down")
    assert f"its agent was ended; job {by_hand} goes on" in done.out
    await only_the_job_is_left(project, by_hand)


async def test_jobs_that_cant_be_adopted_are_told_why(project: Project, by_hand: str) -> None:
    code = int(AllocationError.exit_code)
    waiting = await at_login(project, "sbatch --parsable -H -t 10 -o /dev/null --wrap true")
    try:
        done = await project.tk("up", "--attach-job", waiting, code=code)
        assert re.search(rf"job {waiting} does not run yet: you hold it back", done.err)
    finally:
        await at_login(project, f"scancel {waiting}")
    done = await project.tk("up", "--attach-job", waiting, code=code)
    assert f"job {waiting} is over: the job was cancelled" in done.err
    done = await project.tk("up", "--attach-job", "999999", code=code)
    assert "there is no job 999999 of yours" in done.err and "squeue --me" in done.err
    for word in ("-x", "7_1", "7;id"):
        done = await project.tk("up", f"--attach-job={word}", code=2)
        assert "is not the id of a single job" in done.err
    done = await project.tk("up", "node2", "--attach-job", by_hand, code=code)
    assert "node1" in done.err
    await project.nothing_left()


async def test_the_jobs_own_end_is_told(project: Project, by_hand: str) -> None:
    await project.up("--attach-job", by_hand)
    terminal = await project.loop("python", "2.py")
    await at_login(project, f"scancel {by_hand}")
    await terminal.line(rf"the loop has ended: .*job {by_hand}: ")
    assert await terminal.ended() == 8
    while not re.search(r"CANCELLED, the job was cancelled", (await project.tk("status")).out):
        await asyncio.sleep(0.2)
