"""What became of a job whose agent is gone, from what the scheduler tells."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from tunnelkit.errors import AllocationError
from tunnelkit.model import Completed, JobState, JobStatus
from tunnelkit.scheduler.base import Command
from tunnelkit.scheduler.slurm.adapter import Slurm
from tunnelkit.session.agent.attach_job import check_adoptable
from tunnelkit.session.job.outcome import JobOutcome, wait_job_outcome, who_cancelled

PENDING = JobStatus("7", JobState.PENDING, "PENDING", reason="BeginTime")
CLEARING = JobStatus("7", JobState.PENDING, "COMPLETING", ending=True)
OVER = JobStatus("7", JobState.ENDED, "NODE_FAIL", explanation="a node of the job failed")
ENDING = JobStatus("7", JobState.ENDED, "COMPLETING", ending=True)
RUNNING = JobStatus("7", JobState.RUNNING, "RUNNING", nodes=("n1",))


async def told(*states: JobStatus) -> AsyncGenerator[JobStatus]:
    for state in states:
        yield state


@pytest.mark.parametrize("may", [True, False])
@pytest.mark.parametrize("before", [(), (RUNNING,), (RUNNING, ENDING)])
async def test_an_end_is_an_end(before: tuple[JobStatus, ...], may: bool) -> None:
    fate = await wait_job_outcome(told(*before, OVER), may_come_back=may)
    assert fate == JobOutcome(ended="job 7: NODE_FAIL, a node of the job failed")


async def test_back_in_the_queue_only_if_it_was_asked_for() -> None:
    assert await wait_job_outcome(told(CLEARING, PENDING), may_come_back=True) == JobOutcome(
        back=True
    )
    assert await wait_job_outcome(told(PENDING), may_come_back=False) == JobOutcome()
    assert (await wait_job_outcome(told(CLEARING, OVER), may_come_back=True)).ended


async def test_what_runs_may_have_come_back_unseen() -> None:
    assert await wait_job_outcome(told(RUNNING), may_come_back=True) == JobOutcome(back=True)
    assert await wait_job_outcome(told(RUNNING), may_come_back=False) == JobOutcome()


@pytest.mark.parametrize("may", [True, False])
async def test_what_runs_though_its_time_is_up_has_reached_its_limit(may: bool) -> None:
    late = JobStatus("7", JobState.RUNNING, "R", nodes=("n1",), time_left_s=0)
    fate = await wait_job_outcome(told(RUNNING, late), may_come_back=may)
    assert fate == JobOutcome(ended="job 7: the job reached its time limit")
    assert "NODE_FAIL" in str((await wait_job_outcome(told(late, OVER), may_come_back=may)).ended)


@pytest.mark.parametrize(
    ("accounting", "ids", "words"),
    [
        (b"CANCELLED by 1000\n", b"1000\nme\n", "by yourself"),
        (b"CANCELLED by 0\n", b"1000\nroot\n", "by root"),
        (b"CANCELLED by 4711\n", b"1000\n", "by uid 4711"),
        (b"CANCELLED\n", b"", None),
    ],
)
async def test_who_cancelled_it(accounting: bytes, ids: bytes, words: str | None) -> None:
    async def run(command: Command) -> Completed:
        return Completed(0, ids if command.argv[0] == "sh" else accounting, b"")

    status = JobStatus("7", JobState.ENDED, "CANCELLED")
    assert await who_cancelled(Slurm(), run, status) == words
    assert await who_cancelled(Slurm(), run, OVER) is None


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (PENDING, "does not run yet: BeginTime — once it runs: tk up --attach-job 7"),
        (OVER, "is over: a node of the job failed"),
        (JobStatus("7", JobState.UNKNOWN, ""), "there is no job 7 of yours"),
    ],
)
def test_only_a_running_job_of_ones_own_is_adopted(status: JobStatus, words: str) -> None:
    with pytest.raises(AllocationError) as caught:
        check_adoptable("7", status)
    assert words in caught.value.one_line()
    check_adoptable("7", RUNNING)
