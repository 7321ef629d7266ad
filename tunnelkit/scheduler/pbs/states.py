"""PBS's and Torque's job states and comments, and their meaning in plain words.

Source: man qstat and the PBS Reference Guide, "Job States" and "Exit Status"; the scheduler's
comments as a real OpenPBS 23.06 printed them, and as its and Torque's manuals list them.
"""

from __future__ import annotations

import re

from tunnelkit.diagnosis.waiting.pbs_comments import read_comment
from tunnelkit.model import JobState
from tunnelkit.scheduler.base import PendingCause

P, R, E, U = JobState.PENDING, JobState.RUNNING, JobState.ENDED, JobState.UNKNOWN

#: job_state -> (JobState, plain words; None if the comment says more)
STATES: dict[str, tuple[JobState, str | None]] = {
    "Q": (P, None),
    "H": (P, None),
    "W": (P, "waiting for the time at which it may start"),
    "T": (P, "on its way to another queue or server"),
    "R": (R, None),
    "B": (R, "the job array has begun"),
    # Suspended jobs keep their nodes and processes: the debuggee is frozen.
    "S": (R, "the job is suspended: its processes stand still until it is resumed"),
    "U": (R, "the job stands still while its node's owner is at the keyboard"),
    # Its processes have ended or are ending; the reason is known only at F (or C).
    "E": (E, "the job is over, what it has left is being cleared away"),
    "F": (E, None),
    "X": (E, "the job ended by itself"),
    "C": (E, None),
    "M": (U, "the job was moved to another PBS server"),
}

#: Exit_status below 0 -> words. OpenPBS.
_PBS_KILLED = {
    -1: "the job could not be started",
    -2: "the job could not be started",
    -3: "the job could not be started",
    -4: "the node's PBS daemon was restarted",
    -5: "the node's PBS daemon was restarted",
    -6: "the node's PBS daemon was restarted",
    -7: "the job could not be restarted",
    -10: "the job could not be started: the node does not know the user",
    -11: "the job was put back into the queue",
    -12: "the job was checkpointed and ended",
    -13: "the job could not be started: a wrong password",
    -17: "a hook of the site refused the job",
    -19: "a hook of the site deleted the job",
    -20: "the job's first node was lost",
    -24: "the job used more CPUs than it had asked for",
    -25: "the job used more CPUs than it had asked for",
    -26: "the job used more virtual memory than it had asked for",
    -27: "the job used more memory than it had asked for",
    -28: "the job used up its CPU time",
    -29: "the job reached its time limit",
}
_TORQUE_KILLED = {
    **{code: words for code, words in _PBS_KILLED.items() if -7 <= code < 0},
    -8: "the job could not be started",
    -9: "the job's log could not be made",
    -10: "the job used more memory than it had asked for",
    -11: "the job reached its time limit",
    -12: "the job used up its CPU time",
    -13: "the job's cgroup could not be made",
}
#: A shell that was ended by a signal: PBS adds 256, shells 128.
_SIGNALS = {15: "by TERM: qdel, or its time limit", 9: "by KILL"}

#: A verdict's code -> the PendingCause; any other is WAIT.
_CAUSES = {
    "held-admin": PendingCause.HELD,
    "held-you": PendingCause.HELD,
    "launch-failed": PendingCause.HELD,
    "nodes-down": PendingCause.HELD,
    "partition-down": PendingCause.HELD,
    "budget": PendingCause.QUOTA,
    "limit-account": PendingCause.QUOTA,
    "limit-job": PendingCause.QUOTA,
    "limit-queue": PendingCause.QUOTA,
    "limit-user": PendingCause.QUOTA,
}
_HOLD = re.compile(r"Hold_Types = (\S+)(?:; (.*))?", re.DOTALL)
_DELETED = re.compile(r".* and terminated( by (?P<who>\S+))?", re.DOTALL)


def state_of(native: str) -> tuple[JobState, str | None]:
    """Return the JobState of a native state, and plain words; an unknown letter is UNKNOWN."""
    return STATES.get(native, (U, f"the scheduler calls its state {native!r}, unknown to tk"))


def hold_reason(hold_types: str, comment: str) -> str:
    """Return the reason of a held job, for `judge`."""
    return f"Hold_Types = {hold_types or 'u'}" + (f"; {comment}" if comment else "")


def judge(reason: str | None) -> tuple[PendingCause, str]:
    """Return the PendingCause of a reason (a comment, or `hold_reason`), and plain words.

    An unknown comment counts as WAIT, so that no job is cancelled for it.
    """
    text = " ".join((reason or "").split())
    if not text:
        return PendingCause.WAIT, "the scheduler has not looked at the job yet"
    if held := _HOLD.fullmatch(text):
        return PendingCause.HELD, _held(held[1], held[2])
    reading = read_comment(text)
    if reading is None:
        return PendingCause.WAIT, "the scheduler has not looked at the job yet"
    # A job is cancelled for FIX: only if PBS itself says that it can never run.
    cause = PendingCause.FIX if reading.never else _CAUSES.get(reading.code, PendingCause.WAIT)
    return cause, _pending(reading.sentence)


def _pending(sentence: str) -> str:
    """Return `waiting for ...` of a verdict's `waits for ...`."""
    for begin, words in (("waits", "waiting"), ("is ", "it is "), ("can ", "it can ")):
        if sentence.startswith(begin):
            return words + sentence.removeprefix(begin)
    return f"it {sentence}"


def _held(types: str, comment: str | None) -> str:
    why = f" ({comment})" if comment else ""
    if "s" in types:
        return f"an administrator or the system holds it back: ask them{why}"
    if "o" in types:
        return f"an operator holds it back: ask them{why}"
    if "p" in types:
        return f"it is held for a wrong password{why}"
    return f"it is held: qrls JOBID frees it{why}"


def deleted_by(comment: str) -> str | None:
    """Return plain words if a job's comment says that it was deleted, else None.

    The processes of such a job are being ended, though its state may be R for minutes more."""
    match = _DELETED.fullmatch(comment)
    if not match:
        return None
    return f"the job was deleted by {match['who']}" if match["who"] else "the job was deleted"


def ending(exit_status: str, comment: str, *, torque: bool = False) -> str:
    """Return in plain words how a job has ended. exit_status: the attribute's text or ""."""
    if words := deleted_by(comment):
        return words
    if not re.fullmatch(r"-?[0-9]{1,10}", exit_status):
        return "the job is over"
    code = int(exit_status)
    if code < 0:
        known = _TORQUE_KILLED if torque else _PBS_KILLED
        return known.get(code, f"the scheduler ended the job (Exit_status {code})")
    if code == 0:
        return "the job ended by itself"
    number = code - 256 if code > 256 else code - 128
    if number in _SIGNALS:
        return f"the job was ended {_SIGNALS[number]} (Exit_status {code})"
    return f"the job's script failed with exit code {code}"
