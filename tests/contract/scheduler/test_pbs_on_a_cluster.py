"""The PBS and Torque adapters against programs that answer as theirs do, on the lab's login host:
every promise of `Scheduler`, kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import aclosing

import pytest

from tests.contract.scheduler.rig import Cluster, until
from tests.lab_fixtures import running_lab, why_no_lab
from tests.support.pbs_standin.rig import StandIn, install
from tunnelkit import lab as tk_lab
from tunnelkit.errors import SchedulerError
from tunnelkit.lab import LabInfo
from tunnelkit.model import Completed, JobState, ResourceRequest
from tunnelkit.scheduler.base import Command, PendingCause
from tunnelkit.scheduler.detect import DETECT, parse_detect
from tunnelkit.scheduler.factory import adapter
from tunnelkit.scheduler.job_script import parse_status, read_status
from tunnelkit.scheduler.pbs.torque import Torque
from tunnelkit.scheduler.poller import Poller

pytestmark = pytest.mark.slow


class OnLogin(Cluster):
    """Runs its commands on the login host directly: ssh has tests of its own."""

    def remote_argv(self, argv: Sequence[str]) -> list[str]:
        where = tk_lab.on("login", self.info.dir)
        return [*where, "sh", "-c", 'cd "$HOME" && exec "$@"', "sh", *argv]


@pytest.fixture(scope="module")
def pbs_lab() -> Iterator[LabInfo]:
    if reason := why_no_lab():
        pytest.skip(reason)
    with running_lab(scheduler="none") as info:
        yield info


@pytest.fixture(scope="module")
def server(pbs_lab: LabInfo) -> StandIn:
    return install(pbs_lab)


@pytest.fixture(params=["pbs", "pbs without history", "torque"])
def pbs(request: pytest.FixtureRequest, pbs_lab: LabInfo, server: StandIn) -> Iterator[Cluster]:
    """The login host with one of them, driven by the adapter that its programs lead to."""
    dialect, _, without = request.param.partition(" ")
    server.reset(dialect=dialect, history=not without)
    looking = OnLogin(pbs_lab, scheduler=None)  # type: ignore[arg-type]
    found = parse_detect(looking.run(DETECT))
    assert found.name == dialect
    assert found.history is (request.param == "pbs")
    scheduler = adapter("auto", found, "login")
    assert scheduler is not None
    try:
        yield OnLogin(pbs_lab, scheduler)
    finally:
        server.set(down=False)
        server.clear()
        until(lambda: not server.unfinished(), "the end of all jobs")
        for file in pbs_lab.home.glob("tk-*"):
            file.unlink()


def over(pbs: Cluster, job_id: str) -> None:
    """Wait until the job is known to be over, as the session would."""

    def is_over() -> bool:
        status = pbs.status(job_id)
        if status.state is JobState.UNKNOWN and not status.native_state:
            command = pbs.scheduler.history(job_id)
            assert command is not None
            return pbs.scheduler.parse_history(pbs.run(command)) is JobState.ENDED
        return status.state is JobState.ENDED

    until(is_over, "the job's end")


def test_submit_run_cancel(pbs: Cluster) -> None:
    request = ResourceRequest(node="node1", gpus=1, cpus=2, time_limit_s=600)
    job_id = pbs.submit("tk-life", request)
    status = pbs.running(job_id)
    assert status.nodes == ("node1",)
    assert status.time_left_s is not None
    assert 500 < status.time_left_s <= 600

    until(lambda: pbs.home("tk-life.st").exists(), "the status file")
    running = parse_status(pbs.run(read_status("~/tk-life.st")).text)
    assert running is not None
    assert running.pid
    written = pbs.home("tk-life.env")
    until(lambda: written.exists() and "FROM_PROLOGUE=1" in written.read_text(), "the environment")
    environment = written.read_text().splitlines()
    assert f"PBS_JOBID={job_id}" in environment
    [node_file] = [line for line in environment if line.startswith("PBS_NODEFILE=")]
    nodes = pbs.file("node1", node_file.partition("=")[2]).split()
    assert set(nodes) == {"node1"}

    pbs.scheduler.parse_cancel(pbs.run(pbs.scheduler.cancel(job_id)))
    if isinstance(pbs.scheduler, Torque):
        # It says R of the job until the shell is dead.
        until(lambda: pbs.find("tk-life") == [], "a deleted job to be none to take over")
    assert pbs.find("tk-life") == [], "a job that was deleted is none to take over"
    over(pbs, job_id)
    # The shell that PBS starts dies of the TERM first; the holder may be killed right after it.
    ended = parse_status(pbs.home("tk-life.st").read_text())
    assert ended == running or (ended and ended.exit_code in (7, 143))
    pbs.scheduler.parse_cancel(pbs.run(pbs.scheduler.cancel(job_id)))
    until(lambda: pbs.home("tk-life.log").exists(), "the job's log")


def test_a_directive_in_the_body_changes_nothing(pbs: Cluster) -> None:
    pbs.running(pbs.submit("tk-directive", ResourceRequest(), "#PBS -N other\nsleep 100\n"))
    assert len(pbs.find("tk-directive")) == 1
    assert pbs.find("other") == []


def test_find_knows_only_unfinished_jobs_of_that_exact_name(pbs: Cluster) -> None:
    assert pbs.find("tk-find") == []
    first = pbs.submit("tk-find", ResourceRequest(), "sleep 100\n")
    pbs.submit("tk-find2", ResourceRequest(), "sleep 100\n")
    assert [status.job_id for status in pbs.find("tk-find")] == [first]
    second = pbs.submit("tk-find", ResourceRequest(), "sleep 100\n")
    assert [status.job_id for status in pbs.find("tk-find")] == [first, second]
    pbs.scheduler.parse_cancel(pbs.run(pbs.scheduler.cancel(first)))
    over(pbs, first)
    assert [status.job_id for status in pbs.find("tk-find")] == [second]


@pytest.mark.parametrize(
    ("request_", "hint"),
    [
        (ResourceRequest(partition="nosuch"), "qstat -Q"),
        (ResourceRequest(constraint="nosuch=2"), "pbsnodes"),
        (ResourceRequest(extra=("-y",)), "extra"),
    ],
)
def test_refused_at_once(pbs: Cluster, request_: ResourceRequest, hint: str) -> None:
    with pytest.raises(SchedulerError) as caught:
        pbs.submit("tk-refused", request_)
    assert not caught.value.transient
    assert hint in (caught.value.hint or "")
    assert pbs.find("tk-refused") == []


def test_what_can_never_run_is_known(pbs: Cluster) -> None:
    request = ResourceRequest(gpus=9, time_limit_s=600)
    if pbs.scheduler.name == "torque":
        with pytest.raises(SchedulerError) as caught:
            pbs.submit("tk-never", request)
        assert "no node has" in (caught.value.hint or "")
        return
    job_id = pbs.submit("tk-never", request)
    status = pbs.until(job_id, lambda s: bool(s.reason), "the reason")
    assert pbs.scheduler.verdict(status) is PendingCause.FIX
    assert "ngpus: 9 asked for, 2 free of 2" in (status.explanation or "")


def test_a_full_node_is_waited_for(pbs: Cluster) -> None:
    full = ResourceRequest(node="node1", cpus=4, time_limit_s=600)
    first = pbs.submit("tk-full", full, "sleep 100\n")
    pbs.running(first)
    second = pbs.submit("tk-waits", full, "sleep 100\n")
    pbs_only = pbs.scheduler.name == "pbs"
    status = pbs.until(second, lambda s: bool(s.reason) or not pbs_only, "the reason")
    assert status.state is JobState.PENDING
    assert pbs.scheduler.verdict(status) is PendingCause.WAIT
    assert status.explanation
    estimate = pbs.scheduler.estimate(second)
    assert estimate is not None
    assert pbs.scheduler.parse_estimate(pbs.run(estimate)) is None
    pbs.scheduler.parse_cancel(pbs.run(pbs.scheduler.cancel(first)))
    pbs.running(second)


def test_the_walltime_ends_it(pbs: Cluster) -> None:
    job_id = pbs.submit("tk-short", ResourceRequest(time_limit_s=1), "sleep 100\n")
    over(pbs, job_id)
    status = pbs.status(job_id)
    if status.native_state:
        assert "reached its time limit" in (status.explanation or "")


def test_a_held_job(pbs: Cluster, server: StandIn) -> None:
    submit = pbs.scheduler.submit(ResourceRequest(), job_name="tk-held", body="", log_dir="~/")
    argv = (submit.argv[0], "-h", "-N", "tk-held", "-o", "tk-held.log")
    job_id = pbs.run(Command(argv, b"sleep 100\n")).text.strip()
    status = pbs.status(job_id)
    assert status.state is JobState.PENDING
    assert pbs.scheduler.verdict(status) is PendingCause.HELD
    assert f"qrls {job_id}" in (status.explanation or "")


def test_several_jobs_with_one_command(pbs: Cluster) -> None:
    ids = [pbs.submit(f"tk-many{number}", ResourceRequest(), "sleep 100\n") for number in (1, 2)]
    for job_id in ids:
        pbs.running(job_id)
    wanted = [*ids, "99999"]
    found = pbs.scheduler.parse_query(pbs.run(pbs.scheduler.query(wanted)), wanted)
    assert [found[job_id].state for job_id in wanted] == [
        JobState.RUNNING, JobState.RUNNING, JobState.UNKNOWN,
    ]  # fmt: skip


def test_a_job_that_never_was_is_unknown(pbs: Cluster) -> None:
    status = pbs.status("99999")
    assert (status.state, status.native_state) == (JobState.UNKNOWN, "")
    pbs.scheduler.parse_cancel(pbs.run(pbs.scheduler.cancel("99999")))


async def test_a_server_that_is_away_ends_nothing(pbs: Cluster, server: StandIn) -> None:
    job_id = pbs.submit("tk-away", ResourceRequest(), "sleep 100\n")
    pbs.running(job_id)
    server.set(down=True)

    async def run(command: Command) -> Completed:
        return pbs.run(command)

    async def at_once(seconds: float) -> None:
        return None

    poller = Poller(run, pbs.scheduler, sleep=at_once)
    seen = []
    async with aclosing(poller.watch(job_id)) as states:
        async for status in states:
            seen.append(status.state)
            if len(seen) == 3:
                server.set(down=False)
            if status.state is JobState.RUNNING:
                break
    assert seen == [JobState.UNKNOWN] * 3 + [JobState.RUNNING]


def test_json_that_cannot_be_read_is_asked_for_once(pbs: Cluster) -> None:
    # PBS prints what looks like a number in C as it is: to JSON this is none.
    odd = ResourceRequest(extra=("-v TK_ODD=.5",))
    job_id = pbs.submit("tk-json", odd, "sleep 100\n")
    if pbs.scheduler.name == "pbs":
        with pytest.raises(SchedulerError) as caught:
            pbs.status(job_id)
        assert caught.value.transient
    pbs.running(job_id)
