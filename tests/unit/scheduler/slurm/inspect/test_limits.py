"""`scontrol show assoc_mgr` of a real Slurm 22.05, and text that is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.slurm_reasons import words
from tunnelkit.diagnosis.evidence.cluster import Limit, PartitionView
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.model import JobState
from tunnelkit.scheduler.slurm.inspect.limits import limits_of

DATA = Path(__file__).parents[2] / "data"
LINES = (DATA / "assoc-mgr-22.05.txt").read_text()
ONE_LINE = (DATA / "assoc-mgr-oneline-22.05.txt").read_text()
#: The recording's user was root, in the accounts lab and poor.
JOB = JobView(
    "7", JobState.PENDING, "PENDING", user="root", partition="gpu", account="lab", qos="tiny"
)

#: As 26.05 prints it: users by name and number, minutes still to run.
NEWER = """QOS=tiny(2)
    GrpJobs=N(1) GrpJobsAccrue=N(2) GrpSubmitJobs=N(3) GrpWall=90(12.50)
    Account Limits
      lab
        MaxJobsPA=N(1) MaxJobsAccruePA=N(2) MaxSubmitJobsPA=N(3)
        MaxTRESPA=cpu=N(1),gres/gpu=4(2),gres/gpu:a100=2(2)
        MaxTRESRunMinsPA=cpu=N(20)
    User Limits
      bob(1002)
        MaxJobsPU=2(0) MaxJobsAccruePU=N(2) MaxSubmitJobsPU=N(3)
        MaxTRESPU=cpu=9(1)
        MaxTRESRunMinsPU=cpu=600(7)
      alice(1001)
        MaxJobsPU=2(1) MaxJobsAccruePU=N(2) MaxSubmitJobsPU=N(3)
        MaxTRESPU=cpu=9(8)
        MaxTRESRunMinsPU=cpu=600(590)
"""


@pytest.mark.parametrize("text", [LINES, ONE_LINE], ids=["lines", "one-line"])
@pytest.mark.parametrize(
    ("reason", "changes", "limits"),
    [
        ("QOSGrpGRES", {}, [Limit("QOS tiny", "GrpTRES", "gres/gpu", 1, 1)]),
        ("QOSMaxJobsPerUserLimit", {"qos": "one"}, [Limit("QOS one", "MaxJobsPU", "jobs", 1, 1)]),
        (
            "QOSMaxWallDurationPerJobLimit",
            {"qos": "short"},
            [Limit("QOS short", "MaxWallPJ", "wall", 10, 0)],
        ),
        (
            "QOSGrpCPUMinutesLimit",
            {"qos": "budget"},
            [Limit("QOS budget", "GrpTRESMins", "cpu", 60, 0)],
        ),
        (
            "AssocGrpCPUMinutesLimit",
            {"account": "poor"},
            [Limit("account poor", "GrpTRESMins", "cpu", 0, 0)],
        ),
        # Of another QOS: there is one that is full, which may be the partition's.
        ("QOSGrpGRES", {"qos": "normal"}, [Limit("QOS tiny", "GrpTRES", "gres/gpu", 1, 1)]),
        ("QOSGrpCPUMinutesLimit", {"qos": "normal"}, []),
        ("QOSGrpCpuLimit", {}, []),
        ("AssocGrpGRES", {}, []),
        ("Resources", {}, []),
        ("None", {}, []),
    ],
)
def test_real_answers(text: str, reason: str, changes: dict[str, str], limits: list[Limit]) -> None:
    job = replace(JOB, reason=reason, **changes)  # type: ignore[arg-type]
    assert list(limits_of(text, job)) == limits


@pytest.mark.parametrize(
    ("reason", "limits"),
    [
        ("QOSMaxCpuPerUserLimit", [Limit("QOS tiny", "MaxTRESPU", "cpu", 9, 8)]),
        ("MaxCpuRunMinsPerUser", [Limit("QOS tiny", "MaxTRESRunMinsPU", "cpu", 600, 590)]),
        ("QOSGrpWallLimit", [Limit("QOS tiny", "GrpWall", "wall", 90, 12.5)]),
        (
            "MaxGRESPerAccount",
            [
                Limit("QOS tiny", "MaxTRESPA", "gres/gpu", 4, 2),
                Limit("QOS tiny", "MaxTRESPA", "gres/gpu:a100", 2, 2),
            ],
        ),
    ],
)
def test_a_newer_slurm(reason: str, limits: list[Limit]) -> None:
    job = replace(JOB, reason=reason, user="alice")
    assert list(limits_of(NEWER, job)) == limits


def test_the_accounts_above_and_the_users_own() -> None:
    text = """ClusterName=c Account=root UserName= Partition= Priority=0 ID=1
    ParentAccount= Lft=1 DefAssoc=No
    GrpTRES=cpu=1000(900)
