"""One ended job as the rules see it: records and log, read once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tunnelkit.diagnosis.ended.log.marks import Hit, find_marks
from tunnelkit.diagnosis.ended.log.own_part import own_part, since_restart
from tunnelkit.diagnosis.ended.log.stepd import BY_SIGNAL, OF_STEPD, STEPD
from tunnelkit.diagnosis.ended.log.traceback import Traceback, first_failure
from tunnelkit.diagnosis.ended.words import KILL, SEGV, TERM, clock, signal_name, span
from tunnelkit.diagnosis.evidence.box import BoxView
from tunnelkit.diagnosis.evidence.end import EndView, StepView
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.verdict import Evidence, NextStep

#: Slurm writes these into the second half of an exit code; they are no signals.
OOM_CODE, STDIO_CODE = 125, 53
_MOST_LINES = 20_000
LATE_S = 60.0  # what a step did so long before the job's end may not be why it ended
_CLOCKS_S = 300.0  # clocks differ, and more is written while a job is ended
_SAME_S = 1.0  # times of files are whole seconds, and buffers are written at the end
#: PBS adds 256 to a signal's number, a shell 128.
_PBS_SIGNAL, _SHELL_SIGNAL, _MOST_SIGNAL = 256, 128, 64
#: Of codes that sacct shows alike these are a shell's 128+N more often than a program's own.
_READ_AS_SIGNALS = frozenset({KILL, SEGV, TERM})
# Lines at a log's end that the program has not written.
_NOT_THE_PROGRAM = re.compile(
    OF_STEPD + r"|slurmstepd\S*: |srun: |\s*$|\S+: line \d+: +\d+ |make: \*\*\*|Terminated$|Killed$"
)
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
_HELPERS_CODES = frozenset(_SHELL_SIGNAL + one for one in (*_HELPERS_END, KILL))
_STEP_ERROR = re.compile(
    r"^srun: error: (?P<node>\S+): tasks? (?P<rank>[\d,\[\]-]+): (?P<how>Exited with exit code "
    r"(?P<code>\d{1,9})|Out Of Memory|Segmentation fault|Killed|Aborted|Bus error|"
    r"Illegal instruction|Floating point exception)"
)


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


@dataclass(frozen=True, slots=True)
class Case:
    """state: the scheduler's, in capitals, without what follows it. text: the log of the last
    run, without what is known to be another job's. hits: its marks, in order. failure: the
    exception of the rank that failed first."""

    job: JobView | None
    end: EndView
    box: BoxView | None
    now_s: float
    state: str
    exit: Exit
    text: str
    lines: tuple[str, ...]
    hits: tuple[Hit, ...]
    failure: Traceback | None
    failed_steps: tuple[FailedStep, ...]

    @property
    def log_alone(self) -> bool:
        """True if nothing but a log is left of the job."""
        return self.job is None and self.box is None and bool(self.text.strip())

    @property
    def failed(self) -> bool:
        """True if the job, or a step of it, is known to have failed; a log alone is read as if.

        Lines of a log alone make no failure of a job that ended well."""
        if self.log_alone:
            return True
        bad = self.state not in ("", "COMPLETED", "F", "X", "C", "E", "COMPLETING")
        steps = [one for one in self.failed_steps if one.on_record or self.state != "COMPLETED"]
        return bad or self.exit.bad or bool(steps)

    @property
    def hidden(self) -> bool:
        """True if a step failed, and the script ended well nevertheless."""
        return bool(self.failed_steps) and not self.exit.bad and self.exit.code == 0

    @property
    def ran_s(self) -> float | None:
        """Seconds from start to end; None if they are not on record."""
        if self.job is None or self.job.start_s is None or self.job.end_s is None:
            return None
        return max(0.0, self.job.end_s - self.job.start_s)

    @property
    def memory_limit(self) -> int | None:
        """The memory that the job asked for on a node."""
        return self.job.need.mem_bytes if self.job is not None else None

    def hit(self, *codes: str) -> Hit | None:
        """Return the first mark of these codes."""
        return next((one for one in self.hits if one.mark.code in codes), None)

    def record(self) -> Evidence:
        """Return the scheduler's record of the end, as evidence."""
        job = self.job
        if job is None:
            return self._box_record() or Evidence("no record", "the scheduler")
        words = [job.native_state]
        if self.exit.other is not None:
            words.append(f"exit code {self.exit.code} or {self.exit.other}")
        elif job.exit_code is not None:
            words.append(f"exit code {job.exit_code}:{job.signal or 0}")
        if job.reason and job.reason != "None":
            words.append(f"reason {job.reason}")
        if self.ran_s is not None:
            words.append(f"after {clock(self.ran_s)}")
        return Evidence(", ".join(words), "the scheduler's record", time_s=job.end_s)

    def _box_record(self) -> Evidence | None:
        box = self.box
        if box is None or not self.exit.bad:
            return None
        text = f"the scheduler has no record; the job's script ended {self.exit}"
        return Evidence(text, "black box", time_s=box.ended_s)

    def doubt(self) -> Evidence | None:
        """Return why the log may be another job's: it was not written during this one."""
        job = self.job
        times = [log.written_s for log in self.end.logs if log.text and log.written_s is not None]
        if job is None or not times:
            return None
        first_s, last_s = min(times), max(times)
        if job.end_s is not None and last_s > job.end_s + _CLOCKS_S:
            text = f"it was written {span(last_s - job.end_s)} after the job's end"
        elif job.start_s is not None and first_s < job.start_s - _CLOCKS_S:
            text = f"it was last written {span(job.start_s - first_s)} before the job began"
        else:
            return None
        return Evidence(f"its log may be another job's: {text}", "stat", "seen")

    def followed(self, step: StepView) -> bool:
        """Return True if the script did not end by this step: it began another one after it."""
        if not step.step.isdecimal():
            return False
        for one in self.end.steps:
            if not one.step.isdecimal() or int(one.step) <= int(step.step):
                continue
            if one.start_s is None or step.end_s is None or one.start_s >= step.end_s:
                return True
        return False

    def went_on_s(self, step: StepView) -> float:
        """Return for how long the job went on after a step; 0 if that is not on record."""
        end_s = self.job.end_s if self.job is not None else None
        return 0.0 if end_s is None or step.end_s is None else end_s - step.end_s

    def last_line(self) -> str:
        """Return the last line of the log that the program wrote; "" if there is none."""
        own = (line.strip() for line in reversed(self.lines) if not _NOT_THE_PROGRAM.match(line))
        return next(own, "")[:200]

    def lines_after(self, number: int) -> int:
        """Return how many lines it wrote after this (from 0), but tracebacks behind the failure."""
        aside = self.failure.aside if self.failure is not None else frozenset()
        after = enumerate(self.lines[number + 1 :], number + 2)
        return sum(1 for at, one in after if at not in aside and not _NOT_THE_PROGRAM.match(one))

    def ends_with(self, number: int) -> bool:
        """Return True if the program wrote nothing after this line (from 0), to either log.

        Which of two logs was written last is known by their times alone."""
        if self.lines_after(number):
            return False
        logs = [one for one in self.end.logs if _is_of_program(one.text)]
        own = [one for one in logs if self.lines[number] in one.text]
        if len(logs) <= 1 or len(own) != 1:
            return len(logs) <= 1
        after = own[0].text.rpartition(self.lines[number])[2]
        times = [one.written_s for one in logs if one is not own[0]]
        last_s = own[0].written_s
        if after.strip() or last_s is None:
            return False
        return all(one is not None and one + _SAME_S < last_s for one in times)


