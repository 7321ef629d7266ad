"""The job after its script has failed: it stays until one of the reasons to let go holds.

Every wait has an end. An alarm ends this process, and so the job, if anything here hangs.
"""

import signal
import sys
import time
from typing import Dict, List, NamedTuple, Optional, Protocol

from tunnelkit.keeper.attached import anybody, now_ticks
from tunnelkit.keeper.kept_files import KeptFiles, Value
from tunnelkit.keeper.script_process import SIGNALS, End
from tunnelkit.keeper.slurm_job import JobRecord

#: Seconds between two looks: at requests, at processes, at the time limit.
_WISH_S, _PEOPLE_S, _LIMIT_S = 5.0, 15.0, 300.0
#: The alarm comes this long after the last moment of the keeping.
_ALARM_S = 60
#: Signals that end the keeping: the job is cancelled, or its time is over.
_LET_GO = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
#: Longest text of a comment that is taken over.
_COMMENT = 4000


class Job(Protocol):
    """The job as its scheduler has it. job_id: as its files are named. variable: holds full_id.

    group: the number of its array, or "". array: its element's name. cluster: its name, or ""."""

    variable: str
    full_id: str
    job_id: str
    group: str
    array: Optional[str]
    cluster: str
    name: str
    node: str

    def record(self) -> Optional[JobRecord]:
        """Ask the scheduler; None if it does not answer."""
        ...

    def set_comment(self, text: str) -> bool:
        """Set the job's comment; False if the scheduler does not take it."""
        ...

    def resources(self) -> Dict[str, int]:
        """Return the job's GPUs, CPUs and nodes."""
        ...


class Terms(NamedTuple):
    """keep_s: the longest time. idle_s: without anybody. margin_s: before the time limit."""

    keep_s: float
    idle_s: float
    margin_s: float


class Cause(NamedTuple):
    """story: what happened, as a sentence. after: the same in the job's comment."""

    story: str
    after: str


