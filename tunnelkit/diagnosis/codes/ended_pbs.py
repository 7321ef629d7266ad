"""Codes of ended jobs that only PBS's own exit codes lead to."""

from __future__ import annotations

from tunnelkit.diagnosis.codes.code import Code
from tunnelkit.diagnosis.verdict import Actor, Stage

ENDED_PBS = (
    Code(
        "moved",
        Stage.ENDED,
        Actor.NOBODY,
        "The job was moved to another PBS server. Here it is over.",
        "PBS's state M, and its comment with the queue and the server.",
        "Ask that server: `qstat -f JOB@SERVER`.",
    ),
    Code(
        "launch-refused",
        Stage.ENDED,
        Actor.ADMINISTRATOR,
        "The node could not start the job. The script never ran.",
        "PBS's exit code -1, -2, -3, -10, -13, -21, -23 or -30 (Torque: also -8, -9).",
        "Submit it again, to another node if you can; show the code to the administrator.",
        fatal=True,
    ),
    Code(
        "cpus-exceeded",
        Stage.ENDED,
        Actor.YOU,
        "PBS ended the job because it used more CPUs than it had asked for.",
        "PBS's exit code -24 or -25, and its line on stderr.",
        "Ask for more ncpus, or start fewer threads: set OMP_NUM_THREADS to ncpus.",
        fatal=True,
    ),
    Code(
        "cput-exceeded",
        Stage.ENDED,
        Actor.YOU,
        "PBS ended the job because it used up the CPU time that it had asked for.",
        "PBS's exit code -28 (Torque: -12), and its line on stderr.",
        "Ask for more with -l cput=, or leave it out: walltime is a limit of its own.",
        fatal=True,
    ),
    Code(
        "hook-ended",
        Stage.ENDED,
        Actor.ADMINISTRATOR,
        "A rule of the site (a PBS hook) refused or deleted the job.",
        "PBS's exit code -17 or -19.",
        "Ask the administrator which rule; the job's log may hold its message.",
        fatal=True,
    ),
    Code(
        "put-back",
        Stage.ENDED,
        Actor.ADMINISTRATOR,
        "PBS wanted to put the job back into the queue, and it may not be started twice.",
        "PBS's exit code -11, -14, -16, -18 or -22 of a job that has ended.",
        "Submit it again; with -r y PBS does that by itself.",
        fatal=True,
    ),
)
