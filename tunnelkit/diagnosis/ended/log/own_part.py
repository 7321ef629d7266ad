"""One job's part of a log that several jobs write, by the lines of Slurm's step daemon."""

from __future__ import annotations

import re

from tunnelkit.diagnosis.ended.log.stepd import STEPD
from tunnelkit.diagnosis.evidence.job import JobView

_NUMBERED = re.compile(
    STEPD + r"(?:\*\*\* (?P<what>JOB|STEP) |Detected \d{1,9} oom[-_]kill event(?:s|\(s\))? in "
    r"(?:StepId=|step )|(?:StepId=|Step |Job )(?=\S+ exceeded ))"
    r"(?P<job>\d{1,12}(?:_\d{1,9})?)(?P<step>\.batch\b)?"
)
_OVER = STEPD + r"\*\*\* JOB (?P<job>\S+) ON \S+ CANCELLED AT \S+ DUE TO "
#: The job was to run again, and may have written more.
_AGAIN = re.compile(_OVER + r"(?:PREEMPTION|NODE FAILURE|JOB REQUEUE)")
#: How a run ended that was not the last one.
_ENDED = re.compile(_OVER + r"(?:PREEMPTION|NODE FAILURE|JOB REQUEUE|TIME LIMIT)")


def since_restart(text: str, job: JobView | None) -> str:
    """Return what a job's last run wrote into one log, where another run's end is in it.

    A run that ended by itself, with FAILED or COMPLETED, has no such line of its own."""
    words = job.native_state.upper().split() if job is not None else []
    if job is None or not job.restarts or words[:1] not in (["FAILED"], ["COMPLETED"]):
        return text
    own = _numbers(job)
    ends = [one for one in _ENDED.finditer(text) if not own or one["job"] in own]
    if not ends:
        return text
    end = text.find("\n", ends[-1].end())
    return text[end + 1 :] if end >= 0 else ""


def own_part(text: str, job: JobView | None) -> str:
    """Return what the job's last run wrote, without the daemon's lines about other jobs.

    Nothing else in an appended log shows where a job begins, so that another job's lines may be
    left. All is left for an element of an array whose own number is not known."""
    own = _numbers(job)
    return _last_run(_without_others(text, own) if own else text)


def _numbers(job: JobView | None) -> frozenset[str]:
    """Return the numbers by which the daemon may name the job; none if they are not known."""
    # The parts of a heterogeneous job have numbers of their own.
    if (
        job is None
        or job.component
        or "+" in job.job_id
        or not (job.raw_id or job.job_id.isdecimal())
    ):
        return frozenset()
    return frozenset({job.job_id, job.raw_id} - {""})


def _without_others(text: str, own: frozenset[str]) -> str:
    lines = text.split("\n")
    found = [(at, match) for at, line in enumerate(lines) if (match := _NUMBERED.search(line))]
    others = {at for at, match in found if match["job"] not in own}
    # Of a job, or of its script: another job ends here.
    ends = [at for at, match in found if at in others and (match["what"] == "JOB" or match["step"])]
    over = [
        at
        for at, match in found
        if at not in others and match["what"] == "JOB" and not _AGAIN.search(lines[at])
    ]
    # Once this job was over, what another one's end follows is the other's.
    stop = next((at for at in ends if over and at > over[-1]), len(lines))
    start = max((at + 1 for at in ends if at < stop), default=0)
    return "\n".join(lines[at] for at in range(start, stop) if at not in others)


def _last_run(text: str) -> str:
    """Return the part of an appended log that is of the last run."""
    found = list(_AGAIN.finditer(text))
    if not found:
        return text
    end = text.find("\n", found[-1].end())
    rest = text[end + 1 :] if end >= 0 else ""
    return rest if rest.strip() else text
