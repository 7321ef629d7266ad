"""The verdicts on waiting jobs that the arithmetic decides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.diagnosis.waiting.clusters import (
    GB,
    NOW_S,
    ahead,
    behind,
    cluster,
    job,
    lines,
    node,
    runs,
    verdict,
    window,
)
from tunnelkit.diagnosis.evidence.cluster import ClusterView
from tunnelkit.diagnosis.evidence.job import GpuNeed, Shape
from tunnelkit.diagnosis.verdict import Certainty, Verdict
from tunnelkit.diagnosis.waiting.rules import judge_waiting


def test_never_more_than_any_node_has() -> None:
    around = cluster(node("n1"), node("n2", cpus=16))
    found = verdict(job("PartitionConfig", cpus=99), around)
    assert (found.code, found.certainty) == ("never", Certainty.PROVEN)
    assert found.sentence == (
        "can never start: it asks for 99 CPUs on a node, and the largest of gpu has 16 CPUs"
    )
    assert found.next_steps[-1].command == "scancel 50"


def test_gpus_in_all_may_be_on_several_nodes() -> None:
    asked = job(shape=Shape(nodes_most=None, gpus_total=(GpuNeed(8),)))
    around = cluster(node("n1", used=2), node("n2"))
    assert verdict(asked, around).code == "busy"
    found = verdict(asked, cluster(node("n1")))
    assert found.code == "never" and "asks for 8 GPUs in all, and gpu has 4" in found.sentence


def test_never_more_gpus_in_all_than_as_many_nodes_as_the_partition_allows() -> None:
    asked = job("BadConstraints", shape=Shape(nodes_most=None, gpus_total=(GpuNeed(8),)))
    around = cluster(node("n1", gpus=2), node("n2"), node("n3"))

    def limited(most: int | None) -> Verdict:
        [gpu] = around.partitions
        return verdict(asked, replace(around, partitions=(replace(gpu, nodes_most=most),)))

    found = limited(1)
    assert (found.code, found.certainty) == ("never", Certainty.PROVEN)
    assert found.sentence == (
        "can never start: it asks for 8 GPUs in all, and gpu allows 1 node, of which the largest "
        "has 4 GPUs"
    )
    asked = replace(asked, shape=replace(asked.shape, gpus_total=(GpuNeed(9),)))
    assert "gpu allows 2 nodes, of which the largest have 8 GPUs" in limited(2).sentence
    for most in (3, None):
        assert "allows" not in limited(most).sentence
    # A QOS may let it have more: only Slurm's own word for it counts.
    asked = replace(asked, reason="Resources")
    assert limited(2).code != "never"


def test_never_no_node_has_both() -> None:
    around = cluster(node("n1", cpus=64, gpus=0), node("n2", cpus=8, gpus=4))
    found = verdict(job(cpus=32, gpus=2), around)
    assert (found.code, found.certainty) == ("never", Certainty.LIKELY)
    assert "no node of gpu has 32 CPUs and 2 GPUs together" in found.sentence


def test_never_more_nodes_than_fit() -> None:
    around = cluster(node("n1"), node("n2"), node("n3", cpus=1))
    shape = Shape(nodes_least=3, nodes_most=3, tasks=3, cpus_per_task=4)
    found = verdict(job("PartitionNodeLimit", shape=shape), around)
    assert (found.code, found.certainty) == ("never", Certainty.PROVEN)
    assert "it needs 3 nodes, and gpu has 2 nodes for it" in found.sentence


def test_never_no_node_with_the_features() -> None:
    found = verdict(job("BadConstraints", features="h100&ib"), cluster(node("n1", features="ib")))
    assert found.code == "never" and "has the features h100&ib" in found.sentence


def test_full_nodes_are_no_reason_where_slurm_says_never() -> None:
    """It knows more of the request than tk can add up."""
    found = verdict(job("BadConstraints"), cluster(node("n1", used=4)))
    assert (found.code, found.certainty) == ("never", Certainty.LIKELY)


def test_never_longer_than_the_partition_allows() -> None:
    found = verdict(job("PartitionConfig"), cluster(node("n1"), time_most_min=30))
    assert (found.code, found.certainty) == ("never", Certainty.PROVEN)
    assert "it asks for 1:00:00, and gpu allows 0:30:00" in found.sentence
    assert found.next_steps[0].command == "tk why 50 --start-sooner 30"


@pytest.mark.parametrize("reason", ["Resources", "Priority"])
def test_what_slurm_counts_on_nodes_for_is_within_its_limits(reason: str) -> None:
    """A QOS may override the partition's; Slurm has checked both before it says so."""
    around = cluster(node("n1", used=4), time_most_min=30)
    assert verdict(job(reason), around).code != "never"


