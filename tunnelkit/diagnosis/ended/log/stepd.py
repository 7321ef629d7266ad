r"""The beginnings of lines by Slurm's step daemon in a job's log.

`slurmstepd: error: ` (with the node for some), or, in logs of 2025 and 2026 from several sites, a
time stamp: `[2026-06-22T17:29:45.166] error: *** JOB 7 ON n1 CANCELLED AT ... DUE to SIGNAL
Terminated ***`. Which release began with that is not known.
"""

from __future__ import annotations

NAMED = r"slurmstepd(?:-\S+)?: error: "
STAMPED = r"\[\d{4}-\d\d-\d\dT[\d:.]{1,20}\] error: "
#: Either; what follows must say that it is the daemon, as a program may write such stamps, too.
STEPD = rf"(?:{NAMED}|{STAMPED})"
#: After the time of a cancelled job or step: a signal without a reason.
BY_SIGNAL = r"(?: DUE to SIGNAL [^*]{1,60}?)?"
#: A stamped line that is the daemon's.
OF_STEPD = STAMPED + (
    r"(?:\*\*\* (?:JOB|STEP) |Detected \d+ oom|execve\(\): |(?:StepId=|Step |Job )\S+ exceeded )"
)
