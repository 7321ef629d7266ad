"""Killed for memory: by counters, and by records."""

from __future__ import annotations

from tunnelkit.diagnosis.ended.case import LATE_S, Case, script_name
from tunnelkit.diagnosis.ended.log.marks import Hit
from tunnelkit.diagnosis.ended.record.failed_steps import SHELLS, TK_STEPS
from tunnelkit.diagnosis.ended.record.script_exit import OOM_CODE
from tunnelkit.diagnosis.ended.words import KILL, memory_option
from tunnelkit.diagnosis.evidence.box import BoxView, MemoryLevel, ProcessEnd
from tunnelkit.diagnosis.evidence.end import StepView
from tunnelkit.diagnosis.sizes import size
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict, failed_by

_PBS_MEMORY = (-27, -26)
#: States that say what ended the job: a kill for memory in it was not that.
_OTHERWISE = frozenset(
    {"TIMEOUT", "CANCELLED", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "REVOKED"}
)
#: A line so far above an exception is of something that the job outlived.
_MOST_AFTER = 20
_LEAK = NextStep("find what holds the memory, or use fewer DataLoader workers")


def counted_at_limit(case: Case) -> Verdict | None:
    """Rule 1: the kernel killed at a limit of the job."""
    box = case.box
    level = next((one for one in box.memory if one.oom), None) if box is not None else None
    if box is None or level is None or not _kills(box):
        return None
    limit = f" of {size(level.limit_bytes)}" if level.limit_bytes else ""
    where = "job" if level.level == "above" else level.level
    because = (
        Evidence(f"oom_kill {_kills(box)} at the {where}'s limit{limit}", f"cgroup on {box.node}"),
        *_last_sample(box),
        case.record(),
    )
    return failed_by(
        "oom-limit",
        f"the kernel killed {victim_words(box)} for memory, at the {where}'s limit{limit}",
        _certainty(case, box),
        because,
        next_steps=_more(case, level.limit_bytes or case.memory_limit),
    )


def counted_on_node(case: Case) -> Verdict | None:
    """Rule 2: the node ran out of memory, and no limit of the job was reached."""
    box = case.box
    if box is None or not _kills(box):
        return None
    # "Not counted" is not zero.
    if not box.memory or any(one.oom is None for one in box.memory):
        return None
    because = (
        Evidence(f"oom_kill {_kills(box)}, oom 0 at all its levels", f"cgroup on {box.node}"),
        *_last_sample(box),
        case.record(),
    )
    return failed_by(
        "oom-node",
        f"{box.node} ran out of memory, and the kernel killed {victim_words(box)}; "
        "the job's own limit was not reached",
        _certainty(case, box),
        because,
        next_steps=(
            NextStep("ask for memory (--mem), so that the scheduler reserves it"),
            NextStep(f"another node than {box.node}; its administrator may want to know"),
        ),
    )


def recorded(case: Case) -> Verdict | None:
    """Rule 3: no counters, but the scheduler has recorded it."""
    found = _records(case)
    if not found:
        return None
    limit = case.memory_limit
    proven = any(sure for _, sure in found)
    return failed_by(
        "oom-limit",
        _by_slurm(case) or _by_kernel(limit),
        Certainty.PROVEN if proven else Certainty.LIKELY,
        tuple(one for one, _ in found),
        next_steps=_more(case, limit),
    )


def _by_kernel(limit: int | None) -> str:
    asked = f"; it asked for {size(limit)} on a node" if limit else ""
    return f"the kernel killed a process of it for memory{asked}"


def _by_slurm(case: Case) -> str:
    """Return in words that Slurm's own measuring killed it; "" if it did not."""
    hit = case.hit("oom-limit")
    if hit is None or not hit.group("used").isdecimal() or "StepId=" not in hit.text:
        return ""
    used, limit = int(hit.group("used")), int(hit.group("limit"))
    return f"Slurm killed it for memory: it used {size(used)}, and its limit is {size(limit)}"