def test_a_qos_may_allow_more_than_the_partition() -> None:
    """With the flag PartitionTimeLimit; Slurm then never names the partition's limit."""
    down = cluster(node("n1", states="down"), time_most_min=30)
    assert verdict(job("ReqNodeNotAvail"), down).code == "nodes-down"
    reserved = cluster(node("n1"), windows=(window("m1", 40, "n1"),), time_most_min=30)
    reason = "ReqNodeNotAvail,_Reserved_for_maintenance"
    assert verdict(job(reason), reserved).code == "maintenance"
    assert verdict(job("None"), reserved).code != "never"


def test_without_a_limit_of_its_own_it_has_the_partitions() -> None:
    around = cluster(node("n1", idle=0), time_most_min=30)
    assert verdict(job(limit_min=None), around).code == "busy"


def test_fragmented_over_nodes() -> None:
    around = cluster(node("n1", used=3), node("n2", used=3), node("n3", used=4))
    found = verdict(job(gpus=2), around)
    assert (found.code, found.certainty) == ("fragmented", Certainty.PROVEN)
    assert found.sentence == "waits 10 min: enough is free, but no single node has 2 GPUs free"
    assert lines(found, "free") == [
        "24 CPUs and 2 GPUs, on 3 nodes that could have it; GPUs by node: n1 1, n2 1",
        "n1 is nearest: 1 GPU short",
    ]
    # No command that cancels it and may not be able to submit it again.
    step = found.next_steps[0]
    assert step.text.endswith("submit it again with --gpus-per-node=1, then scancel 50")
    assert step.command == ""


def test_of_a_job_of_tk_up_less_is_asked_for_by_tk() -> None:
    around = cluster(node("n1", used=3), node("n2", used=3))
    found = verdict(replace(job(gpus=2), name="tk-proj-1"), around)
    assert found.next_steps[0].command == "tk down && tk up --gpus 1"


def test_busy_with_who_and_until_when() -> None:
    around = cluster(
        node("n1", idle=0), node("n2", idle=2), running=(runs("7", "n1"), runs("8", "n2", cpus=6))
    )
    found = verdict(job(cpus=4), around)
    assert (found.code, found.certainty) == ("busy", Certainty.PROVEN)
    assert "the 2 nodes that fit (n1, n2) are in use, until" in found.sentence
    assert [text.split(",")[0] for text in lines(found, "in use")] == [
        "n1 by 7 (lee)",
        "n2 by 8 (lee)",
    ]
    assert lines(found, "in front") == ["nobody in gpu"]


def test_hidden_jobs_are_somebodys_and_end_at_no_known_time() -> None:
    found = verdict(job(cpus=8), cluster(node("n1", idle=0), running=(runs("7", "n1", cpus=4),)))
    assert found.code == "busy" and "until" not in found.sentence
    assert lines(found, "in use") == ["n1 by 7 (lee), somebody's jobs"]


def test_turn_with_a_window_for_a_shorter_limit() -> None:
    around = cluster(node("n1"), queue=(ahead(in_min=41), behind()))
    found = verdict(job("Priority"), around)
    assert (found.code, found.certainty, found.sooner_min) == ("turn", Certainty.PROVEN, 39)
    assert found.sentence == "waits for its turn: 1 job is in front, but n1 is free for 41 min"
    assert found.next_steps[0].command == "tk why 50 --start-sooner 39"


def test_turn_takes_the_node_that_is_free_longest() -> None:
    queue = (ahead("40", 10, "n1"), ahead("41", 30, "n2"))
    found = verdict(job("Priority"), cluster(node("n1"), node("n2"), queue=queue))
    assert found.sooner_min == 28 and "n2 is free for 30 min" in found.sentence


def test_a_job_of_two_nodes_ends_before_the_first_of_them_is_needed() -> None:
    queue = (ahead("40", 10, "n1"), ahead("41", 30, "n2"), ahead("42", 50, "n3"))
    shape = Shape(nodes_least=2, nodes_most=2, tasks=2)
    around = cluster(node("n1"), node("n2"), node("n3"), queue=queue)
    assert verdict(job("Priority", shape=shape), around).sooner_min == 28


