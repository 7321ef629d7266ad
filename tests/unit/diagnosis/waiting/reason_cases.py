"""One waiting job of alice's, judged by Slurm's reason."""

from __future__ import annotations

from dataclasses import replace

from tunnelkit.diagnosis.evidence.cluster import ClusterView
from tunnelkit.diagnosis.evidence.job import GpuNeed, JobView, NodeNeed
from tunnelkit.diagnosis.verdict import Verdict
from tunnelkit.diagnosis.waiting.by_reason import judge_reason
from tunnelkit.model import JobState

NOW_S = 1_800_000_000.0
JOB = JobView(
    "7",
    JobState.PENDING,
    "PENDING",
    user="alice",
    partition="gpu",
    account="lab",
    qos="tiny",
    time_limit_s=1200,
    need=NodeNeed(cpus=4, mem_bytes=8 << 30, gpus=(GpuNeed(1),)),
)


def judged(reason: str | None, cluster: ClusterView | None = None, **changes: object) -> Verdict:
    job = replace(JOB, reason=reason, **changes)  # type: ignore[arg-type]
    verdict = judge_reason(job, cluster or ClusterView(), NOW_S)
    assert verdict is not None
    assert verdict.because, "each verdict says how it is known"
    return verdict


def commands(verdict: Verdict) -> list[str]:
    return [step.command for step in verdict.next_steps]
