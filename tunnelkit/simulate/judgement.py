"""The verdict on a run, in the form of `tk why`: its own two limits first, then its rules."""

from __future__ import annotations

from dataclasses import replace

from tunnelkit.diagnosis.ended.rules import judge_end
from tunnelkit.diagnosis.ended.words import KILL, clock, memory_option, span
from tunnelkit.diagnosis.evidence.end import EndView, LogView
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.sizes import size
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict
from tunnelkit.model import JobState
from tunnelkit.simulate.run import RunEnd
from tunnelkit.simulate.runners.base import Limits

#: A run of less than this, or less CPU time than that share of it, says nothing about a hang.
_SHORT_S, _IDLE_SHARE = 60.0, 0.01
_ROOM = 1.25


def judge_run(end: RunEnd, limits: Limits, source: str, now_s: float) -> Verdict:
    """Return what would have become of the job. limits: the job's, as they held here.

    source: what counted the memory."""
    if end.memory.kills or end.killed_by_tk:
        return _memory(end, limits, source)
    if end.at_time_limit:
        return _time(end, limits)
    if end.stopped:
        return _stopped(end, limits, source)
    found = _by_rules(end, now_s)
    return replace(found, because=(*found.because, *_peak(end, limits, source)))


def _memory(end: RunEnd, limits: Limits, source: str) -> Verdict:
    limit = limits.mem_bytes
    used = max(end.memory.used or 0, limit or 0)
    after = end.killed_s if end.killed_s is not None else end.seconds
    kills = end.memory.kills or 1
    text = f"{kills} process{'' if kills == 1 else 'es'} killed for memory"
    because = [Evidence(text, source)]
    if end.memory.peak:
        because.append(Evidence(f"peak {size(end.memory.peak)}", source))
    if end.killed_by_tk:
        approximate = "tk looks ten times a second and kills as the kernel would: an approximation"
        because.append(Evidence(approximate, "tk", "note"))
    then = (f"the script ended {_ending(end)}",)
    more = memory_option(max(used, end.memory.peak or 0) * _ROOM)
    # Of no limit of the run's own: the counts say so, or there is none.
    if limit is None or (end.memory.at_limit == 0 and not end.killed_by_tk):
        return Verdict(
            "oom-node",
            f"was killed for memory after {span(after)}, of which this computer has too little; "
            "the job's own limit was not reached",
            Certainty.LIKELY,
            tuple(because),
            then,
            next_steps=(NextStep("a smaller run here: fewer workers, a smaller batch"),),
        )
    return Verdict(
        "oom-limit",
        f"would have been killed for memory: it used {size(used)} after {span(after)}, "
        f"its limit is {size(limit)}",
        Certainty.LIKELY if end.killed_by_tk else Certainty.PROVEN,
        tuple(because),
        then,
        next_steps=(
            NextStep("with more memory", f"--mem={more}"),
            NextStep("find what holds the memory, or use fewer DataLoader workers"),
        ),
    )


def _time(end: RunEnd, limits: Limits) -> Verdict:
    limit = f" of {clock(limits.time_s)}" if limits.time_s else ""
    idle = end.cpu_s is not None and end.cpu_s < end.seconds * _IDLE_SHARE
    hangs = idle and end.seconds >= _SHORT_S and end.silent_s > end.seconds / 4
    because = [Evidence(f"it still ran after {clock(end.seconds)}", "tk")]
    if end.cpu_s is not None:
        because.append(Evidence(f"it used {end.cpu_s:.1f} s of CPU", "getrusage"))
    if hangs:
        text = f"nothing was written in the last {span(end.silent_s)}"
        because.append(Evidence(text, "its output"))
    next_step = NextStep("see where it stands: tk loop, or tk pdb") if hangs else NextStep("with more time", "--time")  # fmt: skip  # noqa: E501
    return Verdict(
        "timeout-hang" if hangs else "timeout-working",
        f"would have been ended at its time limit{limit}" + (", standing still" if hangs else ""),
        Certainty.LIKELY if hangs else Certainty.PROVEN,
        tuple(because),
        (f"the script ended {_ending(end)}",),
        next_steps=(next_step,),
    )


def _stopped(end: RunEnd, limits: Limits, source: str) -> Verdict:
    return Verdict(
        "ok",
        f"ran for {span(end.seconds)} without a fault, and was stopped there, as --for says",
        Certainty.PROVEN,
        _peak(end, limits, source),
    )


def _by_rules(end: RunEnd, now_s: float) -> Verdict:
    """Judge by the rules of `tk why`: exit code, signal and log are as a job's."""
    code = end.code if end.signal is None else 128 + end.signal
    bad = bool(code)
    job = JobView(
        job_id="0",
        state=JobState.ENDED,
        native_state="FAILED" if bad else "COMPLETED",
        reason="NonZeroExitCode" if bad else None,
        start_s=now_s - end.seconds,
        end_s=now_s,
        exit_code=code,
        signal=0,
    )
    log = LogView("the run's output", end.tail, len(end.tail), now_s - end.silent_s, own=True)
    return judge_end(job, EndView(logs=(log,)), now_s)[0]


def _peak(end: RunEnd, limits: Limits, source: str) -> tuple[Evidence, ...]:
    if not end.memory.peak:
        return ()
    of = f" of {size(limits.mem_bytes)}" if limits.mem_bytes else ""
    return (Evidence(f"it used at most {size(end.memory.peak)}{of} of memory", source, "memory"),)


def _ending(end: RunEnd) -> str:
    if end.signal is not None:
        return "by KILL" if end.signal == KILL else f"by signal {end.signal}"
    return f"with exit code {end.code}"
