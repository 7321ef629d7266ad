"""One ended job as the rules see it: records and log, read once."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tunnelkit.diagnosis.ended.log.marks import Hit, find_marks
from tunnelkit.diagnosis.ended.log.own_part import own_part, since_restart
from tunnelkit.diagnosis.ended.log.owner import is_own
from tunnelkit.diagnosis.ended.log.stepd import OF_STEPD
from tunnelkit.diagnosis.ended.log.traceback import Traceback, at_exit_lines, first_failure
from tunnelkit.diagnosis.ended.record.failed_steps import FailedStep, failed_steps, with_record
from tunnelkit.diagnosis.ended.record.script_exit import Exit, script_exit
from tunnelkit.diagnosis.ended.words import clock, span
from tunnelkit.diagnosis.evidence.box import BoxView
from tunnelkit.diagnosis.evidence.end import EndView, StepView
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.verdict import Evidence, NextStep

_MOST_LINES = 20_000
LATE_S = 60.0  # what a step did so long before the job's end may not be why it ended
_CLOCKS_S = 300.0  # clocks differ, and more is written while a job is ended
_SAME_S = 1.0  # times of files are whole seconds, and buffers are written at the end
# Lines at a log's end that the program has not written.
_NOT_THE_PROGRAM = re.compile(
    OF_STEPD + r"|slurmstepd\S*: |srun: |\s*$|\S+: line \d+: +\d+ |make: \*\*\*|Terminated$|Killed$"
)


@dataclass(frozen=True, slots=True)
class Case:
    """state: the scheduler's, in capitals, without what follows it. text: the log of the last
    run, without what is known to be another job's. hits: its marks, in order, but those of what
    was raised when the program had ended. failure: the exception of the rank that failed first."""

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

    def may_be_earlier(self) -> Evidence | None:
        """Return why the log's last words may be those of a job before this one."""
        job = self.job
        logs = [log for log in self.end.logs if log.text.strip()]
        log = next((one for one in logs if job is not None and not is_own(one, job)), None)
        if job is None or log is None:
            return None
        text = "it is not known when the file was made"
        if log.born_s is not None and job.start_s is not None:
            before = span(job.start_s - log.born_s)
            text = f"the file was made {before} before the job began"
        text = f"its log's last words may be an earlier job's: {text}"
        return Evidence(text, "stat", "seen")

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
        at = self.last_number()
        return self.lines[at].strip()[:200] if at is not None else ""

    def last_number(self) -> int | None:
        """Return the number of that line, from 0; None if there is none."""
        numbers = range(len(self.lines) - 1, -1, -1)
        return next((at for at in numbers if not _NOT_THE_PROGRAM.match(self.lines[at])), None)

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
    late = at_exit_lines(text)
    words = job.native_state.upper().split() if job is not None else []
    state = words[0].rstrip("+") if words else ""
    script = script_exit(job, box)
    most = job.derived_code if job is not None else None
    steps = failed_steps(end.steps, lines, most)
    if state == "COMPLETED" and not script.bad:
        steps = with_record(steps, end.steps, most)
    return Case(
        job=job,
        end=end,
        box=box,
        now_s=now_s,
        state=state,
        exit=script,
        text=text,
        lines=lines,
        hits=tuple(one for one in find_marks(lines) if one.line + 1 not in late),
        failure=first_failure(text),
        failed_steps=steps,
    )
