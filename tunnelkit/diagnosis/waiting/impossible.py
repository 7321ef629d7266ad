"""A job that can never start: it is over its partition's limits, or no node is large enough."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tunnelkit.diagnosis.evidence.cluster import PartitionView
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict
from tunnelkit.diagnosis.waiting import commands, lines
from tunnelkit.diagnosis.waiting.alternatives import sooner
from tunnelkit.diagnosis.waiting.room import Lack, RoomFor, empty_room, gpu_words
from tunnelkit.diagnosis.waiting.situation import Situation
from tunnelkit.diagnosis.waiting.wording import (
    amount,
    counted,
    joined,
    limit_words,
    nodes_needed,
)

_IMPOSSIBLE = re.compile(
    r"PartitionConfig|PartitionNodeLimit|PartitionTimeLimit|BadConstraints|"
    r".*node configuration is not available"
)


def over_partition(now: Situation) -> Verdict | None:
    """The job asks for more time or nodes than its partitions allow.

    Only where Slurm's own reason is such a limit: a QOS may override them (PartitionTimeLimit)."""
    job = now.job
    if not _IMPOSSIBLE.match(now.reason):
        return None
    found = []
    for one in now.partitions:
        limit_s, most_s = job.time_limit_s, one.time_most_s
        if most_s is not None and (limit_s is None or limit_s > most_s):
            found.append((limit_words(limit_s), f"{one.name} allows {limit_words(most_s)}"))
        elif one.nodes_most is not None and job.shape.nodes_least > one.nodes_most:
            asked = counted(job.shape.nodes_least, "node")
            found.append((asked, f"{one.name} allows {one.nodes_most}"))
        elif (gpus := _over_by_gpus(now, one)) is not None:
            found.append(gpus)
    if len(found) < len(now.partitions) or not found:
        return None
    because = [lines.asked(now), *(Evidence(text, lines.PARTITIONS, "limit") for _, text in found)]
    most = [one.time_most_s for one in now.partitions if one.time_most_s]
    steps = [NextStep("cancel it, and ask for less", commands.cancel(job))]
    if most and (job.time_limit_s is None or job.time_limit_s > max(most)):
        minutes = max(most) // 60
        shorten = f"tk why {job.job_id} --start-sooner {minutes}"
        steps.insert(0, NextStep("shorten its time limit; it keeps its place", shorten))
    text = f"can never start: it asks for {found[0][0]}, and {found[0][1]}"
    return Verdict("never", text, Certainty.PROVEN, tuple(because), next_steps=tuple(steps))


def _over_by_gpus(now: Situation, partition: PartitionView) -> tuple[str, str] | None:
    """Return the GPUs that the job asks for in all, and those of as many nodes as the partition
    allows, if these are fewer, but all of its nodes have enough."""
    most = partition.nodes_most
    if most is None:
        return None
    nodes = [one for one in now.fit.suitable if partition.name in one.partitions]
    for gpus in now.job.shape.gpus_total:
        has = sorted((empty_room(one).gpus_of(gpus.kind) for one in nodes), reverse=True)
        if sum(has[:most]) < gpus.count <= sum(has):
            what = gpu_words(gpus.kind)
            verb = "has" if most == 1 else "have"
            limit = f"{partition.name} allows {counted(most, 'node')}, of which the largest {verb} "
            asked = f"{amount(gpus.count, what)} in all"
            return asked, limit + amount(sum(has[:most]), what)
    return None


def never(now: Situation) -> Verdict | None:
    """Too few nodes are large enough, even when all are empty."""
    if now.fit.fits_ever or not now.fit.nodes:
        return None
    agreed = bool(_IMPOSSIBLE.match(now.reason)) and now.fit.readable
    certainty = Certainty.PROVEN if agreed else Certainty.LIKELY
    because = (lines.asked(now), *_largest(now), lines.reason(now))
    steps = (
        *sooner(now),
        NextStep("cancel it, and ask for what a node has", commands.cancel(now.job)),
    )
    text = f"can never start: {_impossible(now)}"
    return Verdict("never", text, certainty, because, next_steps=steps)


def _impossible(now: Situation) -> str:
    job, fit = now.job, now.fit
    where = job.partition
    if not fit.suitable:
        if job.need.features:
            return f"no node of {where} that it may use has the features {job.need.features}"
        return f"no node of {where} is left that it may use"
    if fit.ever:
        for gpus in job.shape.gpus_total:
            total = sum(
                one.total for node in fit.ever for one in node.gpus if gpus.kind in ("", one.kind)
            )
            if total < gpus.count:
                what = gpu_words(gpus.kind)
                return (
                    f"it asks for {amount(gpus.count, what)} in all, and {where} has {total} for it"
                )
        needed = nodes_needed(now.job.shape)
        return f"it needs {needed}, and {where} has {counted(len(fit.ever), 'node')} for it"
    for one in _most(now):
        if one.has < one.asked:
            has = amount(one.has, one.what)
            return (
                f"it asks for {amount(one.asked, one.what)} on a node, and the largest of "
                f"{where} has {has}"
            )
    parts = joined([amount(one.asked, one.what) for one in _most(now)])
    return f"no node of {where} has {parts} together"


def _most(now: Situation) -> list[Lack]:
    """Return each need with the most that any suitable node has of it."""
    best: dict[str, Lack] = {}
    room = RoomFor(now.job.shape, empty_room)
    for node in now.fit.suitable:
        for one in room.needs(node):
            if one.what not in best or one.has > best[one.what].has:
                best[one.what] = one
    return list(best.values())


def _largest(now: Situation) -> Sequence[Evidence]:
    most = _most(now)
    if not most:
        return ()
    parts = joined([amount(one.has, one.what) for one in most])
    text = f"{counted(len(now.fit.suitable), 'node')} it may use; the most on one: {parts}"
    return (Evidence(text, lines.NODES, "there is"),)
