"""The verdicts on a job that waits: the first rule that holds wins, later ones may add.

Reasons that Slurm's word alone decides come first; then nodes, queue and reservations are added up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tunnelkit.diagnosis.evidence.cluster import ClusterView
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.verdict import Certainty, Verdict
from tunnelkit.diagnosis.waiting.by_reason import judge_by_word, judge_reason, partitions_down
from tunnelkit.diagnosis.waiting.contended import busy, fragmented, seems_free, turn
from tunnelkit.diagnosis.waiting.impossible import never, over_partition
from tunnelkit.diagnosis.waiting.pbs.rules import PBS_WAITS, judge_pbs
from tunnelkit.diagnosis.waiting.situation import Situation, look
from tunnelkit.diagnosis.waiting.slurm_reasons import reason_of
from tunnelkit.diagnosis.waiting.unavailable import maintenance, nodes_down, reserved_soon

#: The first that holds is the verdict. The first two say that it can never start.
RULES: tuple[Callable[[Situation], Verdict | None], ...] = (
    over_partition,
    never,
    nodes_down,
    maintenance,
    turn,
    reserved_soon,
    seems_free,
    fragmented,
    busy,
)


def judge_waiting(job: JobView, cluster: ClusterView, now_s: float) -> tuple[Verdict, ...]:
    """Return why the job waits, at most two verdicts. now_s: Unix time, by the cluster's clock."""
    if job.native_state in PBS_WAITS:
        return judge_pbs(job, cluster, now_s)
    definite = judge_reason(job, cluster, now_s)
    now = look(job, cluster, now_s)
    if definite is not None and definite.code == "partition-down":
        return _elsewhere(definite, job, cluster, now_s)
    if definite is not None:
        return (definite, *_even_then(definite, now))
    if now is not None and reason_of(job.reason).by_nodes:
        # Slurm itself says "never" there: full nodes are no reason.
        rules = RULES[:2] if (job.reason or "") == "BadConstraints" else RULES
        for rule in rules:
            if (found := rule(now)) is not None:
                return (_as_sure_as_read(found, job),)
    return (judge_by_word(job),)


def _elsewhere(
    down: Verdict, job: JobView, cluster: ClusterView, now_s: float
) -> tuple[Verdict, ...]:
    """Return why the job waits in those of its partitions that are on, before the other.

    Where it does not fit at all there, or they don't show why, it waits for the other."""
    off = partitions_down(job, cluster)
    rest = ",".join(name for name in job.partition.split(",") if name not in off)
    now = look(replace(job, partition=rest), cluster, now_s) if off and rest else None
    if now is None:
        return (down, *_even_then(down, look(job, cluster, now_s)))
    rules = RULES[2:] if now.fit.fits_ever else ()
    found = next((found for rule in rules if (found := rule(now)) is not None), None)
    if found is None or found.certainty is Certainty.UNKNOWN:
        return (down,)
    return (_as_sure_as_read(found, job), down)


def _as_sure_as_read(found: Verdict, job: JobView) -> Verdict:
    """Return the verdict; it proves nothing of a job whose request can't be added up."""
    if not job.shape.unclear:
        return found
    sure = found.certainty is Certainty.PROVEN
    certainty = Certainty.LIKELY if sure else found.certainty
    steps = found.next_steps
    if job.component:  # a shorter limit of one part starts none of them
        steps = tuple(one for one in steps if "--start-sooner" not in one.command)
    return replace(found, certainty=certainty, next_steps=steps, sooner_min=None)


def _even_then(definite: Verdict, now: Situation | None) -> tuple[Verdict, ...]:
    """Return that the job could not start either way, if that is so."""
    found = None if now is None else never(now)
    if now is None or found is None or found.code == definite.code:
        return ()
    found = _as_sure_as_read(found, now.job)
    if definite.code == "not-looked":
        return (found,)
    return (replace(found, sentence=f"{found.sentence}, even after that"),)
