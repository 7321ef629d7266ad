"""The end of a job's script, by the scheduler's record or the black box."""

from __future__ import annotations

from dataclasses import dataclass

from tunnelkit.diagnosis.ended.words import KILL, SEGV, TERM, signal_name
from tunnelkit.diagnosis.evidence.box import BoxView
from tunnelkit.diagnosis.evidence.job import JobView

#: Slurm writes these into the second half of an exit code; they are no signals.
OOM_CODE, STDIO_CODE = 125, 53
#: PBS adds 256 to a signal's number, a shell 128.
_PBS_SIGNAL, SHELL_SIGNAL, _MOST_SIGNAL = 256, 128, 64
#: Of codes that sacct shows alike these are a shell's 128+N more often than a program's own.
_READ_AS_SIGNALS = frozenset({KILL, SEGV, TERM})


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of the job's script. code and signal: None if they are not known.

    by_shell: the signal is a shell's 128+N, which a program may also have given itself. other: the
    code may have been this one, as sacct shows both alike.
    """

    code: int | None = None
    signal: int | None = None
    by_shell: bool = False
    other: int | None = None

    @property
    def bad(self) -> bool:
        """True if it is known that it was no success."""
        return bool(self.code) or bool(self.signal) or bool(self.other)

    def __str__(self) -> str:
        if self.other is not None:
            signal = f" ({signal_name(self.signal)})" if self.signal else ""
            return f"with exit code {self.code} or {self.other}{signal}"
        if self.signal:
            shell = f" (exit code {self.code})" if self.by_shell else ""
            return f"by {signal_name(self.signal)}{shell}"
        return f"with exit code {self.code}" if self.code is not None else "in a way not on record"


def script_exit(job: JobView | None, box: BoxView | None) -> Exit:
    """Return how the job's script ended: by its record, or by the box where that tells more."""
    by_record, by_box = _exit_by_record(job), _exit_by_box(box) if box is not None else Exit()
    either = (by_record.code, by_record.other)
    if job is None or (by_record.other is not None and by_box.code in either):
        return by_box
    return by_record


def _exit_by_record(job: JobView | None) -> Exit:
    """Return how the job's script ended, by the rules of Slurm, PBS and shells."""
    if job is None:
        return Exit()
    code, signal = job.exit_code, job.signal or None
    if signal:
        return Exit(code, signal if signal not in (OOM_CODE, STDIO_CODE) else None)
    if code is None or code < 0:
        return Exit(code)
    other = other_code(code, job.native_state) if job.code_by_sacct else None
    if other is not None:
        named = code if code in _READ_AS_SIGNALS else None
        return Exit(code, named, by_shell=named is not None, other=other)
    if _PBS_SIGNAL < code <= _PBS_SIGNAL + _MOST_SIGNAL:
        return Exit(code, code - _PBS_SIGNAL)
    if SHELL_SIGNAL < code <= SHELL_SIGNAL + _MOST_SIGNAL:
        return Exit(code, code - SHELL_SIGNAL, by_shell=True)
    return Exit(code)


def other_code(code: int, state: str) -> int | None:
    """Return the code that sacct shows as this one, too; None if it can't have been."""
    possible = code < SHELL_SIGNAL and (code > 0 or state.startswith("FAILED"))
    return code + SHELL_SIGNAL if possible else None


def _exit_by_box(box: BoxView) -> Exit:
    """Return how the script ended, as the box saw it; unknown if it only held tk's agent."""
    code, first = box.agent_code, box.first_failure
    if box.holds_agent or code is None:
        return Exit()
    if SHELL_SIGNAL < code <= SHELL_SIGNAL + _MOST_SIGNAL:
        by_program = first is not None and first.signal is None
        return Exit(code, None if by_program else code - SHELL_SIGNAL, by_shell=True)
    return Exit(code)
