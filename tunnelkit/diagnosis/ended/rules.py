"""The verdict on a job that has ended: the first rule that holds wins, later ones may add."""

from __future__ import annotations

from tunnelkit.diagnosis.ended.pbs import PBS_ENDS, pbs_end
from tunnelkit.diagnosis.evidence.end import EndView
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.verdict import Certainty, Evidence, Verdict


def judge_end(job: JobView | None, end: EndView, now_s: float) -> tuple[Verdict, ...]:
    """Return how the job ended. job: None if the scheduler has no record of it any more."""
    if job is not None and job.native_state in PBS_ENDS:
        found = pbs_end(job, end)
        if found is not None:
            return (found,)
    state = job.native_state if job is not None else "no record"
    because = (Evidence(state, "the scheduler's record"),)
    return (Verdict("exit-unknown", "ended", Certainty.UNKNOWN, because),)
