"""What is asked of Slurm, and how its refusals are told, on the lab's real one."""

from __future__ import annotations

import asyncio
import re

import pytest

from tests.lab_fixtures import ssh
from tests.support.tkrig import PATIENCE_S, Project
from tunnelkit.errors import AllocationError, SchedulerError, UsageError

pytestmark = pytest.mark.slow


async def test_everything_that_was_asked_for_is_had(project: Project) -> None:
    project.configure('[allocation]\nextra = ["--comment=by tk", "--nice=5"]\n')
    words = "--constraint nvlink --exclusive --partition short --time 5 --cpus 1 --requeue"
    status = await project.up(*words.split())
    job = status["job"]["id"]
    assert status["node"] == "node2", "only that one has the feature"
    told = await asyncio.to_thread(ssh, project.lab, "login", f"scontrol show job {job}")
    for word in ("Partition=short", "Features=nvlink", "OverSubscribe=NO", "Comment=by tk",
                 "TimeLimit=00:05:00", "Requeue=1", "Nice=5"):  # fmt: skip
        assert word in told, told
    # All of the node's CPUs, though one was asked for: nobody else gets any.
    assert "NumCPUs=4" in told

    # One that may come back, but does not: while its processes are being cleared away nobody
    # can know, and then it is told as what it is.
    await asyncio.to_thread(ssh, project.lab, "login", f"scancel {job}")
    async with asyncio.timeout(PATIENCE_S):
        while (over := await project.status())["state"] != "ended" or "CANC" not in over["detail"]:
            await asyncio.sleep(0.2)
    assert over["detail"].startswith(f"job {job}: CANCELLED, the job was cancelled")
    again = await project.up("--cpus", "1")
    assert again["job"]["id"] != job


async def test_another_request_beside_a_session_is_refused_naming_the_difference(
    project: Project,
) -> None:
    """ "ready", it said, and the GPUs were not there."""
    await project.up("node1", "--gpus", "1")
    done = await project.tk("up", "--gpus", "2", code=int(UsageError.exit_code))
    assert "gpus is 1, not 2" in done.err and "tk down first" in done.err
    done = await project.tk("up", "--time", "5", code=int(UsageError.exit_code))
    assert "time is none asked for, not" in done.err
    assert "ready on node1" in (await project.tk("up", "--gpus", "1")).out
    # A file that was changed meanwhile keeps nobody from going on.
    project.configure("[allocation]\ncpus = 2\n")
    done = await project.tk("up")
    assert "ready on node1" in done.out and "cpus = 2; this session has" in done.err


REFUSED = [
    (["--partition", "nosuch"], SchedulerError, r"[Pp]artition.*sinfo -s"),
    (["--constraint", "h100"], SchedulerError, r"feature.*sinfo -o '%N %f'"),
    (["--reservation", "nosuch"], SchedulerError, r"reservation.*scontrol show reservation"),
    (["node9"], SchedulerError, r"node name.*sinfo -N"),
    (["--gpus", "9"], SchedulerError, r"node configuration.*no node has that many"),
    (["--partition", "short", "--time", "60"], AllocationError,
     r"can never start as it was asked for: it asks for 1:00:00, and short allows 0:10:00"),
]  # fmt: skip


async def test_what_cant_be_is_told_in_plain_words_and_leaves_nothing(project: Project) -> None:
    for words, error, told in REFUSED:
        done = await project.tk("up", *words, code=int(error.exit_code))
        assert re.search(told, done.err), done
        assert done.err.strip().splitlines()[-1].startswith("tk: ")
        assert "Traceback" not in done.err
    await project.nothing_left()


@pytest.mark.parametrize("word", ["--array=1-3", "-a1-3"])
async def test_an_array_is_refused_before_anything_is_submitted(
    project: Project, word: str
) -> None:
    project.configure(f'[allocation]\nextra = ["{word}"]\n')
    done = await project.tk("up", code=int(UsageError.exit_code))
    assert "one allocation is one job" in done.err and "SLURM_ARRAY_TASK_ID" in done.err
    name = f"tk-{project.dir.name}"
    told = await asyncio.to_thread(ssh, project.lab, "login", "squeue -h -t all -o %j")
    assert name not in told
