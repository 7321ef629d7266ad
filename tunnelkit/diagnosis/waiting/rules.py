"""The verdicts on a job that waits: the first rule that holds wins, later ones may add.

Reasons that Slurm's word alone decides come first; then nodes, queue and reservations are added up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tunnelkit.diagnosis.evidence.cluster import ClusterView
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.verdict import Verdict
from tunnelkit.diagnosis.waiting.by_reason import judge_by_word, judge_reason
from tunnelkit.diagnosis.waiting.contended import busy, fragmented, seems_free, turn
from tunnelkit.diagnosis.waiting.impossible import never, over_partition
from tunnelkit.diagnosis.waiting.pbs_rules import PBS_WAITS, judge_pbs
from tunnelkit.diagnosis.waiting.situation import Situation, look
from tunnelkit.diagnosis.waiting.unavailable import maintenance, nodes_down

#: The first that holds is the verdict.
RULES: tuple[Callable[[Situation], Verdict | None], ...] = (
    over_partition,
    never,
    nodes_down,
    maintenance,
    turn,
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
    if definite is not None:
        also = None if now is None else never(now)
        if also is None or also.code == definite.code:
            return (definite,)
        return definite, replace(also, sentence=f"{also.sentence}, even after that")
    for rule in RULES if now is not None else ():
        found = rule(now) if now is not None else None
        if found is not None:
            return (found,)
    return (judge_by_word(job),)