ClusterName=c Account=dept UserName= Partition= Priority=0 ID=2
    ParentAccount=root(1) Lft=1 DefAssoc=No
    GrpTRES=cpu=100(96)
ClusterName=c Account=lab UserName= Partition= Priority=0 ID=3
    ParentAccount=dept(2) Lft=1 DefAssoc=No
    GrpTRES=cpu=N(40)
    MaxJobs=9(40)
ClusterName=c Account=lab UserName=bob(12) Partition= Priority=0 ID=4
    GrpTRES=cpu=4(0)
ClusterName=c Account=lab UserName=root(0) Partition= Priority=0 ID=5
    GrpTRES=cpu=64(40)
    MaxJobs=3(2) MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ=60
ClusterName=c Account=lab UserName=root(0) Partition=gpu Priority=0 ID=6
    GrpTRES=cpu=32(30)
    MaxJobs=2(2) MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ=
"""
    own = "user root (account lab)"
    assert list(limits_of(text, replace(JOB, reason="AssocGrpCpuLimit"))) == [
        Limit(own, "GrpTRES", "cpu", 32, 30),
        Limit("account dept", "GrpTRES", "cpu", 100, 96),
        Limit("account root", "GrpTRES", "cpu", 1000, 900),
    ]
    jobs = replace(JOB, reason="AssocMaxJobsLimit", partition="other")
    assert list(limits_of(text, jobs)) == [Limit(own, "MaxJobs", "jobs", 3, 2)]


_PIECES = [*LINES.split(), "{", "}", "(", ")", "=", ",", "N", "\n", "   ", "User Limits"]
_TEXTS = st.text(max_size=200) | st.lists(st.sampled_from(_PIECES), max_size=60).map(" ".join)


@given(_TEXTS, st.sampled_from(words()))
def test_any_text_has_limits_or_none(text: str, reason: str) -> None:
    for one in limits_of(text, replace(JOB, reason=reason)):
        assert one.limit >= 0 and one.used >= 0


@given(st.integers(0, len(LINES)), st.sampled_from(words()))
def test_an_answer_that_is_cut_has_limits_or_none(size: int, reason: str) -> None:
    limits_of(LINES[:size], replace(JOB, reason=reason, qos="one"))


def qos(name: str, jobs: str) -> str:
    return f"QOS={name}(3)\n    GrpJobs={jobs}(1) GrpTRES=cpu=N(1)\n"


PARTITIONS = (PartitionView("gpu", frozenset(), qos="inpart"), PartitionView("other", frozenset()))


def test_the_qos_of_the_partition_is_named_as_such() -> None:
    job = replace(JOB, reason="QOSGrpJobsLimit")
    text = qos("tiny", "N") + qos("inpart", "1") + qos("elsewhere", "1")
    [found] = limits_of(text, job, PARTITIONS)
    assert found == Limit("QOS inpart of partition gpu", "GrpJobs", "jobs", 1, 1, "gpu")


def test_a_limit_in_both_may_be_either() -> None:
    """The partition's counts, unless the job's QOS has the flag OverPartQOS."""
    job = replace(JOB, reason="QOSGrpJobsLimit")
    text = qos("tiny", "5") + qos("inpart", "1")
    [found] = limits_of(text, job, PARTITIONS)
    assert (found.owner, found.partition) == ("QOS inpart of partition gpu", "")
