"""Error messages of qsub, qstat and qdel, with hints."""

from __future__ import annotations

import re
from itertools import dropwhile

from tunnelkit.model import Completed
from tunnelkit.scheduler.command_error import CommandErrors

#: pattern of the message -> hint; the first that matches counts
_HINTS: tuple[tuple[str, str], ...] = (
    ("unknown queue", "`qstat -Q` on the login host lists the queues"),
    ("queue is not (enabled|started)", "that queue is closed at the moment: `qstat -Q` on the "
     "login host lists the others"),
    ("could not connect to mom", "its node does not answer; to end the job without it, on the "
     "login host: qdel -W force JOBID"),
    ("unknown resource", "this PBS does not count that resource; `pbsnodes -a` on the login host "
     "shows what its nodes have. Where GPUs go by another name, ask for them with constraint "
     "instead of gpus"),
    (r"node\(s\) specification", "the nodes can't be asked for in that way: is it PBS or Torque? "
     "set [cluster] scheduler to the other of the two"),
    ("feasible nodes", "no node has what was asked for: `pbsnodes -a` on the login host shows "
     "what there is"),
    ("walltime", "ask for another time; `qstat -Q -f` on the login host shows the queues' limits"),
    (r"exceeds|limits?\b", "ask for less, or for another queue; `qstat -Q -f` on the login host "
     "shows their limits"),
    ("account|project", "ask your site for the right account, or the project: "
     'extra = ["-P NAME"]'),
    ("invalid option|illegal -", "look at extra under [allocation]: this qsub does not take it"),
    ("unauthorized|permission|not allowed", "may you use that queue? ask your site"),
)  # fmt: skip

_TRANSIENT = re.compile(
    r"cannot connect to|can't connect|connection (refused|timed out|reset)|"
    r"communication failure|unable to communicate|end of file|premature end|server shutting down|"
    r"server is busy|server busy|pbs_iff|no route to host|resource temporarily unavailable|"
    r"protocol|munge|errno=|authentication|invalid credential|stale file handle|"
    # Whole messages only: a hook of the site may refuse a job with such words in a sentence.
    r"^(?:\S+: )?(?:submit error \()?(?:(?:operation |request |socket )?time(?:d ?| ?)out|"
    r"try again(?: later)?)[.!) ]*(?:MSG=.*)?$",
    re.IGNORECASE | re.MULTILINE,
)
_UNKNOWN = re.compile(r"unknown job id", re.IGNORECASE)
_FINISHED = re.compile(
    r"job has finished|job already finished|invalid state for job|job is exiting", re.IGNORECASE
)
#: A site's hook may print more, but a cause is one line.
_MOST_LINES = 8
NO_HISTORY = re.compile(r"not configured to maintain job history", re.IGNORECASE)


#: The beginning of a line that a command of PBS or a library of it printed, not the login shell.
_OWN_LINE = re.compile(
    r"(?:\S*/)?(?:q(?:sub|stat|del|select)|pbs\w*|auth|munge): |"
    r"connection (?:refused|timed out|reset)|operation timed out|no route to host|"
    r"can(?:'t|not) connect to|unable to communicate|communication failure|"
    r"error in connection|end of file|premature end|.*resource temporarily unavailable|"
    r".*stale (?:nfs )?file handle",
    re.IGNORECASE,
)


def words_of(done: Completed) -> str:
    """Return stderr as one line, from PBS's first line on, without the usage text after a wrong
    option."""
    lines: list[str] = []
    for line in _own(done.error_text) or done.error_text.splitlines():
        if line.lstrip().lower().startswith("usage:"):
            break
        text = re.sub(r"^(qsub|qstat|qdel|qselect):\s*", "", line.strip())
        if text and text not in lines:
            lines.append(text)
    return "; ".join(lines[:_MOST_LINES])


def _own(error_text: str) -> list[str]:
    """Return the lines from PBS's first one on: a hook's text may have several lines."""
    lines = error_text.splitlines()
    return list(dropwhile(lambda line: not _OWN_LINE.match(line.strip()), lines))


def _verdict(error_text: str) -> str:
    """Return the lines that are PBS's own: a login shell's start files may print anything."""
    lines = [line.strip() for line in error_text.splitlines()]
    return "\n".join(line for line in lines if _OWN_LINE.match(line))


_PROGRAMS = "qsub|qstat|qdel|qselect"
_ERRORS = CommandErrors("PBS", "the PBS server", _PROGRAMS, words_of, _verdict, _TRANSIENT, _HINTS)
is_transient, refusal, job_id = _ERRORS.is_transient, _ERRORS.refusal, _ERRORS.job_id


def is_unknown(words: str) -> bool:
    """True if the server answered that it does not know the job."""
    return bool(_UNKNOWN.search(words)) and not is_transient(words)


def is_over(words: str) -> bool:
    """True if the server answered that the job is over, or unknown: it forgets only ended jobs."""
    return is_unknown(words) or is_finished(words)


def is_finished(words: str) -> bool:
    """True if the server answered that the job is over."""
    return bool(_FINISHED.search(words)) and not is_transient(words)
