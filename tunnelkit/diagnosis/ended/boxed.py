"""Verdicts by the black box alone, and the part of it that belongs to the job's end."""

from __future__ import annotations

from dataclasses import replace

from tunnelkit.diagnosis.ended.case import Case
from tunnelkit.diagnosis.ended.memory import victim_words
from tunnelkit.diagnosis.ended.words import KILL, TERM, clock, ended_by, signal_name
from tunnelkit.diagnosis.evidence.box import BoxView, ProcessEnd, SignalSeen
from tunnelkit.diagnosis.sizes import size
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict, failed_by

_SOURCE = "black box"
#: A job that went on for longer after a kill was not ended by it.
_CLOSE_S = 90.0
#: TERM comes before the end by the scheduler's time for it (KillWait, 30 s) or so.
_TERM_S = 300.0
_SHELL_SIGNAL, _MOST_SIGNAL = 128, 64
#: The exit code of an exception that nothing caught.
_UNCAUGHT = 1
#: Without a record ("") the box alone says how the script ended.
_ENDED_WELL = frozenset({"", "COMPLETED", "F", "X", "C"})


def at_the_end(case: Case) -> Case:
    """Return the case without kills for memory that the job outlived.

    A job that holds tk's agent goes on after the end of a program in it, and a script may go on
    after the end of a helper."""
    box = case.box
    if box is None or not _outlived(case, box):
        return case
    memory = tuple(replace(one, oom=0, oom_kill=0) for one in box.memory)
    return replace(case, box=replace(box, memory=memory, victims=(), killed_s=None))


def earlier(case: Case) -> tuple[Evidence, ...]:
    """Return what happened to programs in the job before its end: the last of each kind."""
    box = case.box
    if box is None:
        return ()
    found = []
    own = box.victims or any(one.oom_kill for one in box.memory if one.level != "above")
    if own and _outlived(case, box):
        text = f"the kernel killed {victim_words(box)} for memory; the job went on"
        found.append(Evidence(text, _SOURCE, "earlier", box.killed_s))
    failed = [one for one in box.program_ends if one.code or one.signal not in (None, TERM)]
    victims = {one.pid for one in box.victims}
    last = next((one for one in reversed(failed) if one.pid not in victims), None)
    if last is not None:
        found.append(Evidence(_how(last), _SOURCE, "earlier", last.ended_s))
    return tuple(found)


def likely_memory(case: Case) -> Verdict | None:
    """Killed for memory, where the counters leave room for doubt: a group that others share, or
    version 1 on a node that had little memory left."""
    box = case.box
    if box is None or box.killed_s is None or not box.victims:
        return None
    own = [one for one in box.memory if one.level != "above"]
    met = next((one for one in own if one.refused and one.limit_bytes), None)
    kills = max((one.oom_kill or 0 for one in own or box.memory), default=0)
    if not kills or (not own and not _is_certain(box)):
        return None
    where = "the job's cgroup" if own else "a cgroup that the job shares with others"
    text, source = f"oom_kill rose by {kills} in {where}", f"cgroup on {box.node}"
    because = [Evidence(text, source, time_s=box.killed_s)]
    if met is not None and met.limit_bytes:
        text = f"the limit of {size(met.limit_bytes)} was met; whether it was full is not known"
        because.append(Evidence(text, source))
    code = "oom-limit" if met is not None else "oom-node"
    return failed_by(
        code,
        f"the kernel killed {victim_words(box)} for memory",
        Certainty.LIKELY,
        (*because, case.record()),
        next_steps=(NextStep("with more memory", "tk up --mem ..."),),
    )


def box_alone(case: Case) -> Verdict | None:
    """The scheduler has forgotten the job: what the box saw of its end."""
    box = case.box
    if box is None or case.job is not None:
        return None
    return _asked_to_end(box) or _agent_ended(box) or _stops(box)


def _asked_to_end(box: BoxView) -> Verdict | None:
    """Ended by TERM: the scheduler's, or a user's."""
    until = box.ended_s or box.written_s
    seen = [one for one in box.signals if one.signal == TERM]
    near = [one for one in seen if until is not None and until - one.time_s <= _TERM_S]
    if not near:
        return None
    first = near[0]
    because = [Evidence(_sent(first), "siginfo", time_s=first.time_s), *_code(box)]
    sentence = ended_by(first, box.uid)
    certainty = Certainty.UNKNOWN if first.sender_uid is None else Certainty.PROVEN
    return Verdict("terminated", sentence, certainty, tuple(because), excluded=_excluded(box))


