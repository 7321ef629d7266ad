"""The verdicts on a job that waits: the first rule that holds wins, later ones may add."""

from __future__ import annotations

from tunnelkit.diagnosis.evidence.cluster import ClusterView
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.verdict import Verdict
from tunnelkit.diagnosis.waiting.by_reason import judge_by_word, judge_reason


def judge_waiting(job: JobView, cluster: ClusterView, now_s: float) -> tuple[Verdict, ...]:
    """Return why the job waits, at most two verdicts. now_s: Unix time, by the cluster's clock."""
    return (judge_reason(job, cluster, now_s) or judge_by_word(job),)
