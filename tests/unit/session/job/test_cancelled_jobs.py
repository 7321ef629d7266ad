"""A job that tk has cancelled is never taken over, whatever its scheduler still calls it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tunnelkit.errors import ConnectionFailed, SchedulerError
from tunnelkit.model import Completed, JobState, ResourceRequest
from tunnelkit.scheduler.base import Command, Scheduler
from tunnelkit.scheduler.pbs.torque import Torque
from tunnelkit.scheduler.slurm.adapter import Slurm
from tunnelkit.session.job import job
from tunnelkit.session.job.cancelled_jobs import CancelledJobs
from tunnelkit.session.job.job import JobHandle

NAME = "tk-p-12345678"
RUNS = "R"


class Login:
    """A login host. jobs: id -> the scheduler's word for its state. answers: what a program says
    instead, next."""

    def __init__(self, jobs: dict[str, str]) -> None:
        self.jobs = jobs
        self.calls: list[str] = []
        self.answers: dict[str, Callable[[], Completed]] = {}

    async def run(self, command: Command) -> Completed:
        if any("tk-open" in word for word in command.argv):
            return Completed(0, b"tk-open\n", b"")  # no submission is under way
        words = [word for word in command.argv if word in ("squeue", "scancel", "qsub", "qdel")]
        program = words[-1] if words else "qstat"
        self.calls.append(program)
        if program in self.answers:
            return self.answers.pop(program)()
        if program == "qstat":
            told = [f"Job Id: {one}\n    Job_Name = {NAME}\n    Job_Owner = me@login\n"
                    f"    job_state = {state}\n\n" for one, state in self.jobs.items()]  # fmt: skip
            return Completed(0, "".join(["tk-user me\n", *told]).encode(), b"")
        if program == "squeue":
            rows = [f"{one}|{state}|None|node1|node1|N/A|N/A|1:00|{one}|cpu|{NAME}\n"
                    for one, state in self.jobs.items()]  # fmt: skip
            return Completed(0, "".join(rows).encode(), b"")
        if program == "qsub":
            return Completed(0, b"tk-submission answered x\n0\n2.login\n", b"")
        return Completed(0, b"", b"")

    def says(self, program: str, answer: Callable[[], Completed]) -> None:
        """How it answers the next call."""
        self.answers[program] = answer


def lost() -> Completed:
    raise ConnectionFailed("the connection to login was lost", hint="", transient=True)


@pytest.fixture
def hold(tmp_path: Path) -> Callable[..., JobHandle]:
    """Each one is another session's."""

    def make(login: Login, scheduler: Scheduler | None = None) -> JobHandle:
        return JobHandle(
            scheduler or Torque(),
            login.run,
            job_name=NAME,
            jobs_dir="~",
            status_file="~/x.status",
            cancelled=CancelledJobs(tmp_path / "cancelled"),
        )

    return make


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "FIRST_PAUSES_S", (0.0, 0.0, 0.0))


@pytest.mark.parametrize("answer", [None, lost], ids=["answered", "answer lost"])
async def test_torque_calls_it_running_until_it_is_gone(
    hold: Callable[..., JobHandle],
    tmp_path: Path,
    answer: Callable[[], Completed] | None,
) -> None:
    login = Login({"1.login": RUNS})
    first = hold(login)
    found = await first.find()
    assert found is not None and found.state is JobState.RUNNING
    if answer is None:
        assert await first.cancel() == ["1.login"]
    else:
        login.says("qdel", answer)
        with pytest.raises(ConnectionFailed):
            await first.cancel()
    assert await hold(login).find() is None
    # A second `tk down` still ends it.
    assert await hold(login).cancel() == ["1.login"]
    login.jobs = {"1.login": RUNS, "2.login": "Q"}
    found = await hold(login).find()
    assert found is not None and found.job_id == "2.login"
    login.jobs = {"2.login": RUNS}
    assert await hold(login).find() is not None
    assert list(tmp_path.iterdir()) == [], "it is remembered no longer than it is there"