class Keeping:
    """One kept job. cause: why, for the log and the comment. facts: for `tk keep`."""

    def __init__(
        self, job: Job, files: KeptFiles, terms: Terms, cause: Cause, facts: Dict[str, Value]
    ) -> None:
        self._job = job
        self._files = files
        self._terms = terms
        self._cause = cause
        self._facts = facts
        self._begin = self._last_seen = time.time()
        self._until = self._begin + terms.keep_s
        self._looked = self._asked = time.monotonic()
        self._limit: Optional[float] = None
        #: The user's own; None while it is not known.
        self._comment: Optional[str] = None
        self._answered: object = None
        self._people = False
        self._since = now_ticks()
        #: The programs that stand at an exception.
        self._standing: List[Dict[str, Value]] = []

    def run(self) -> str:
        """Keep the job; return why it was let go."""
        reason = self.begin()
        if reason:
            return reason
        try:
            while True:
                reason = self.reason()
                if reason:
                    return reason
                info = signal.sigtimedwait(SIGNALS - {signal.SIGALRM}, self.pause_s())
                if info is not None and info.si_signo in _LET_GO:
                    return f"{signal.Signals(info.si_signo).name} came"
                reason = self.step()
                if reason:
                    return reason
        finally:
            self.finish()

    def begin(self) -> str:
        """Begin to keep the job; return why it can't be kept, else "".

        Then its place among the kept elements of its array is free again."""
        self._ask_scheduler()
        if self.last_moment() <= time.time():
            self._files.give_place_back()
            return "its time limit is too near to keep it"
        self._arm()
        self._show()
        say(f"{self._sentence()}; `tk keep` shows it")
        return ""

    def step(self) -> str:
        """Do what is asked and due; return why the job must go, else ""."""
        if self._obey(self._files.wish()):
            return "tk keep --release"
        now = time.monotonic()
        if now - self._looked >= min(_PEOPLE_S, self._terms.idle_s / 5):
            self._looked = now
            self._look_for_people()
        if now - self._asked >= _LIMIT_S:
            self._asked = now
            was_silent = self._comment is None
            self._ask_scheduler()
            self._arm()
            # Another time limit moves the end.
            self._show() if was_silent else self._write()
        return self.reason()

    def finish(self) -> None:
        """End the keeping."""
        signal.alarm(0)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        self._files.remove()
        if self._comment is not None:
            self._job.set_comment(self._comment)

    def taken(self) -> str:
        """Return what being kept took, in words."""
        spent_s = time.time() - self._begin
        return f"{minutes(spent_s)} ({cost(self._facts, spent_s)})"

    def stands(self, programs: List[Dict[str, Value]]) -> None:
        """Take note of the programs that stand at an exception."""
        if programs != self._standing:
            self._standing = programs
            self._write()

    def reason(self) -> str:
        """Return why the job is let go now; "" if it stays."""
        now = time.time()
        if self._limit is not None and now >= self._limit - self._terms.margin_s:
            return "its time limit is near"
        if now >= self._until:
            return "its time is over"
        if now - self._last_seen >= self._terms.idle_s:
            return f"nobody was attached for {minutes(self._terms.idle_s)}"
        return ""

    def pause_s(self) -> float:
        """Return the time until the next step."""
        left = self.last_moment() - time.time()
        usual = min(_WISH_S, self._terms.idle_s / 5, self._terms.keep_s / 5)
        return max(0.05, min(usual, left))

    def last_moment(self) -> float:
        """Return when the job is let go at the latest."""
        if self._limit is None:
            return self._until
        return min(self._until, self._limit - self._terms.margin_s)

    def _arm(self) -> None:
        """Set the alarm that ends this process if it hangs."""
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(max(1, int(self.last_moment() - time.time())) + _ALARM_S)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})

    def _ask_scheduler(self) -> None:
        record = self._job.record()
        if record is None:
            return
        self._limit = record.end_s
        if not record.comment.startswith("tk: kept"):
            self._comment = record.comment[:_COMMENT]
        elif self._comment is None:
            self._comment = ""

    def _look_for_people(self) -> None:
        people = anybody(self._job.full_id, self._since, self._job.variable)
        if people:
            self._last_seen = time.time()
        if people != self._people:
            self._people = people
            self._write()

    def _obey(self, wish: Dict[str, object]) -> bool:
        """Do what `tk keep` asks, once; return True if the job must go."""
        number = wish.get("number")
        if number is None or number == self._answered:
            return False
        self._answered = number
        if wish.get("release") is True:
            return True
        seconds = wish.get("for_s")
        if isinstance(seconds, (int, float)) and seconds > 0:
            self._ask_scheduler()
            self._last_seen = time.time()
            self._until = time.time() + seconds
            self._arm()
            self._show()
            say(f"the job is kept until {clock(self.last_moment())}")
        return False

    def _show(self) -> None:
        text = f"tk: kept {self._cause.after} until {clock(self.last_moment())}, tk keep"
        if self._comment is not None:  # else the user's own would be lost
            self._job.set_comment(text)
        self._write()

    def _write(self) -> None:
        answered = self._answered
        self._files.write(
            dict(
                self._facts,
                job=self._job.job_id,
                since_s=round(self._begin),
                until_s=round(self.last_moment()),
                limit_s=None if self._limit is None else round(self._limit),
                idle_s=round(self._terms.idle_s),
                attached=self._people,
                answered=answered if isinstance(answered, str) else None,
                standing=self._standing,
            )
        )

    def _sentence(self) -> str:
        left_s = self.last_moment() - self._begin
        until = f"until {clock(self.last_moment())}, for {minutes(left_s)} at most"
        taken = cost(self._facts, left_s)
        return f"{self._cause.story}; the job is kept {until} ({taken})"


def say(text: str) -> None:
    """Write a line into the job's log."""
    try:
        sys.stderr.write(f"tk: {text}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass


def how(end: End) -> str:
    """Return the script's end in words."""
    if end.signal:
        try:
            return signal.Signals(end.signal).name
        except ValueError:
            return f"signal {end.signal}"
    return f"exit code {end.code}"


def clock(at_s: float) -> str:
    """Return a time of day of this node."""
    return time.strftime("%H:%M", time.localtime(at_s))


def minutes(seconds: float) -> str:
    """Return a time in words."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def cost(facts: Dict[str, Value], seconds: float) -> str:
    """Return what stays taken in that time, in GPU-hours; CPU-hours if there is no GPU."""
    for name, unit in (("gpus", "GPU-hours"), ("cpus", "CPU-hours")):
        count = facts.get(name)
        if isinstance(count, int) and count:
            return f"{count * seconds / 3600:.2g} {unit}"
    return "its node stays taken"
