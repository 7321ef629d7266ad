"""`tk why` on jobs that wait for what Slurm's word alone decides: a real Slurm with accounts."""

from __future__ import annotations

import asyncio
import re
import shlex
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.lab_fixtures import ssh
from tests.support.accounting_rig import account, accounting_lab, why_no_accounting
from tests.support.tkrig import Project, project_on
from tunnelkit.lab import LabInfo
from tunnelkit.scheduler.slurm.adapter import Slurm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.why("waiting")]

_REASON_S = 40.0
#: A job of one CPU and 20 minutes; `job` prints its id, `runs ID` waits until it runs.
_PREAMBLE = r"""
set -e
job() { sbatch --parsable -o "$HOME/%j.log" -c1 -t20 "$@" --wrap "${body:-sleep 600}"; }
state() {
  until [ "$(squeue -h -t all -j "$1" -o %T)" = "$2" ]; do sleep 0.1; done
}
"""
_CLEAR = """
scancel -u $USER
while squeue -h -t PD,R,CG,S | grep -q .; do sleep 0.1; done
scontrol delete reservationname=course 2>/dev/null || true
"""
_QOS = (
    "qos tiny set GrpTRES=gres/gpu=1",
    "qos one set MaxJobsPerUser=1",
    "qos brief set MaxWall=10",
    "qos left set GrpTRESMins=cpu=60",
    "qos spent",
    "qos twogpus set MaxTRESPerUser=gres/gpu=2",
    "account poor set GrpTRESMins=cpu=0",
    "account few set GrpJobs=1",
    "account dept set GrpTRES=cpu=2",
    "account group parent=dept",
    "account leaf parent=group",
    "account spentdept set GrpTRESMins=cpu=0",
    "account spentleaf parent=spentdept",
    "qos inpart set GrpJobs=1",
)


@dataclass(frozen=True)
class Case:
    """script: shell that makes the job and prints its id. sentence: in the verdict's. works: the
    first command, taken as it stands, lets the job run."""

    name: str
    script: str
    reason: str
    code: str
    sentence: str
    works: bool = False


CASES = (
    Case("a limit of the QOS for all", "state $(job -q tiny -G1) RUNNING; job -q tiny -G1",
         "QOSGrpGRES", "limit-qos",
         "QOS tiny: 1 GPU for all its jobs together, 1 in use"),
    Case("more than the whole limit", "job -q tiny -G2", "QOSGrpGRES", "limit-job",
         "it asks for 2 GPUs, and QOS tiny allows 1 GPU for all its jobs together"),
    Case("jobs for each user", "state $(job -q one) RUNNING; job -q one",
         "QOSMaxJobsPerUserLimit", "limit-user", "QOS one: 1 job at once for each user, 1 in use"),
    Case("GPUs for each user", "state $(job -q twogpus -G1) RUNNING; job -q twogpus -G2",
         "QOSMaxGRESPerUser", "limit-user", "QOS twogpus: 2 GPUs for each user, 1 in use"),
    Case("jobs of an account", "state $(job -A few) RUNNING; job -A few",
         "AssocGrpJobsLimit", "limit-account",
         "account few: 1 job at once for all its jobs together, 1 in use"),
    Case("time for one job", "job -q brief", "QOSMaxWallDurationPerJobLimit", "limit-job",
         "it asks for 20 min, and QOS brief allows 10 min for one job", works=True),
    Case("too little left of a budget", "job -q left -c4", "QOSGrpCPUMinutesLimit", "budget",
         "it may use 80 CPU minutes; 0 of 60 CPU minutes are used", works=True),
    Case("CPUs of an account two above", "state $(job -A leaf -c2) RUNNING; job -A leaf",
         "AssocGrpCpuLimit", "limit-account",
         "account dept: 2 CPUs for all its jobs together, 2 in use"),
    Case("a budget of the account above", "job -A spentleaf", "AssocGrpCPUMinutesLimit", "budget",
         "account spentdept has used up its budget, 0 of 0 CPU minutes"),
    Case("a limit of the partition's QOS", "state $(job -p short -t5) RUNNING; job -p short -t5",
         "QOSGrpJobsLimit", "limit-qos",
         "QOS inpart of partition short: 1 job at once for all its jobs together, 1 in use"),
    Case("a budget of nothing", "job -A poor", "AssocGrpCPUMinutesLimit", "budget",
         "account poor has used up its budget, 0 of 0 CPU minutes"),
    Case("licences", "state $(job -L matlab:1) RUNNING; job -L matlab:1", "Licenses", "licenses",
         "matlab:1"),
    Case("an array's own limit", "id=$(job --array=1-2%1); state ${id}_1 RUNNING; echo ${id}_2",
         "JobArrayTaskLimit", "limit-array", "%N"),
    Case("held by its owner", "job -H", "JobHeldUser", "held-you", "you can release it",
         works=True),
    Case("held by an administrator", "id=$(job -b now+1hour); scontrol hold $id; echo $id",
         "JobHeldAdmin", "held-admin", "only an administrator can release it"),
    Case("a begin time", "job -b now+1hour", "BeginTime", "begin", "begin time, in ", works=True),
    Case("requeued", "id=$(job --requeue); state $id RUNNING; scontrol requeue $id; "
         "state $id PENDING; echo $id",
         "BeginTime", "requeued", "is in the queue again: it was preempted, its node failed, or"),
    Case("requeued and held",
         "id=$(job --requeue); state $id RUNNING; scontrol requeuehold $id; state $id PENDING; "
         "echo $id",
         "job requeued in held state", "held-you", "is held after it ran before", works=True),
    Case("a dependency", "id=$(job -b now+1hour); job -d afterok:$id", "Dependency", "dependency",
         "to end with exit code 0"),
    Case("a dependency that failed",
         "id=$(body='exit 3' job); state $id FAILED; job -d afterok:$id",
         "DependencyNeverSatisfied", "dependency-never", "can't happen any more"),
    Case("a reservation", "scontrol create reservation reservationname=course starttime=now+2hours "
         "duration=10 nodes=node2 users=$USER >&2; job --reservation=course",
         "Reservation", "reservation", "reservation course"),
    # Slurm 22.05 deletes none that jobs wait for; they are held when it is over.
    Case("a reservation that is over", "scontrol create reservation reservationname=gone "
         "starttime=now duration=10 nodes=node2 users=$USER >&2; "
         "id=$(job -b now+1hour --reservation=gone); "
         "scontrol update reservationname=gone endtime=now+3 >&2; echo $id",
         "Reservation gone was deleted", "reservation-gone", "reservation it asks for was deleted"),
)  # fmt: skip