def _is_of_program(text: str) -> bool:
    return any(not _NOT_THE_PROGRAM.match(line) for line in text.splitlines())


def black_box(case: Case) -> NextStep:
    """Return how to have the next end on record: keep the job if it fails."""
    command = f"tk submit --keep-on-failure {script_name(case) or 'SCRIPT'}"
    return NextStep("have the next run kept if it fails", command)


def script_name(case: Case) -> str:
    """Return the file name of the job's own script; "" if it has none, or a name to be quoted."""
    script = case.job.command if case.job is not None else ""
    plain = re.fullmatch(r"[A-Za-z0-9_./+@-]{1,200}", script) is not None
    return script.rpartition("/")[2] if plain else ""


def make_case(job: JobView | None, end: EndView, now_s: float, box: BoxView | None) -> Case:
    """Read the evidence once."""
    parts = [since_restart(log.text, job) for log in end.logs if log.text]
    text = own_part("\n".join(part for part in parts if part), job)
    lines = tuple(re.split(r"\r\n|[\n\r]", text)[-_MOST_LINES:])
    text = "\n".join(lines)
    words = job.native_state.upper().split() if job is not None else []
    state = words[0].rstrip("+") if words else ""
    script = _exit(job, box)
    most = job.derived_code if job is not None else None
    steps = _failed_steps(end.steps, lines, most)
    if state == "COMPLETED" and not script.bad:
        steps = _with_record(steps, end.steps, most)
    return Case(
        job=job,
        end=end,
        box=box,
        now_s=now_s,
        state=state,
        exit=script,
        text=text,
        lines=lines,
        hits=find_marks(lines),
        failure=first_failure(text),
        failed_steps=steps,
    )


