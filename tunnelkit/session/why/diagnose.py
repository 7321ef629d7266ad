"""One diagnosis: choose the job, ask for it in one command, judge what came."""

from __future__ import annotations

import secrets
import time

from tunnelkit.diagnosis.black_box.record import choose_box
from tunnelkit.diagnosis.ended.rules import judge_end
from tunnelkit.diagnosis.evidence.end import EndView
from tunnelkit.diagnosis.verdict import Certainty, Diagnosis, Stage, Verdict
from tunnelkit.diagnosis.waiting.rules import judge_waiting
from tunnelkit.errors import SchedulerError
from tunnelkit.scheduler.inspector import Inspection
from tunnelkit.session.job.log_paths import remember_job_logs
from tunnelkit.session.why.sources import WhySources


async def diagnose(sources: WhySources, job_id: str | None) -> Diagnosis:
    """Return what is the matter with a job; None: the user's newest.

    Raises SchedulerError, ConnectionFailed, UsageError."""
    if job_id is None:
        job_id = await newest_job(sources)
    mark = f"tk-{secrets.token_hex(8)}"
    done = await sources.run(sources.inspector.inspect(job_id, mark, sources.directory))
    found = sources.inspector.parse(done, job_id, mark)
    if found.job is not None:
        remember_job_logs(sources.cluster, found.job, time.time())
    return judge(found, job_id)


async def newest_job(sources: WhySources) -> str:
    """Return the id of the user's newest job. Raises SchedulerError."""
    found = sources.inspector.parse_newest(await sources.run(sources.inspector.newest()))
    if found is None:
        raise SchedulerError(
            f"you have no job on {sources.cluster}",
            hint="tk why JOB asks about one that ended longer ago",
        )
    return found


def judge(found: Inspection, job_id: str) -> Diagnosis:
    """Return the diagnosis of what was found."""
    now_s = found.asked_s
    if found.job is not None and found.cluster is not None:
        stage, verdicts = Stage.WAITING, judge_waiting(found.job, found.cluster, now_s)
        missing = found.missing + found.cluster.missing
    elif found.job is not None and found.end is None:
        verdict = Verdict("running", "runs", Certainty.UNKNOWN)
        stage, verdicts, missing = Stage.RUNNING, (verdict,), found.missing
    else:
        end = found.end or EndView()
        box = choose_box(end.boxes, found.job.submit_s if found.job is not None else None)
        stage, verdicts = Stage.ENDED, judge_end(found.job, end, now_s, box)
        missing = found.missing + end.missing
    return Diagnosis(job_id, stage, verdicts, missing, now_s)
