"""Ways to start sooner: a shorter limit, less on a node, no feature, another partition."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace

from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.verdict import NextStep
from tunnelkit.diagnosis.waiting import commands
from tunnelkit.diagnosis.waiting.fit import fit
from tunnelkit.diagnosis.waiting.room import Lack, gpus_on_node
from tunnelkit.diagnosis.waiting.situation import Situation
from tunnelkit.diagnosis.waiting.wording import amount, counted, joined, limit_words

#: Partitions that are tried, and alternatives that are shown.
_MOST_PARTITIONS, _MOST = 12, 3


def sooner(now: Situation) -> tuple[NextStep, ...]:
    """Return what can be done to start sooner, the best first."""
    steps = [*_shorter(now), *_less(now), *_any_feature(now), *_other_partition(now)]
    return tuple(steps[:_MOST])


def _shorter(now: Situation) -> Iterator[NextStep]:
    if now.sooner_min is not None:
        yield NextStep(
            f"with a time limit of up to {now.sooner_min} min it starts now; it keeps its place "
            f"(the limit is {limit_words(now.job.time_limit_s)})",
            f"tk why {now.job.job_id} --start-sooner {now.sooner_min}",
        )


def _less(now: Situation) -> Iterator[NextStep]:
    """Offer what the nearest node has free, of a job that wants one node."""
    shape, misses = now.job.shape, now.fit.misses
    if shape.nodes_most != 1 or not misses or not misses[0].lacks:
        return
    best = misses[0]
    if all(one.has > 0 for one in best.lacks):
        words = joined([amount(one.has, one.what) for one in best.lacks])
        options = [_option(one, now.job) for one in best.lacks]
        yield _again(now.job, f"with {words} it fits {best.node.name} now", options)


def _option(one: Lack, job: JobView) -> str:
    """Return the option that asks for what there is."""
    if one.what == "memory":
        return f"--mem {one.has >> 20}M"
    if one.what == "CPUs":
        return f"--cpus {one.has}" if _is_tks(job) else f"--cpus-per-task={one.has}"
    kind = next((each.kind for each in gpus_on_node(job.shape) if each.kind), "")
    count = f"{kind}:{one.has}" if kind else f"{one.has}"
    return f"--gpus {count}" if _is_tks(job) else f"--gpus-per-node={count}"


def _any_feature(now: Situation) -> Iterator[NextStep]:
    features = now.job.need.features
    if not features or now.fit.fits_now:
        return
    other = replace(now.job, need=replace(now.job.need, features=""))
    found = fit(other, now.cluster, now.now_s)
    if found.fits_now:
        yield NextStep(
            f"without the features {features}, {counted(len(found.free), 'node')} "
            f"{'fits' if len(found.free) == 1 else 'fit'} now",
            commands.update(now.job, "features="),
        )


def _other_partition(now: Situation) -> Iterator[NextStep]:
    """Offer a partition where it fits now. Which ones the user may use is not known."""
    job = now.job
    own = job.partition.split(",")
    limit_s = job.time_limit_s
    others = [
        one
        for one in now.cluster.partitions
        if one.name not in own
        and one.up
        and one.nodes
        and (one.time_most_s is None or (limit_s is not None and limit_s <= one.time_most_s))
        and not one.nodes <= {node.name for node in now.fit.nodes}
    ]
    for one in others[:_MOST_PARTITIONS]:
        found = fit(replace(job, partition=one.name), now.cluster, now.now_s)
        if found.fits_now:
            yield NextStep(
                f"it fits partition {one.name} now, if you may use that",
                commands.update(job, f"partition={shlex.quote(','.join((*own, one.name)))}"),
            )
            return


def _is_tks(job: JobView) -> bool:
    """True for a job of `tk up`."""
    return job.name.startswith("tk-")


def _again(job: JobView, fits: str, options: list[str]) -> NextStep:
    """Return the step that asks for other amounts: a waiting job's can't be changed.

    No command for a user's own job: Slurm's record has neither its options nor, of `tk submit`,
    its script; what cancels it first could lose it."""
    asked = " ".join(options)
    if _is_tks(job):
        return NextStep(fits, f"tk down && tk up {asked}")
    return NextStep(f"{fits}: submit it again with {asked}, then {commands.cancel(job)}")
