"""The verdicts on a job that waits: the first rule that holds wins, later ones may add."""

from __future__ import annotations

from tunnelkit.diagnosis.evidence.cluster import ClusterView
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.verdict import Certainty, Evidence, Verdict
from tunnelkit.diagnosis.waiting.pbs_rules import PBS_WAITS, judge_pbs


def judge_waiting(job: JobView, cluster: ClusterView, now_s: float) -> tuple[Verdict, ...]:
    """Return why the job waits, at most two verdicts. now_s: Unix time, by the cluster's clock."""
    if job.native_state in PBS_WAITS:
        return judge_pbs(job, cluster, now_s)
    reason = job.reason or "none"
    because = (Evidence(f"reason {reason}", "the scheduler's record"),)
    return (Verdict("waiting-unknown", "waits", Certainty.UNKNOWN, because),)