def _exit(job: JobView | None, box: BoxView | None) -> Exit:
    """Return how the job's script ended: by its record, or by the box where that tells more."""
    by_record, by_box = exit_of(job), _exit_by_box(box) if box is not None else Exit()
    either = (by_record.code, by_record.other)
    if job is None or (by_record.other is not None and by_box.code in either):
        return by_box
    return by_record


def exit_of(job: JobView | None) -> Exit:
    """Return how the job's script ended, by the rules of Slurm, PBS and shells."""
    if job is None:
        return Exit()
    code, signal = job.exit_code, job.signal or None
    if signal:
        return Exit(code, signal if signal not in (OOM_CODE, STDIO_CODE) else None)
    if code is None or code < 0:
        return Exit(code)
    other = _other_code(code, job.native_state) if job.code_by_sacct else None
    if other is not None:
        named = code if code in _READ_AS_SIGNALS else None
        return Exit(code, named, by_shell=named is not None, other=other)
    if _PBS_SIGNAL < code <= _PBS_SIGNAL + _MOST_SIGNAL:
        return Exit(code, code - _PBS_SIGNAL)
    if _SHELL_SIGNAL < code <= _SHELL_SIGNAL + _MOST_SIGNAL:
        return Exit(code, code - _SHELL_SIGNAL, by_shell=True)
    return Exit(code)


def _other_code(code: int, state: str) -> int | None:
    """Return the code that sacct shows as this one, too; None if it can't have been."""
    possible = code < _SHELL_SIGNAL and (code > 0 or state.startswith("FAILED"))
    return code + _SHELL_SIGNAL if possible else None


def _exit_by_box(box: BoxView) -> Exit:
    """Return how the script ended, as the box saw it; unknown if it only held tk's agent."""
    code, first = box.agent_code, box.first_failure
    if box.holds_agent or code is None:
        return Exit()
    if _SHELL_SIGNAL < code <= _SHELL_SIGNAL + _MOST_SIGNAL:
        by_program = first is not None and first.signal is None
        return Exit(code, None if by_program else code - _SHELL_SIGNAL, by_shell=True)
    return Exit(code)


def _failed_steps(
    steps: tuple[StepView, ...], lines: tuple[str, ...], most: int | None
) -> tuple[FailedStep, ...]:
    """Return the steps that failed, but not those that were cancelled. most: the highest code."""
    cancelled = {match["step"] for line in lines if (match := _STEP_CANCELLED.match(line))}
    # Where a signal ended srun, stepd's line may be lost.
    said = _failed_lines(lines, bool(cancelled) or _SRUN_ENDS in lines)
    codes = {one.code for one in said} if any(map(str.strip, lines)) else None
    return (*_failed_rows(steps, cancelled, most, codes), *said)


def _with_record(
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
        other = _other_code(code or 0, step.state) if alike else None
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
