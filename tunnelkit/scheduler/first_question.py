"""The detection of a login host's scheduler and a first question to it, in one command. No I/O.

Each costs a round trip or two over ssh, and more than Slurm takes to answer. The shell guesses the
kind as `parse_detect` decides it; an answer to a wrong guess is thrown away by the caller.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tunnelkit.errors import UsageError
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import Command, Scheduler
from tunnelkit.scheduler.detect import DETECT_SCRIPT, USUAL_DIRS, Detected, parse_detect
from tunnelkit.scheduler.factory import SCHEDULERS, SchedulerKind

#: Makes a question for a scheduler of that kind; None: it can't be asked before it is detected.
Ask = Callable[[Scheduler], Sequence[str] | None]

# $kind: set by the detection.
_CHOOSE = """
printf '\\n%s %s\\n' {mark} "$kind"
case $kind in
{branches}
esac
"""


@dataclass(frozen=True)
class FirstAnswer:
    """kind: the scheduler that was asked, "" for none. done: its answer."""

    detected: Detected
    kind: str
    done: Completed


def first_question(wanted: str, mark: str, ask: Ask, *, version: bool = False) -> Command:
    """Return the command. wanted: `[cluster] scheduler`. mark: see `sections`; another one than
    that of the question. ask: returns the question in a scheduler's words; one that it can't
    express (UsageError) is left out. version: the scheduler's is wanted, too: a command more."""
    branches = []
    for kind in SCHEDULERS:
        if wanted in ("auto", kind.name):
            text = _text(kind, ask)
            if text:
                branches.append(f"{kind.name})\n(\n{text}\n)\n;;")
    script = DETECT_SCRIPT + _CHOOSE.format(mark=shlex.quote(mark), branches="\n".join(branches))
    dirs = ":".join(USUAL_DIRS)
    # Not by stdin, which takes a round trip more.
    return Command(("sh", "-c", script, "sh", dirs, "" if version else "no-version"))


def parse_first(done: Completed, mark: str) -> FirstAnswer:
    """Split what the command printed. Raises SchedulerError if there is no detection in it."""
    before, _, after = done.stdout.partition(f"\n{mark} ".encode())
    name, _, answer = after.partition(b"\n")
    detected = parse_detect(replace(done, stdout=before))
    return FirstAnswer(detected, name.decode("ascii", "replace"), replace(done, stdout=answer))


def _text(kind: SchedulerKind, ask: Ask) -> str:
    """Return the question as sh code. The detection has set the PATH, and a PBS without a history
    says so itself."""
    try:
        argv = ask(kind.make(Detected("none", history=True), False, None))
    except UsageError:
        return ""
    if argv is None:
        return ""
    if tuple(argv[:2]) != ("sh", "-c"):
        return f"{shlex.join(argv)} </dev/null"
    _, _, script, _, *words = argv
    return f"set -- {shlex.join(words)}\n{script}"
