"""The verdicts on a job that waits: the first rule that holds wins, later ones may add.

Reasons that Slurm's word alone decides come first; then nodes, queue and reservations are added up.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from tunnelkit.diagnosis.evidence.cluster import ClusterView
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict
from tunnelkit.diagnosis.waiting.contended import busy, fragmented, seems_free, turn
from tunnelkit.diagnosis.waiting.impossible import never, over_partition
from tunnelkit.diagnosis.waiting.situation import Situation, look, plain_reason
from tunnelkit.diagnosis.waiting.unavailable import maintenance, nodes_down, reserved_soon

ByReason = Callable[[JobView, ClusterView, float], Verdict | None]

#: The first that holds is the verdict.
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
#: Reasons that say what Slurm looked at last, not what is the matter.
_ADDED_UP = re.compile(
    r"None$|Priority|Resources|ReqNodeNotAvail|Nodes required|NodeDown|Partition(Node|Time)Limit|"
    r"PartitionConfig|BadConstraints|Required node|.*node configuration is not available"
)
#: Where nodes or queue are not known: what the reason alone makes likely.
_BY_WORD = (
    (r"Priority", "turn", "waits for its turn: jobs of higher priority are in front"),
    (r"Resources", "busy", "waits for nodes that are in use"),
    (r"ReqNodeNotAvail|Nodes required|NodeDown", "nodes-down", "waits for nodes that are down, "
     "drained or reserved"),
    (r"None$", "not-looked", "waits, and the scheduler has not looked at it yet"),
)  # fmt: skip


def no_reason(job: JobView, cluster: ClusterView, now_s: float) -> Verdict | None:
    """Return no verdict: no reason decides alone."""
    return None


def judge_waiting(
    job: JobView, cluster: ClusterView, now_s: float, by_reason: ByReason = no_reason
) -> tuple[Verdict, ...]:
    """Return why the job waits, at most two verdicts. now_s: Unix time, by the cluster's clock.

    by_reason: the verdict where Slurm's word alone decides, else None."""
    definite = by_reason(job, cluster, now_s)
    now = look(job, cluster, now_s)
    if definite is not None:
        also = None if now is None else never(now)
        if also is None or also.code == definite.code:
            return (definite,)
        return definite, replace(also, sentence=f"{also.sentence}, even after that")
    if _ADDED_UP.match(plain_reason(job)):
        for rule in RULES if now is not None else ():
            found = rule(now) if now is not None else None
            if found is not None:
                return (found,)
    return (_by_word(job),)


def _by_word(job: JobView) -> Verdict:
    reason = plain_reason(job)
    because = (Evidence(f"{reason} (the scheduler's reason)", "scontrol show job", "reason"),)
    for pattern, code, sentence in _BY_WORD:
        if re.match(pattern, reason):
            step = NextStep("ask again in a minute", f"tk why {job.job_id}")
            return Verdict(code, sentence, Certainty.LIKELY, because, next_steps=(step,))
    text = f"waits; the scheduler's reason is {reason}"
    step = NextStep("ask again in a minute; if it stays, show it to the cluster's support")
    return Verdict("waiting-unknown", text, Certainty.UNKNOWN, because, next_steps=(step,))