@pytest.mark.parametrize(
    "queue",
    [
        (ahead(in_min=None),),  # the scheduler has not planned it: no window is known
        (ahead(in_min=2),),  # too short
        (ahead(in_min=300),),  # the job is as short already
    ],
)
def test_no_window_no_offer(queue: tuple[ClusterView, ...]) -> None:
    found = verdict(job("Priority"), replace(cluster(node("n1")), queue=queue))
    assert found.code == "turn" and found.sooner_min is None
    assert not any("--start-sooner" in one.command for one in found.next_steps)


def test_those_who_wait_for_something_else_are_not_in_front() -> None:
    others = ("Dependency", "JobHeldUser", "BeginTime", "QOSMaxJobsPerUserLimit", "PartitionConfig")
    queue = tuple(ahead(str(at), reason=one) for at, one in enumerate(others))
    found = verdict(job("Priority"), replace(cluster(node("n1")), queue=queue))
    # Slurm says Priority, so others are there; they are not shown.
    assert (found.code, found.certainty) == ("turn", Certainty.LIKELY)
    assert lines(found, "in front") == ["jobs that squeue does not show to you"]


def test_nodes_down_with_the_administrators_words() -> None:
    around = cluster(node("n1", states="drained", reason="bad dimm"), node("n2", cpus=1))
    found = verdict(job("ReqNodeNotAvail,_UnavailableNodes:n1", cpus=4), around)
    assert (found.code, found.certainty) == ("nodes-down", Certainty.PROVEN)
    assert found.sentence == "waits: the only node that fits, n1, is drained"
    assert lines(found, "down") == ['n1 is drained: "bad dimm", set by root']


def test_nodes_down_of_a_job_of_several_nodes() -> None:
    around = cluster(node("n1", states="down not_responding"), node("n2"))
    shape = Shape(nodes_least=2, nodes_most=2, tasks=2)
    found = verdict(job("Nodes_required_for_job_are_DOWN", shape=shape), around)
    assert (found.code, found.sentence) == ("nodes-down", "waits: it needs 2 nodes, and n1 is down")


def test_what_the_tables_do_not_show_is_unknown() -> None:
    found = verdict(job("Resources"), cluster(node("n1")))
    assert (found.code, found.certainty) == ("waiting-unknown", Certainty.UNKNOWN)
    young = replace(job("Resources"), eligible_s=NOW_S - 5)
    assert verdict(young, cluster(node("n1"))).code == "not-looked"


def test_alone_on_its_node_it_needs_an_empty_one() -> None:
    shape = Shape(exclusive=True)
    assert verdict(job(shape=shape), cluster(node("n1", idle=7))).code == "busy"
    assert verdict(job(shape=shape), cluster(node("n1"))).code == "waiting-unknown"


def test_all_of_a_nodes_memory_where_memory_is_counted() -> None:
    shape = Shape(all_memory=True)
    assert verdict(job(shape=shape), cluster(node("n1", idle=7, taken_gb=1))).code == "busy"
    assert verdict(job(shape=shape), cluster(node("n1", idle=7))).code == "waiting-unknown"


def test_requests_by_gpu_are_those_of_the_gpus_on_a_node() -> None:
    around = replace(cluster(node("n1", cpus=64, idle=32, taken_gb=10)), queue=(ahead(),))
    few = Shape(gpus_per_node=(GpuNeed(1),), cpus_per_gpu=32, mem_per_gpu_bytes=10 * GB)
    found = verdict(job("Priority", shape=few), around)
    assert (found.code, found.certainty) == ("turn", Certainty.PROVEN)
    assert found.sooner_min is not None
    assert "1 GPU, 32 CPUs a GPU and 10 GB a GPU" in lines(found, "asked")[0]
    for more in (replace(few, cpus_per_gpu=64), replace(few, mem_per_gpu_bytes=60 * GB)):
        found = verdict(job("Priority", shape=more), around)
        assert (found.code, found.sooner_min) == ("busy", None)
    a_task = replace(few, gpus_per_node=(), gpus_per_task=(GpuNeed(2),), nodes_most=None, tasks=2)
    codes = [
        verdict(job(shape=replace(a_task, cpus_per_gpu=cpus)), around).code for cpus in (32, 16, 8)
    ]
    assert codes == ["never", "busy", "turn"]