def _agent_ended(box: BoxView) -> Verdict | None:
    """The script ended, and nobody had asked it to."""
    if box.agent_code is None:
        return None
    because = tuple(_code(box))
    if box.agent_code == 0:
        return Verdict("ok", "ended well", Certainty.PROVEN, because)
    what = "tk's agent" if box.holds_agent else "the script's program"
    signal = _signal_of(box)
    if signal == KILL:
        sentence = f"ended because {what} was killed (KILL); who sent that is not on record"
        code = "killed-unknown"
    else:
        how = f"by {signal_name(signal)}" if signal else f"with exit code {box.agent_code}"
        sentence, code = f"ended because {what} ended {how}", "exit-unknown"
    return Verdict(code, sentence, Certainty.UNKNOWN, (*because, *_log(box)), (), _excluded(box))


def _stops(box: BoxView) -> Verdict:
    """The record stops without an end."""
    because = (Evidence("its record stops, and has no end", _SOURCE, time_s=box.written_s),)
    return Verdict(
        "killed-unknown",
        "ended at once: its node failed, or all its processes were killed",
        Certainty.UNKNOWN,
        (*because, *_log(box)),
        excluded=_excluded(box),
    )


def _outlived(case: Case, box: BoxView) -> bool:
    if box.killed_s is None and not any(one.oom_kill for one in box.memory):
        return False
    if case.state in _ENDED_WELL and case.exit.code == 0:
        return True
    until = box.ended_s or box.written_s or (case.job.end_s if case.job is not None else None)
    if box.killed_s is None or until is None or until - box.killed_s <= _CLOSE_S:
        return False
    return box.holds_agent or _raised_at_end(case)


def _raised_at_end(case: Case) -> bool:
    """Return True if an exception ended the job, and none that another process's end raises."""
    failure = case.failure
    if failure is None or case.exit.code != _UNCAUGHT or case.doubt() is not None:
        return False
    if case.lines_after(failure.last_line - 1):
        return False
    lines = range(failure.first_line - 1, failure.last_line)
    return not any(
        one.line in lines and (one.mark.victim or one.mark.code == "worker-killed")
        for one in case.hits
    )


def _is_certain(box: BoxView) -> bool:
    return any(one.signal == KILL for one in box.victims)


def _signal_of(box: BoxView) -> int | None:
    """Return the signal that ended the agent: by its wait status, else by the shell's 128+N."""
    first = box.first_failure
    if first is not None:
        return first.signal
    code = box.agent_code or 0
    return code - _SHELL_SIGNAL if 0 < code - _SHELL_SIGNAL <= _MOST_SIGNAL else None


def _code(box: BoxView) -> list[Evidence]:
    found = []
    if box.first_failure is not None:
        found.append(Evidence(_how(box.first_failure), _SOURCE, time_s=box.first_failure.ended_s))
    if box.agent_code is not None:
        after = box.ended_s - box.started_s if box.ended_s and box.started_s else None
        ran = f", after {clock(after)}" if after is not None else ""
        text = f"the job's script ended with exit code {box.agent_code}{ran}"
        found.append(Evidence(text, _SOURCE, time_s=box.ended_s))
    return found


def _log(box: BoxView) -> list[Evidence]:
    lines = [line.strip() for line in box.log_text.splitlines() if line.strip()]
    return [Evidence(f"its log's last line: {lines[-1][:200]}", _SOURCE, "seen")] if lines else []


def _excluded(box: BoxView) -> tuple[str, ...]:
    counted = [one.oom_kill for one in box.memory if one.oom_kill is not None]
    return ("memory (no kill was counted)",) if counted and not any(counted) else ()


def _how(one: ProcessEnd) -> str:
    rank = f"rank {one.rank}, " if one.rank is not None else ""
    how = f"by {signal_name(one.signal)}" if one.signal else f"with exit code {one.code}"
    return f"{one.name or 'a process'} ({rank}pid {one.pid}) ended {how}"


def _sent(one: SignalSeen) -> str:
    if one.sender_uid is None:
        return f"{signal_name(one.signal)} from the kernel, or from outside the container"
    name = f" {one.sender_name}" if one.sender_name else ""
    return f"{signal_name(one.signal)} from uid {one.sender_uid}, pid {one.sender_pid}{name}"