async def test_a_job_that_may_come_back_is_not_taken_over_while_slurm_clears_it_away(
    hold: Callable[..., JobHandle],
) -> None:
    login, slurm = Login({"7": "RUNNING"}), Slurm(requeues=True)
    await hold(login, slurm).cancel()
    login.jobs = {"7": "COMPLETING"}
    assert await hold(login, slurm).find() is None
    # One that was preempted is: it waits in the queue again.
    login.jobs = {"8": "COMPLETING"}
    found = await hold(login, slurm).find()
    assert found is not None and found.job_id == "8"


async def test_a_refused_cancel_leaves_it_to_be_taken_over(hold: Callable[..., JobHandle]) -> None:
    login = Login({"1.login": RUNS})
    login.says("qdel", lambda: Completed(159, b"", b"qdel: Unauthorized Request 1.login\n"))
    with pytest.raises(SchedulerError):
        await hold(login).cancel()
    assert await hold(login).find() is not None


@pytest.mark.usefixtures("at_once")
async def test_it_is_cancelled_once_more_and_waited_for(hold: Callable[..., JobHandle]) -> None:
    login, said = Login({"1.login": RUNS}), list[str]()
    await hold(login).cancel()
    waiting = hold(login)
    assert await waiting.find() is None
    login.calls.clear()

    def gone() -> Completed:
        login.jobs.clear()
        return Completed(0, b"", b"")

    login.says("qdel", gone)
    await waiting.wait_cancelled_gone(said.append)
    assert login.calls == ["qdel", "qstat"]
    assert said == ["job 1.login was cancelled and is still ending: waiting for its end"]


@pytest.mark.usefixtures("at_once")
async def test_a_job_on_a_dead_node_is_not_waited_for_without_end(
    hold: Callable[..., JobHandle], monkeypatch: pytest.MonkeyPatch
) -> None:
    login, said = Login({"1.login": RUNS}), list[str]()
    await hold(login).cancel()
    login.says("qdel", lambda: Completed(1, b"", b"qdel: Server could not reach MOM 1.login\n"))
    waiting = hold(login)
    await waiting.wait_cancelled_gone(said.append)
    assert said[1:] == ["job 1.login has not ended yet: asking for another one beside it"]

    def submitted_unheard() -> Completed:
        login.jobs["2.login"] = "Q"
        return Completed(0, b"tk-submission answered x\n1\n", b"qsub: server is busy\n")

    login.says("qsub", submitted_unheard)
    monkeypatch.setattr(job, "_RETRY_S", 0.0)
    # It is looked for by its name, which the old one has too.
    assert await waiting.submit(ResourceRequest(), body="x") == "2.login"


@pytest.mark.usefixtures("at_once")
async def test_nothing_cancelled_nothing_asked(hold: Callable[..., JobHandle]) -> None:
    login = Login({})
    await hold(login).wait_cancelled_gone(lambda text: pytest.fail(text))
    assert login.calls == []


async def test_a_state_directory_that_is_full_keeps_no_job_from_being_ended(
    hold: Callable[..., JobHandle], tmp_path: Path
) -> None:
    (tmp_path / "cancelled.new").mkdir()  # nothing can be written there
    login = Login({"1.login": RUNS})
    assert await hold(login).cancel() == ["1.login"]
    assert "qdel" in login.calls


@pytest.mark.parametrize("state", [RUNS, "C"])
async def test_a_submitted_job_that_no_list_has_is_cancelled_unless_it_is_over(
    hold: Callable[..., JobHandle], state: str
) -> None:
    login = Login({})
    job = hold(login)
    assert await job.submit(ResourceRequest(), body="x") == "2.login"
    found = f"Job Id: 2.login\n    Job_Name = other\n    job_state = {state}\n\n".encode()

    def listed() -> Completed:
        login.says("qstat", lambda: Completed(0, found, b""))
        return Completed(0, b"tk-user me\n", b"")

    login.says("qstat", listed)
    over = state == "C"
    assert await job.cancel() == ([] if over else ["2.login"])
    assert ("qdel" in login.calls) is not over


async def test_where_the_id_is_not_known_all_of_the_name_end(
    hold: Callable[..., JobHandle],
) -> None:
    assert await hold(Login({"1.login": RUNS, "2.login": "Q"})).cancel() == ["1.login", "2.login"]
