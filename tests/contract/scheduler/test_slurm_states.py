"""Jobs of a real Slurm in states between waiting, running and ended: all wait, and are asked so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.contract.scheduler.rig import Cluster, cluster, until
from tests.lab_fixtures import running_lab, ssh, why_no_lab
from tunnelkit.diagnosis.verdict import Certainty, Diagnosis, Stage
from tunnelkit.lab.layout import Layout
from tunnelkit.lab.state import require
from tunnelkit.scheduler.base import Command
from tunnelkit.scheduler.inspector import Inspection
from tunnelkit.scheduler.slurm.adapter import Slurm
from tunnelkit.scheduler.slurm.inspect.inspector import SlurmInspector
from tunnelkit.session.why.diagnose import judge

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.why("waiting")]

_PREAMBLE = r"""
set -e
new() { sbatch --parsable -o /dev/null --requeue -t 5 "$@" --wrap 'sleep 600'; }
running() { until [ "$(squeue -h -j $1 -o %T)" = RUNNING ]; do sleep 0.1; done; }
"""
#: Runs are cleared away slowly, and nodes can be switched off that never come back.
_CONF = """
Epilog={dir}/epilog.sh
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=100000
SuspendTimeout=1
ResumeTimeout=600
"""


@dataclass(frozen=True)
class Case:
    """script: prints the job's number. state: Slurm's word."""

    script: str
    state: str
    code: str
    words: str


CASES = {
    "requeued, its run is cleared away": Case(
        "a=$(new -w node1); running $a; scontrol requeue $a; echo $a", "COMPLETING", "requeued",
        "its run before is still being cleared away"),
    "requeued and held, its run is cleared away": Case(
        "a=$(new -w node1); running $a; scontrol requeuehold $a; echo $a", "COMPLETING",
        "held-you", "is held after it ran before"),
    "requeued and held": Case(
        "a=$(new -w node1); running $a; scontrol requeuehold $a; echo $a", "PENDING",
        "held-you", "is held after it ran before"),
    "special exit": Case(
        "a=$(new -w node1); running $a; scontrol requeuehold State=SpecialExit $a; echo $a",
        "SPECIAL_EXIT", "held-you", "you can release it"),
    "its reservation is over": Case(
        "scontrol create reservation reservationname=gone starttime=now duration=10 nodes=node1 "
        "users=$USER >&2; a=$(new -b now+1hour --reservation=gone); "
        "scontrol update reservationname=gone endtime=now+3 >&2; echo $a",
        "RESV_DEL_HOLD", "reservation-gone", "was deleted"),
    "its node is powered up": Case(
        "scontrol update nodename=node2 state=POWER_DOWN; "
        "until sinfo -h -n node2 -o %T | grep -q '~'; do sleep 0.2; done; new -w node2",
        "CONFIGURING", "preparing", "is about to start"),
}  # fmt: skip


@pytest.fixture(scope="module")
def slow_to_end() -> Iterator[Cluster]:
    if reason := why_no_lab():
        pytest.skip(reason)
    with running_lab() as info:
        epilog = info.dir / "epilog.sh"
        epilog.write_text("#!/bin/sh\nexec sleep 4\n")
        epilog.chmod(0o755)
        conf = require(Layout(info.dir)).layout.slurm_conf
        conf.write_text(conf.read_text() + _CONF.format(dir=info.dir))
        ssh(info, "login", "scontrol reconfigure")
        with cluster(info, Slurm()) as rig:
            yield rig


def ask(rig: Cluster, job: str) -> tuple[Inspection, Diagnosis]:
    inspector = SlurmInspector()
    done = rig.run(Command(tuple(inspector.inspect(job, "tk-mark"))))
    found = inspector.parse(done, job, "tk-mark")
    return found, judge(found, job)


@pytest.mark.parametrize("name", CASES)
def test_a_job_in_between_waits(slow_to_end: Cluster, name: str) -> None:
    case, rig = CASES[name], slow_to_end
    job = ssh(rig.info, "login", f"{_PREAMBLE}{case.script}").splitlines()[-1].strip()
    try:
        until(
            lambda: f"JobState={case.state} " in ssh(rig.info, "login", f"scontrol show job {job}"),
            case.state,
        )
        found, diagnosis = ask(rig, job)
        assert found.job is not None and found.job.native_state == case.state
        assert (diagnosis.stage, diagnosis.not_asked) == (Stage.WAITING, ())
        assert found.cluster is not None and found.cluster.nodes and found.end is None
        verdict = diagnosis.verdicts[0]
        assert (verdict.code, verdict.certainty) == (case.code, Certainty.PROVEN)
        assert case.words in verdict.sentence
    finally:
        ssh(rig.info, "login", f"scancel {job}")


@pytest.mark.parametrize("end", ["cancelled", "by itself"])
def test_a_job_that_is_over_is_not_taken_for_one_that_comes_back(
    slow_to_end: Cluster, end: str
) -> None:
    """Its last processes are cleared away, too."""
    rig = slow_to_end
    script = "a=$(new -w node1); running $a; scancel $a; echo $a"
    if end == "by itself":
        script = "sbatch --parsable -w node1 -o /dev/null -t 5 --wrap 'exit 3'"
    job = ssh(rig.info, "login", f"{_PREAMBLE}{script}").strip()
    until(
        lambda: "JobState=COMPLETING " in ssh(rig.info, "login", f"scontrol show job {job}"),
        "COMPLETING",
    )
    found, diagnosis = ask(rig, job)
    assert diagnosis.stage is Stage.ENDED and found.end is not None
