"""The verdicts on a job of PBS that waits: its state, then the comment; the nodes add to it."""

from __future__ import annotations

from dataclasses import replace

from tunnelkit.diagnosis.evidence.cluster import ClusterView
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict
from tunnelkit.diagnosis.waiting.pbs_comments import judge_comment
from tunnelkit.diagnosis.waiting.pbs_holds import judge_state, span
from tunnelkit.diagnosis.waiting.pbs_nodes import judge_nodes

#: job_state of PBS and Torque. Slurm's are whole words.
PBS_WAITS = frozenset("QHWT")
#: After so long the scheduler has looked: its rounds take at most 10 min (scheduler_iteration).
_LOOKED_S = 900.0


def judge_pbs(job: JobView, cluster: ClusterView, now_s: float) -> tuple[Verdict, ...]:
    """Return why the job waits, at most two verdicts. now_s: Unix time, by the cluster's clock."""
    if (state := judge_state(job, now_s)) is not None:
        return (state,)
    comment = judge_comment(job, cluster, now_s)
    off = _switched_off(job, cluster)
    nodes = judge_nodes(job, cluster)
    first = off or _joined(comment, nodes) or _without_comment(job, now_s)
    first = _with_runs(job, first)
    first = _with_estimate(job, first, now_s)
    if nodes is None or nodes.code not in ("never", "nodes-down"):
        return (first,)
    if first.code in ("never", nodes.code):
        return (first,)
    return first, replace(nodes, sentence=_even_then(nodes.sentence))


def _joined(comment: Verdict | None, nodes: Verdict | None) -> Verdict | None:
    """Return the comment's verdict; where it only says that no node is free, the nodes say more."""
    if comment is None or comment.code != "busy" or nodes is None:
        return comment
    if nodes.code == "busy":
        return replace(comment, because=(*comment.because, *nodes.because))
    return replace(nodes, because=(*comment.because, *nodes.because))


def _switched_off(job: JobView, cluster: ClusterView) -> Verdict | None:
    if not cluster.switched_off:
        return None
    return Verdict(
        "partition-down",
        f"waits: {cluster.switched_off[0]}",
        Certainty.PROVEN,
        tuple(Evidence(one, "qstat -Qf, qstat -Bf") for one in cluster.switched_off),
        next_steps=(NextStep("ask the administrator, or use another queue: qstat -Q"),),
    )


def _without_comment(job: JobView, now_s: float) -> Verdict:
    if job.restarts:
        return Verdict(
            "requeued",
            "ran before, and is in the queue again",
            Certainty.PROVEN,
            next_steps=(NextStep("wait. If it ran on one node twice, ask for another"),),
        )
    since_s = job.eligible_s or job.submit_s
    if since_s is not None and now_s - since_s > _LOOKED_S:
        # Torque's comments are the scheduler's choice: Maui and Moab write none.
        return Verdict(
            "waiting-unknown",
            f"waits, and the scheduler has given no reason in {span(now_s - since_s)}",
            Certainty.UNKNOWN,
            (Evidence("no comment", "qstat -f"),),
            next_steps=(NextStep("with Maui or Moab", f"checkjob {job.job_id}"),),
        )
    return Verdict(
        "not-looked",
        "waits: the scheduler has not looked at it yet",
        Certainty.LIKELY,
        (Evidence("no comment", "qstat -f"),),
        next_steps=(NextStep("ask again in a minute", f"tk why {job.job_id}"),),
    )


def _with_runs(job: JobView, verdict: Verdict) -> Verdict:
    if not job.restarts:
        return verdict
    times = "once" if job.restarts == 1 else f"{job.restarts} times"
    seen = Evidence(f"PBS started it {times} before", "qstat -f: run_count", "earlier")
    return replace(verdict, because=(*verdict.because, seen))


def _with_estimate(job: JobView, verdict: Verdict, now_s: float) -> Verdict:
    if job.expected_start_s is None or job.expected_start_s <= now_s:
        return verdict
    where = f" on {', '.join(job.expected_nodes[:3])}" if job.expected_nodes else ""
    seen = Evidence(
        f"in about {span(job.expected_start_s - now_s)}{where}, by PBS's estimate",
        "qstat -f: estimated.start_time", "starts", job.expected_start_s,
    )  # fmt: skip
    return replace(verdict, because=(*verdict.because, seen))


def _even_then(sentence: str) -> str:
    """Return the sentence of a second reason, which comes after the first."""
    if sentence.startswith("waits: "):
        return f"also waits: {sentence.removeprefix('waits: ')}"
    return f"even then {sentence}"
