"""The steps of an ended job that failed, by the accounting's rows and srun's lines in the log."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tunnelkit.diagnosis.ended.log.stepd import BY_SIGNAL, STEPD
from tunnelkit.diagnosis.ended.record.script_exit import OOM_CODE, SHELL_SIGNAL, other_code
from tunnelkit.diagnosis.ended.words import KILL, TERM, signal_name
from tunnelkit.diagnosis.evidence.end import StepView

#: The script itself, and Slurm's own; tk's agent and steps in a job that the user made.
NO_STEPS = frozenset({"batch", "extern"})
TK_STEPS = frozenset({"tk-agent", "tk-relay", "tk-step"})
#: A user may have attached these to the job, and their codes say nothing about its own programs.
SHELLS = frozenset({"bash", "sh", "zsh", "tcsh", "csh", "fish", "dash", "ksh", "interactive"})
#: Signals by which a script ends its own helpers; a helper has not failed then.
_HELPERS_END = frozenset({1, 2, 13, TERM})
#: The script or a user cancelled a step; another task that failed has its own line.
_STEP_CANCELLED = re.compile(
    rf"^{STEPD}\*\*\* STEP \d+\.(?P<step>\d+) ON \S+ CANCELLED AT \S+{BY_SIGNAL} \*\*\*"
)
_SRUN_ENDS = "srun: forcing job termination"
_HELPERS_CODES = frozenset(SHELL_SIGNAL + one for one in (*_HELPERS_END, KILL))
_STEP_ERROR = re.compile(
    r"^srun: error: (?P<node>\S+): tasks? (?P<rank>[\d,\[\]-]+): (?P<how>Exited with exit code "
    r"(?P<code>\d{1,9})|Out Of Memory|Segmentation fault|Killed|Aborted|Bus error|"
    r"Illegal instruction|Floating point exception)"
)


@dataclass(frozen=True, slots=True)
class FailedStep:
    """A step that failed. proven: by the accounting's row; else by srun's line in the log.

    code: the smaller one of two that sacct shows alike. on_record: False if only a line says so.
    """

    step: str
    code: int | None
    signal: int | None
    text: str
    proven: bool
    on_record: bool = True


def failed_steps(
    steps: tuple[StepView, ...], lines: tuple[str, ...], most: int | None
) -> tuple[FailedStep, ...]:
    """Return the steps that failed, but not those that were cancelled. most: the highest code."""
    cancelled = {match["step"] for line in lines if (match := _STEP_CANCELLED.match(line))}
    # Where a signal ended srun, stepd's line may be lost.
    said = _failed_lines(lines, bool(cancelled) or _SRUN_ENDS in lines)
    codes = {one.code for one in said} if any(map(str.strip, lines)) else None
    return (*_failed_rows(steps, cancelled, most, codes), *said)


def with_record(
    failed: tuple[FailedStep, ...], steps: tuple[StepView, ...], most: int | None
) -> tuple[FailedStep, ...]:
    """Compare the lines on failed steps in the log of a job that ended well with its record.

    Lines that it contradicts are another job's, or an earlier one's."""
    run = [one for one in steps if one.step not in NO_STEPS]
    clean = not most and all(
        one.state.startswith("COMPLETED") and not (one.exit_code or one.signal) for one in run
    )
    found = []
    for one in failed:
        if one.on_record:
            found.append(one)
        elif steps or (most is not None and one.code is not None):
            found += [] if (clean if steps else not most) else [replace(one, on_record=True)]
        else:
            found.append(one)
    return tuple(found)


def _failed_rows(
    steps: Iterable[StepView], cancelled: set[str], most: int | None, said: set[int | None] | None
) -> list[FailedStep]:
    found = []
    ended_s = next((one.end_s for one in steps if one.step == "batch"), None)
    for step in steps:
        signal, helper = step.signal or None, step.step in cancelled
        ends = _HELPERS_END | {KILL} if helper else _HELPERS_END
        code = step.exit_code
        alike = step.code_by_sacct and code is not None and not signal
        other = other_code(code or 0, step.state) if alike else None
        other = None if other is not None and most is not None and other > most else other
        if step.step in NO_STEPS or step.name in TK_STEPS or not (code or signal or other):
            continue
        shell = step.name in SHELLS
        # srun tells in the job's log, if there is one, of each step but one that was attached.
        if shell and said is not None and not ({code, other} - {None, 0} or {None}) & said:
            continue
        # By a uid: the script or a user cancelled it. Without one: a signal ended it.
        if step.state.startswith("CANCELLED by") or (not code and signal in ends):
            continue
        killed = signal == KILL and not code
        # Slurm kills the steps that are left when the script has ended.
        if killed and step.end_s is not None and step.end_s > (ended_s or step.end_s):
            continue
        how = signal_name(signal or 0)
        if code or other:
            how = f"exit code {code}" + (f" or {other}" if other else "")
        how = "out of memory" if signal == OOM_CODE else how
        text = f"step {step.step} ({step.name}) ended with {how}"
        found.append(FailedStep(step.step, code, signal, text, proven=not (killed or shell)))
    return found


def _failed_lines(lines: tuple[str, ...], cancelled: bool) -> list[FailedStep]:
    found = []
    for line in lines:
        match = _STEP_ERROR.match(line)
        code = int(match["code"]) if match and match["code"] else None
        ended = code in _HELPERS_CODES or (match is not None and match["how"] == "Killed")
        if match and not (cancelled and ended):
            text = f"task {match['rank']} on {match['node']}: {match['how']}"
            found.append(FailedStep("", code, None, text, proven=False, on_record=False))
    return found