def test_what_cant_be_added_up_proves_nothing_and_has_no_shorter_limit() -> None:
    around = replace(cluster(node("n1", taken_gb=10)), queue=(ahead(),))
    shape = Shape(gpus_per_node=(GpuNeed(1),), unclear=True)
    found = verdict(job("Priority", shape=shape), around)
    assert (found.code, found.certainty, found.sooner_min) == ("turn", Certainty.LIKELY, None)
    assert not any("--start-sooner" in one.command for one in found.next_steps)
    full = replace(around, nodes=(node("n1", used=4),))
    assert verdict(job(shape=shape), full).certainty is Certainty.LIKELY


def test_a_component_of_a_heterogeneous_job_has_no_shorter_limit() -> None:
    one = replace(job(limit_min=90), component=True, shape=replace(job().shape, unclear=True))
    for reason, around in (
        ("ReqNodeNotAvail", cluster(node("n1"), windows=(window("m1", 40, "n1"),))),
        ("PartitionTimeLimit", cluster(node("n1"), time_most_min=60)),
        ("Priority", cluster(node("n1"), node("n2"), queue=(ahead(nodes="n2"),))),
    ):
        found = verdict(replace(one, reason=reason), around)
        assert found.certainty is not Certainty.PROVEN and found.sooner_min is None
        assert not any("--start-sooner" in step.command for step in found.next_steps)


def test_tasks_may_be_spread() -> None:
    shape = Shape(nodes_least=1, nodes_most=None, tasks=6, gpus_total=(GpuNeed(3),))
    around = cluster(node("n1", cpus=4, gpus=2), node("n2", cpus=4, gpus=2))
    assert verdict(job(shape=shape), around).code == "waiting-unknown"  # it would fit
    more = replace(shape, tasks=9)
    assert verdict(job("PartitionConfig", shape=more), around).code == "never"


def test_required_and_excluded_nodes() -> None:
    around = cluster(node("n1", idle=0), node("n2"))
    assert verdict(job(required="n1"), around).code == "busy"
    assert verdict(job(excluded="n2"), around).code == "busy"
    assert "n1, is in use" in verdict(job(excluded="n2"), around).sentence


def test_gpus_of_another_kind_do_not_count() -> None:
    shape = Shape(gpus_per_node=(GpuNeed(2, "h100"),))
    around = cluster(node("n1", kind="a100"), node("n2", kind="h100", used=3))
    found = verdict(job(shape=shape), around)
    assert found.code == "busy"
    assert "1 GPU of type h100" in " ".join(lines(found, "free"))


def test_without_the_features_others_fit_now() -> None:
    around = cluster(node("n1", idle=0, features="a100"), node("n2"), node("n3"))
    found = verdict(job(features="a100"), around)
    assert [one.command for one in found.next_steps] == ["scontrol update jobid=50 features="]
    assert "2 nodes fit now" in found.next_steps[0].text


def test_another_partition_where_it_fits_now() -> None:
    around = cluster(node("n1", idle=0), node("n2", partition="short"))
    found = verdict(job(), around)
    assert [one.command for one in found.next_steps] == [
        "scontrol update jobid=50 partition=gpu,short"
    ]


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("Priority", "turn"),
        ("Resources", "busy"),
        ("ReqNodeNotAvail,_UnavailableNodes:n1", "nodes-down"),
    ],
)
def test_without_nodes_only_likely(reason: str, code: str) -> None:
    found = verdict(job(reason), ClusterView(missing=("sinfo: no answer within 10 s",)))
    assert (found.code, found.certainty) == (code, Certainty.LIKELY)


def test_a_definite_reason_comes_first_and_the_arithmetic_may_add() -> None:
    reason = "QOSMaxJobsPerUserLimit"
    found = judge_waiting(job(reason, cpus=99), cluster(node("n1")), NOW_S)
    assert [one.code for one in found] == ["limit-user", "never"]
    [only] = judge_waiting(job(reason), cluster(node("n1")), NOW_S)
    assert only.code == "limit-user"


def test_without_a_reason_yet_the_scheduler_has_not_looked() -> None:
    assert verdict(job("None"), cluster(node("n1"))).code == "not-looked"
