"""A job of several partitions: Slurm's reason is of the one that it tried last."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.diagnosis.waiting import clusters
from tests.unit.diagnosis.waiting.clusters import cluster, node, runs
from tests.unit.diagnosis.waiting.reason_cases import commands, judged
from tunnelkit.diagnosis.evidence.cluster import ClusterView, Limit, PartitionView
from tunnelkit.diagnosis.verdict import Certainty
from tunnelkit.diagnosis.waiting.rules import judge_waiting

TOO_LONG = Limit("QOS tiny", "MaxWallPJ", "wall", 600, 0)


@pytest.mark.parametrize(
    ("reason", "code", "limits"),
    [
        ("MaxMemPerLimit", "limit-job", ()),
        ("QOSMaxWallDurationPerJobLimit", "limit-job", ()),
        ("QOSMaxWallDurationPerJobLimit", "limit-job", (TOO_LONG,)),
        ("AccountNotAllowed", "refused", ()),
    ],
)
def test_the_reason_of_one_of_several_partitions(
    reason: str, code: str, limits: tuple[Limit, ...]
) -> None:
    around = ClusterView(limits=limits)
    found = judged(reason, around, partition="small,big")
    assert (found.code, found.certainty) == (code, Certainty.LIKELY)
    assert found.sentence.startswith("can never start in one of its partitions (small, big): ")
    assert commands(found)[0] == "scontrol update jobid=7 partition=NAME"
    alone = judged(reason, around, partition="small")
    assert (alone.code, alone.certainty) == (code, Certainty.PROVEN)


def test_a_limit_of_the_qos_of_one_of_several_partitions_is_likely() -> None:
    found = judged("QOSGrpGRES", partition="a,b")
    assert (found.code, found.certainty) == ("limit-qos", Certainty.LIKELY)


def test_several_partitions_of_which_some_are_off() -> None:
    """Slurm's reason does not name the one that it tried last."""
    unknown = judged("PartitionDown", partition="a,b")
    assert unknown.certainty is Certainty.LIKELY
    assert unknown.sentence == (
        "waits: one of its partitions (a, b) is switched off, and starts no job"
    )
    some = ClusterView(
        partitions=(PartitionView("a", frozenset()), PartitionView("b", frozenset(), up=False))
    )
    found = judged("PartitionDown", some, partition="a,b")
    assert found.certainty is Certainty.LIKELY
    assert "b, one of its partitions (a, b), is switched off" in found.sentence
    off = replace(some, partitions=tuple(replace(one, up=False) for one in some.partitions))
    found = judged("PartitionDown", off, partition="a,b")
    assert found.certainty is Certainty.PROVEN
    assert "its partitions a, b are switched off" in found.sentence


def test_the_partition_that_is_on_is_judged_by_its_nodes() -> None:
    full, off = node("n1", gpus=0, idle=0), node("n2", gpus=0, partition="off")
    around = cluster(full, off, running=(runs("40", "n1"),))
    parts = tuple(replace(one, up=one.name == "gpu") for one in around.partitions)
    around = replace(around, partitions=parts)
    both = replace(clusters.job("PartitionDown"), partition="gpu,off")
    busy, down = judge_waiting(both, around, clusters.NOW_S)
    assert (busy.code, busy.certainty) == ("busy", Certainty.LIKELY)
    assert "the only node that fits, n1, is in use" in busy.sentence
    assert (down.code, down.certainty) == ("partition-down", Certainty.LIKELY)
    # There is room, and nobody knows why it does not start there; or it never fits there.
    free = replace(around, nodes=(node("n1", gpus=0), off))
    large = replace(clusters.job("PartitionDown", cpus=9), partition="gpu,off")
    for one, where in ((both, free), (large, around)):
        [found] = judge_waiting(one, where, clusters.NOW_S)
        assert (found.code, found.certainty) == ("partition-down", Certainty.LIKELY)