def _records(case: Case) -> list[tuple[Evidence, bool]]:
    found: list[tuple[Evidence, bool]] = []
    job, otherwise = case.job, case.state in _OTHERWISE
    by_code = job is not None and job.signal == OOM_CODE and not otherwise
    beside = _beside_it(case)
    said = job is not None and (case.state == "OUT_OF_MEMORY" or by_code)
    if said and not (beside and _raised_last(case)):
        found.append((case.record(), not beside))
    if job is not None and job.exit_code in _PBS_MEMORY and not case.state.isupper():
        found.append((case.record(), True))
    whole = (case.end.job,) if case.end.job and not beside else ()
    for step in (*whole, *(one for one in case.end.steps if _is_own_step(one))):
        if not _out_of_memory(step) or otherwise or case.followed(step):
            continue
        # Of a step of the script's own the log says so, too.
        shell = step.name in SHELLS and case.hit("oom-limit") is None
        if shell and case.state == "COMPLETED":
            continue
        # The script went on; what it failed of later may be something else.
        late = step.step not in ("", "batch") and case.went_on_s(step) > LATE_S
        if not (late and case.state == "FAILED" and _raised_last(case)):
            name = f"step {step.step} ({step.name})" if step.step else "the job"
            seen = Evidence(f"{name}: {step.state}", "sacct", time_s=step.end_s)
            found.append((seen, not late and not shell))
    if job is not None and job.exit_code in _PBS_MEMORY and not found:
        found.append((case.record(), True))
    of_memory = (one for one in case.hits if one.mark.code == "oom-limit")
    hit = next((one for one in of_memory if _of_end(case, one)), None)
    if hit is not None and case.failed:
        found.append((Evidence(hit.text[:200], "log"), False))
    return found


def _out_of_memory(step: StepView) -> bool:
    return step.state.startswith("OUT_OF_MEMORY") or step.signal == OOM_CODE


def _is_own_step(step: StepView) -> bool:
    """Return False for what is not the program's: shells by ssh (extern), and steps of tk's."""
    return step.step != "extern" and step.name not in TK_STEPS


def _beside_it(case: Case) -> bool:
    """Return True if nothing of the program is on record as out of memory, but another step is."""
    over = [one for one in case.end.steps if _out_of_memory(one)]
    return bool(over) and not any(_is_own_step(one) for one in over)


def _raised_last(case: Case) -> bool:
    failure = case.failure
    return failure is not None and not case.lines_after(failure.last_line - 1)


def _of_end(case: Case, hit: Hit) -> bool:
    """Return True if a line on a kill for memory may be about the end of the job."""
    # Where Slurm itself measured and killed, the job may count as cancelled.
    if case.state in _OTHERWISE:
        return case.state == "CANCELLED" and hit.group("used").isdecimal()
    over = [one.step for one in case.end.steps if _out_of_memory(one) and case.followed(one)]
    step = hit.group("step").partition(".")[2].rstrip(".")
    beside = {one.step for one in case.end.steps if not _is_own_step(one)}
    if step in beside | {"extern"}:
        return False
    if over and (step in over or not step):
        return False
    later = case.failure is not None and case.failure.last_line > hit.line
    return not (later and case.lines_after(hit.line) > _MOST_AFTER)


def _more(case: Case, limit: int | None) -> tuple[NextStep, ...]:
    if not limit:
        return (NextStep("with more memory: --mem"), _LEAK)
    asked, script = memory_option(limit * 1.25), script_name(case)
    command = f"sbatch --mem={asked} {script}" if script else f"tk up --mem {asked}"
    return (NextStep("with more memory", command), _LEAK)


def _certainty(case: Case, box: BoxView) -> Certainty:
    """Return at most likely for a kill that the job outlived: the script may have tried again."""
    until_s = box.ended_s or (case.job.end_s if case.job is not None else None)
    outlived = box.killed_s is not None and until_s is not None and until_s - box.killed_s > LATE_S
    return Certainty.LIKELY if outlived else Certainty.PROVEN


def _kills(box: BoxView) -> int:
    """Return how many processes were killed: v2 counts upwards, so the levels do not add up."""
    return max((one.oom_kill or 0 for one in box.memory), default=0)


def victim_words(box: BoxView) -> str:
    """Return which process the kernel killed, and where."""
    victim = _killed(box)
    if victim is None:
        return f"a process on {box.node}"
    rank = f" (rank {victim.rank} on {box.node})" if victim.rank is not None else f" on {box.node}"
    likely = "most likely " if victim.signal != KILL else ""
    return f"{likely}{victim.name or f'process {victim.pid}'}{rank}"


def _killed(box: BoxView) -> ProcessEnd | None:
    """Return the last victim; of a box that names none, the first that KILL ended."""
    if box.victims:
        return box.victims[-1]
    first = box.first_failure
    return first if first is not None and first.signal == KILL else None


def _last_sample(box: BoxView) -> tuple[Evidence, ...]:
    victim = _killed(box)
    if victim is not None and victim.rss_bytes:
        rank = f"rank {victim.rank}" if victim.rank is not None else victim.name or "it"
        text = f"{rank} had {size(victim.rss_bytes)} at its last sample"
        return (Evidence(text, "black box"),)
    peak = max((one.peak_bytes or 0 for one in box.memory if _own(one)), default=0)
    return (Evidence(f"peak {size(peak)}", "black box"),) if peak else ()


def _own(level: MemoryLevel) -> bool:
    return level.level != "above"