@pytest.fixture(scope="module")
def accounts() -> Iterator[LabInfo]:
    if reason := why_no_accounting():
        pytest.skip(reason)
    with accounting_lab() as info:
        for one in _QOS:
            account(info, f"add {one}")
        for name in ("poor", "few", "leaf", "spentleaf"):
            account(info, f"add user $USER Account={name}")
        names = "tiny,one,brief,left,spent,twogpus"
        account(info, f"modify user $USER set qos+={names}")
        ssh(info, "login", "scontrol update partitionname=short qos=inpart")
        yield info


@pytest.fixture
async def at(accounts: LabInfo) -> AsyncIterator[Project]:
    async with project_on(accounts) as made:
        try:
            yield made
        finally:
            await _sh(made, _CLEAR)


async def _sh(project: Project, script: str) -> str:
    return (await asyncio.to_thread(ssh, project.lab, "login", f"{_PREAMBLE}{script}")).strip()


async def _waits(project: Project, job: str, reason: str) -> None:
    """Wait until Slurm gives the job that reason."""
    ends = time.monotonic() + _REASON_S
    while (said := await _sh(project, f"squeue -h -j {job} -o %r")) != reason:
        assert time.monotonic() < ends, f"{job}: {said!r}, not {reason!r}"
        await asyncio.sleep(0.2)


async def _why(project: Project, job: str) -> dict[str, Any]:
    told = (await project.tk("why", job, "--json")).json
    assert told["stage"] == "waiting"
    first: dict[str, Any] = told["verdicts"][0]
    return first


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
async def test_it_says_what_the_job_waits_for(at: Project, case: Case) -> None:
    job = (await _sh(at, case.script)).splitlines()[-1]
    await _waits(at, job, case.reason)
    found = await _why(at, job)
    assert (found["code"], found["certainty"]) == (case.code, "proven")
    assert case.sentence in found["sentence"]
    # Each limit in the sentence has its record.
    if re.search(r"(QOS|account) [a-z]+", found["sentence"]):
        assert any(one["source"] == "scontrol show assoc_mgr" for one in found["because"])
    if case.works:
        await _sh(at, f"{found['next_steps'][0]['command']}; state {job} RUNNING")


async def test_a_budget_that_jobs_have_spent(at: Project) -> None:
    """Slurm counts once a minute, so this takes one."""
    used = "scontrol show assoc_mgr flags=qos qos=spent | grep -o 'GrpTRESMins=cpu=N([0-9]*)'"
    await _sh(at, "state $(job -q spent -c4 -N1) RUNNING")
    ends = time.monotonic() + 150
    while not re.search(r"\([1-9]", await _sh(at, used)):
        assert time.monotonic() < ends, "no minute was counted"
        await asyncio.sleep(0.5)
    await _sh(at, "scancel -u $USER; sacctmgr -iQ modify qos spent set GrpTRESMins=cpu=1")
    job = await _sh(at, "job -q spent -t1")
    await _waits(at, job, "QOSGrpCPUMinutesLimit")
    found = await _why(at, job)
    assert found["code"] == "budget"
    assert re.search(r"QOS spent has used up its budget, \d+ of 1 CPU minute$", found["sentence"])
    assert "does not free a budget" in found["consequences"][0]
    assert "timelimit" not in str(found["next_steps"])
    text = (await at.tk("why", job)).out
    assert f"job {job} will not start: QOS spent has used up its budget" in text


async def test_a_failed_step_of_tk_is_not_the_scripts(at: Project) -> None:
    """`tk why` samples a job by a step of it; the accounting has that step's end, too."""
    script = "id=$(body='sleep 25' job); state $id RUNNING; echo $id"
    job = await _sh(at, script)
    entered = Slurm().enter(
        job, (await _sh(at, f"squeue -h -j {job} -o %N")), ["sh", "-c", "exit 3"]
    )
    await _sh(at, f"{shlex.join(entered)} || true; state {job} COMPLETED")
    rows = await _sh(at, f"sacct -n -P -j {job} -o jobname,exitcode")
    assert "tk-step|3:0" in rows.splitlines()
    found = (await at.tk("why", job, "--json")).json
    assert found["verdicts"][0]["code"] == "ok"
