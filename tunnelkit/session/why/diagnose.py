"""One diagnosis: choose the job, ask for it in one command, judge what came.

Of the rules only those of the job's own stage are imported: a command without a session waits for
the others' imports in vain.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import replace

from tunnelkit.diagnosis.evidence.end import EndView
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.evidence.stacks import Held, StackView
from tunnelkit.diagnosis.evidence.window import NodeWindow
from tunnelkit.diagnosis.verdict import Diagnosis, Stage
from tunnelkit.errors import SchedulerError
from tunnelkit.model import JobState
from tunnelkit.scheduler.inspector import Inspection
from tunnelkit.session.job.log_paths import remember_job_logs
from tunnelkit.session.why.sources import WhySources, hint_for

#: Seconds for which a running job is sampled.
SAMPLE_S = 10


async def diagnose(
    sources: WhySources, job_id: str | None, *, sample_s: int = 0, log: str = ""
) -> Diagnosis:
    """Return what is the matter with a job; None: the user's newest.

    sample_s: for how long a running job is sampled; 0: not at all. log: the file on the login host
    that an ended job is judged by; "" for the one that the scheduler names, or that tk saw.
    Raises SchedulerError, ConnectionFailed, UsageError."""
    if job_id is None:
        job_id = await newest_job(sources)
    found = await _inspected(sources, job_id, log)
    if found.job is not None:
        remember_job_logs(sources.cluster, found.job, time.time())
    windows: tuple[NodeWindow, ...] = ()
    job = found.job
    if job is not None and job.state is JobState.RUNNING and sample_s > 0:
        from tunnelkit.session.why.running import MOST_S, sample

        seconds = min(sample_s, MOST_S)
        if not job.suspended:
            programs = await _begun(sources, job.step_id)
            windows, missing = await sample(sources.enter, job, seconds, sources.python, programs)
            found = replace(found, missing=found.missing + missing)
        stacks, missing = await _stacks(sources, job, windows)
        return judge(replace(found, missing=found.missing + missing), job_id, windows, stacks)
    return judge(found, job_id, windows)


async def _inspected(sources: WhySources, job_id: str, log: str) -> Inspection:
    first = sources.first
    if first is not None and first.job_id == job_id and first.done is not None:
        return sources.inspector.parse(first.done, job_id, first.mark)
    mark = f"tk-{secrets.token_hex(8)}"
    hint = hint_for(sources.cluster, job_id, log)
    done = await sources.run(sources.inspector.inspect(job_id, mark, sources.directory, hint))
    return sources.inspector.parse(done, job_id, mark)


async def _begun(sources: WhySources, job_id: str) -> dict[str, list[int]]:
    """Return the debuggees whose program has begun, by node: the probe can't tell them from those
    that stand by."""
    found: dict[str, list[int]] = {}
    for one in () if sources.debugged is None else await sources.debugged(job_id):
        if one.held is not Held.WAITING:
            found.setdefault(one.node, []).append(one.pid)
    return found


async def _stacks(
    sources: WhySources, job: JobView, windows: tuple[NodeWindow, ...]
) -> tuple[tuple[StackView, ...], tuple[str, ...]]:
    """Return where the processes of a job stand that do not run: from their debuggers, else from
    py-spy if all of the job stands; and why stacks are missing."""
    asked = () if sources.debugged is None else await sources.debugged(job.step_id)
    from tunnelkit.diagnosis.running.rules import to_ask
    from tunnelkit.session.why.stacks import py_spy_stacks

    known = {(one.node, one.pid) for one in asked}
    wanted = [one for one in to_ask(job, windows) if one not in known]
    if not wanted or sources.enter is None:
        return asked, ()
    found, missing = await py_spy_stacks(sources.enter, job.step_id, wanted, sources.python)
    return asked + found, missing


async def newest_job(sources: WhySources) -> str:
    """Return the id of the user's newest job. Raises SchedulerError."""
    first = sources.first
    done = first.done if first is not None and first.job_id is None else None
    if done is None:
        done = await sources.run(sources.inspector.newest())
    found = sources.inspector.parse_newest(done)
    if found is None:
        raise SchedulerError(
            f"you have no job on {sources.cluster}",
            hint="tk why JOB asks about one that ended longer ago",
        )
    return found


def judge(
    found: Inspection,
    job_id: str,
    windows: tuple[NodeWindow, ...] = (),
    stacks: tuple[StackView, ...] = (),
) -> Diagnosis:
    """Return the diagnosis of what was found. windows, stacks: of a running job's nodes."""
    now_s = found.asked_s
    if found.job is not None and found.cluster is not None:
        from tunnelkit.diagnosis.waiting.rules import judge_waiting

        stage, verdicts = Stage.WAITING, judge_waiting(found.job, found.cluster, now_s)
        missing = found.missing + found.cluster.missing
    elif found.job is not None and found.end is None:
        from tunnelkit.diagnosis.running.rules import judge_running

        stage, verdicts = (
            Stage.RUNNING,
            judge_running(found.job, windows, now_s, stacks, found.storage),
        )
        missing = found.missing + _silent_gpus(windows)
    else:
        from tunnelkit.diagnosis.black_box.record import choose_box
        from tunnelkit.diagnosis.ended.rules import judge_end

        end = found.end or EndView()
        box = choose_box(end.boxes, found.job.submit_s if found.job is not None else None)
        stage, verdicts = Stage.ENDED, judge_end(found.job, end, now_s, box)
        missing = found.missing + end.missing
    return Diagnosis(job_id, stage, verdicts, missing, now_s)


def _silent_gpus(windows: tuple[NodeWindow, ...]) -> tuple[str, ...]:
    return tuple(f"GPUs of {one.node}: {one.gpu_error}" for one in windows if one.gpu_error)
