"""Limits of a QOS, an account or a user, and the jobs that count in them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.diagnosis.waiting.reason_cases import JOB, NOW_S, commands, judged
from tunnelkit.diagnosis.evidence.cluster import ClusterView, Limit, PartitionView, RunningJob
from tunnelkit.diagnosis.evidence.job import GpuNeed
from tunnelkit.diagnosis.verdict import Certainty


def test_a_limit_of_the_qos_with_what_is_used() -> None:
    limits = (Limit("QOS tiny", "GrpTRES", "gres/gpu", 1, 1),)
    found = judged("QOSGrpGRES", ClusterView(limits=limits))
    assert (found.code, found.certainty) == ("limit-qos", Certainty.PROVEN)
    assert found.sentence == (
        "waits for a limit of QOS tiny: 1 GPU for all its jobs together, 1 in use"
    )
    assert "scontrol update jobid=7 qos=NAME" in commands(found)


def test_more_than_the_whole_limit_never_starts() -> None:
    limits = (Limit("QOS tiny", "GrpTRES", "gres/gpu", 2, 0),)
    need = replace(JOB.need, gpus=(GpuNeed(4),))
    found = judged("QOSGrpGRES", ClusterView(limits=limits), need=need)
    assert (found.code, found.certainty) == ("limit-job", Certainty.PROVEN)
    assert "asks for 4 GPUs, and QOS tiny allows 2 GPUs" in found.sentence
    # Shares of several nodes are rounded up, so this is not proven.
    need = replace(JOB.need, gpus=(GpuNeed(2),))
    found = judged("QOSGrpGRES", ClusterView(limits=limits), need=need, nodes_wanted=2)
    assert (found.code, found.certainty) == ("limit-job", Certainty.LIKELY)


def test_another_qos_may_be_the_partitions_and_proves_nothing() -> None:
    limits = (Limit("QOS gpu-part", "GrpTRES", "gres/gpu", 1, 1),)
    need = replace(JOB.need, gpus=(GpuNeed(2),))
    found = judged("QOSGrpGRES", ClusterView(limits=limits), need=need)
    assert (found.code, found.certainty) == ("limit-qos", Certainty.LIKELY)


def test_limits_in_which_the_job_fits_are_not_the_cause() -> None:
    limits = (Limit("QOS tiny", "GrpTRES", "gres/gpu", 8, 1),)
    found = judged("QOSGrpGRES", ClusterView(limits=limits))
    assert found.code == "limit-qos" and "waits for a limit on" in found.sentence
    assert any("8 GPUs, 1 used" in one.text for one in found.because)


def test_an_account_limit_that_is_the_users_own() -> None:
    limits = (
        Limit("user alice (account lab)", "GrpTRES", "cpu", 8, 6),
        Limit("account lab", "GrpTRES", "cpu", 100, 6),
    )
    running = (
        RunningJob("5", "alice", ("n1",), NOW_S + 3600, account="lab"),
        RunningJob("6", "bob", ("n1",), NOW_S + 60, account="lab"),
        RunningJob("4", "alice", ("n1",), NOW_S + 600, account="lab"),
        RunningJob("3", "alice", ("n1",), NOW_S + 60, account="other"),
    )
    found = judged("AssocGrpCpuLimit", ClusterView(limits=limits, running=running))
    assert (found.code, found.certainty) == ("limit-user", Certainty.PROVEN)
    assert "8 CPUs for you, 6 in use" in found.sentence
    mine = [one.text for one in found.because if one.source == "squeue"]
    assert mine == [
        "4 (yours), ends in 10 min at the latest",
        "5 (yours), ends in 1 h at the latest",
    ]
    assert commands(found)[0] == "scancel 4"


@pytest.mark.parametrize("known", [True, False])
def test_no_job_is_named_to_end_for_gpus_which_it_may_not_have(known: bool) -> None:
    limits = (Limit("QOS tiny", "MaxTRESPU", "gres/gpu", 4, 4),) if known else ()
    mine = RunningJob("4", "alice", ("n1",), NOW_S + 600, account="lab", qos="tiny")
    around = ClusterView(limits=limits, running=(mine,))
    found = judged("QOSMaxGRESPerUser", around, qos="tiny", account="lab")
    assert found.code == "limit-user"
    assert commands(found)[0] == "squeue --me -t R -O JobID:20,EndTime:22,tres-alloc:80"
    assert not any("scancel" in one for one in commands(found))


def test_jobs_at_once() -> None:
    limits = (Limit("QOS tiny", "MaxJobsPU", "jobs", 1, 1),)
    found = judged("QOSMaxJobsPerUserLimit", ClusterView(limits=limits))
    assert found.code == "limit-user"
    assert "QOS tiny: 1 job at once for each user, 1 in use" in found.sentence


@pytest.mark.parametrize("limits", [(Limit("QOS tiny", "MaxJobsPU", "jobs", 1, 1),), ()])
def test_only_jobs_that_count_in_the_limit_are_named(limits: tuple[Limit, ...]) -> None:
    running = (
        RunningJob("80", "alice", ("n1",), NOW_S + 600, partition="gpu", qos="normal"),
        RunningJob("90", "alice", ("n1",), NOW_S + 3600, partition="gpu", qos="tiny"),
        RunningJob("70", "alice", ("n1",), NOW_S + 60, partition="gpu"),  # not known
    )
    found = judged("QOSMaxJobsPerUserLimit", ClusterView(limits=limits, running=running))
    assert [one for one in commands(found) if "scancel" in one] == ["scancel 90"]
    assert not any("80" in one.text or "70" in one.text for one in found.because)
    others = ClusterView(limits=limits, running=running[:1])
    assert not any("scancel" in one for one in commands(judged("QOSMaxJobsPerUserLimit", others)))


def test_a_limit_of_the_partitions_qos_counts_the_jobs_of_that_partition() -> None:
    running = (
        RunningJob("80", "alice", ("n1",), NOW_S + 600, partition="cpu", qos="tiny"),
        RunningJob("90", "alice", ("n1",), NOW_S + 3600, partition="gpu", qos="normal"),
    )
    limits = (Limit("QOS part of partition gpu", "MaxJobsPU", "jobs", 1, 1, "gpu"),)
    found = judged("QOSMaxJobsPerUserLimit", ClusterView(limits=limits, running=running))
    assert "scancel 90" in commands(found) and "scancel 80" not in commands(found)
    # Without numbers it may be the limit of either QOS: neither job counts for sure.
    parts = (PartitionView("gpu", frozenset(), qos="part"),)
    found = judged("QOSMaxJobsPerUserLimit", ClusterView(running=running, partitions=parts))
    assert not any("scancel" in one for one in commands(found))


def test_a_budget_that_is_used_up_is_not_waited_for() -> None:
    limits = (Limit("account lab", "GrpTRESMins", "cpu", 60, 60),)
    found = judged("AssocGrpCPUMinutesLimit", ClusterView(limits=limits))
    assert (found.code, found.certainty) == ("budget", Certainty.PROVEN)
    assert found.sentence == (
        "will not start: account lab has used up its budget, 60 of 60 CPU minutes"
    )
    assert any("does not free a budget" in text for text in found.consequences)
    assert "scontrol update jobid=7 account=NAME" in commands(found)


def test_a_budget_with_too_little_left_offers_a_shorter_time() -> None:
    limits = (Limit("QOS tiny", "GrpTRESMins", "cpu", 60, 12),)
    found = judged("QOSGrpCPUMinutesLimit", ClusterView(limits=limits))
    assert found.code == "budget"
    assert "may use 80 CPU minutes; 12 of 60 CPU minutes are used" in found.sentence
    assert commands(found)[0] == "scontrol update jobid=7 timelimit=12"


def test_minutes_still_to_run_are_a_limit_not_a_budget() -> None:
    limits = (Limit("QOS tiny", "GrpTRESRunMins", "cpu", 100, 60),)
    found = judged("QOSGrpCPURunMinutesLimit", ClusterView(limits=limits))
    assert found.code == "limit-qos"
    assert "100 CPU minutes still to run for all its jobs together, 60 in use" in found.sentence
    assert commands(found)[0] == "scontrol update jobid=7 timelimit=10"


def test_limits_of_one_job() -> None:
    limits = (Limit("QOS tiny", "MaxWallPJ", "wall", 10, 0),)
    found = judged("QOSMaxWallDurationPerJobLimit", ClusterView(limits=limits))
    assert (found.code, found.certainty) == ("limit-job", Certainty.PROVEN)
    assert "asks for 20 min, and QOS tiny allows 10 min for one job" in found.sentence
    assert commands(found)[0] == "scontrol update jobid=7 timelimit=10"
    limits = (Limit("QOS tiny", "MinTRESPJ", "gres/gpu", 2, 0),)
    found = judged("QOSMinGRES", ClusterView(limits=limits))
    assert "asks for 1 GPU, and QOS tiny demands at least 2 GPUs of each job" in found.sentence
    limits = (Limit("QOS tiny", "MaxTRESPN", "mem", 4096, 0),)
    found = judged("QOSMaxMemoryPerNode", ClusterView(limits=limits))
    assert "asks for 8 GB, and QOS tiny allows 4 GB on one node" in found.sentence


def test_a_limit_that_did_not_answer_has_a_sentence_without_numbers() -> None:
    found = judged("MaxGRESPerAccount")
    assert found.code == "limit-account"
    assert found.sentence.startswith("waits for a limit on GPUs")
    assert judged("MaxMemPerLimit").code == "limit-job"
    assert judged("AccountingPolicy").code == "limit-account"
    assert judged("QOSUsageThreshold").code == "budget"
