"""Codes of jobs that have ended."""

from __future__ import annotations

from tunnelkit.diagnosis.codes.code import Code
from tunnelkit.diagnosis.verdict import Actor, Stage

ENDED = (
    Code(
        "exit-unknown",
        Stage.ENDED,
        Actor.PROGRAM,
        "The job ended with an exit code, and nothing on record says why.",
        "The scheduler's records, the job's steps and its log were read; none names a cause.",
        "Run it again under `tk loop --post-mortem`, which keeps it at the exception.",
        fatal=True,
    ),
    Code(
        "oom-limit",
        Stage.ENDED,
        Actor.YOU,
        "The kernel killed a process of the job for memory.",
        "With a black box: the cgroup's oom_kill rose, and oom of a level of the job. Without: the "
        "scheduler's OUT_OF_MEMORY or code 125 for the job or a step (PBS: -27, -26), or its line "
        "on an oom-kill in the log. A full page cache alone (peak = limit) is no kill.",
        "More --mem; or look for a leak, fewer DataLoader workers, smaller batches on the CPU.",
        fatal=True,
    ),
    Code(
        "node-failed",
        Stage.ENDED,
        Actor.ADMINISTRATOR,
        "A node of the job failed. Nothing is known to be wrong with the program.",
        "The scheduler's state NODE_FAIL, its line DUE TO NODE FAILURE in the log, or PBS's -20.",
        "Run it again; after the second time on one node, leave that node out (--exclude).",
        fatal=True,
    ),
    Code(
        "timeout",
        Stage.ENDED,
        Actor.YOU,
        "The job reached its time limit. Whether it worked until then is not on record.",
        "The scheduler's state TIMEOUT (PBS: -29), or DUE TO TIME LIMIT in the log. No samples "
        "of its last quarter, and the log does not tell.",
        "More --time if it worked; if it stood still, look where (`tk loop`).",
        fatal=True,
    ),
    Code(
        "cancelled",
        Stage.ENDED,
        Actor.YOU,
        "Somebody cancelled the job: you, an administrator, or a program of yours.",
        "The job's own state CANCELLED (a step's only means that a signal ended it), or PBS's "
        "`terminated by`. The accounting has who.",
        "Nothing, if it was you. Else ask the one who did it.",
    ),
    Code(
        "killed-unknown",
        Stage.ENDED,
        Actor.PROGRAM,
        "KILL ended it, and what sent that is not on record.",
        "Signal 9 or exit code 137; no counter of memory kills, no time limit near, no sender. A "
        "program can also end with 137 by itself.",
        "Look at the end of its log, and ask for more memory once: KILL is mostly that.",
        fatal=True,
    ),
    Code(
        "ok",
        Stage.ENDED,
        Actor.NOBODY,
        "The job ended well.",
        "Exit code 0, and no step is known to have failed.",
        "Nothing. What it asked for and did not use could be left out the next time.",
    ),
)
