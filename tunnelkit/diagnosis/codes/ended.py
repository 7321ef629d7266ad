"""Codes of jobs that have ended."""

from __future__ import annotations

from tunnelkit.diagnosis.codes.code import Code
from tunnelkit.diagnosis.codes.ended_program import PROGRAM
from tunnelkit.diagnosis.codes.ended_script import SCRIPT
from tunnelkit.diagnosis.verdict import Actor, Stage

_SCHEDULER = (
    Code(
        "oom-limit",
        Stage.ENDED,
        Actor.YOU,
        "The kernel killed a process of the job for memory.",
        "With a black box: the cgroup's oom_kill rose, and oom of a level of the job. Without: the "
        "scheduler's OUT_OF_MEMORY or code 125 for the job or a step (PBS: -27, -26), or its line "
        "on an oom-kill in the log. A full page cache alone (peak = limit) is no kill. A kill in "
        "`extern` (a shell by ssh) or of tk's own steps does not count, nor one long before the "
        "end that the job outlived.",
        "More --mem; or look for a leak, fewer DataLoader workers, smaller batches on the CPU.",
        fatal=True,
    ),
    Code(
        "oom-node",
        Stage.ENDED,
        Actor.YOU,
        "The node ran out of memory. The job's own limit was not reached.",
        "The black box: oom_kill of the job's cgroups rose, oom of all of them stayed 0.",
        "Ask for memory with --mem, so that the scheduler reserves it; or take another node.",
        fatal=True,
    ),
    Code(
        "preempted",
        Stage.ENDED,
        Actor.NOBODY,
        "A job of higher priority took the nodes. Nothing is wrong with the program.",
        "The scheduler's state PREEMPTED, or its line DUE TO PREEMPTION in the log.",
        "`tk up --requeue` comes back by itself; write checkpoints.",
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
        "boot-failed",
        Stage.ENDED,
        Actor.ADMINISTRATOR,
        "A node of the job did not boot.",
        "The scheduler's state BOOT_FAIL.",
        "Run it again: the scheduler takes another node.",
        fatal=True,
    ),
    Code(
        "deadline",
        Stage.ENDED,
        Actor.YOU,
        "The job reached the deadline that it was submitted with.",
        "The scheduler's state DEADLINE.",
        "Submit it earlier, with a later --deadline, or with none.",
        fatal=True,
    ),
    Code(
        "revoked",
        Stage.ENDED,
        Actor.NOBODY,
        "Another cluster of the federation took the job over.",
        "The scheduler's state REVOKED.",
        "Ask for it there: `squeue --federation`.",
    ),
    Code(
        "timeout",
        Stage.ENDED,
        Actor.YOU,
        "The job reached its time limit. Whether it worked until then is not on record.",
        "The scheduler's state TIMEOUT (PBS: -29), or DUE TO TIME LIMIT in the log. No samples "
        "of its last quarter, and the log does not tell. TIMEOUT long before the job's own limit "
        "is exit-unknown: a reservation's end, a used-up budget, or a silent srun (InactiveLimit).",
        "More --time if it worked; if it stood still, look where (`tk loop`).",
        fatal=True,
    ),
    Code(
        "timeout-working",
        Stage.ENDED,
        Actor.YOU,
        "The job worked until its time was up.",
        "As timeout; and the black box saw CPU or GPU in use, or stdout was written to the end.",
        "More --time, with a figure from `step N of M`; or go on from a checkpoint.",
        fatal=True,
    ),
    Code(
        "timeout-hang",
        Stage.ENDED,
        Actor.PROGRAM,
        "The job stood still long before its time was up: more time would not help.",
        "As timeout; and in its last quarter it used under 1 % of a core and no GPU, and wrote "
        "nothing; or all its CPU time is under 1 % of its time, and no log shows that it worked. "
        "Not of a job that held tk's agent: its user may have stood at a breakpoint.",
        "Look where it stands still: `tk loop`, `tk ranks`, the stacks in the black box.",
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
        "launch-output",
        Stage.ENDED,
        Actor.YOU,
        "The scheduler could not open the job's output file. The script never ran.",
        "Exit code 0:53, at once, and no log. The directory of the output file is looked for on "
        "the login host.",
        "Make the directory; the scheduler does not.",
        fatal=True,
    ),
    Code(
        "launch-interpreter",
        Stage.ENDED,
        Actor.YOU,
        "The interpreter in the script's first line is not on the node.",
        "`bad interpreter` in the log, with exit code 2, 13, 126 or 127.",
        "Correct the first line; lines that end with CR LF need dos2unix.",
        fatal=True,
    ),
    Code(
        "not-found",
        Stage.ENDED,
        Actor.YOU,
        "A command of the script was not found on the node.",
        "Exit code 127, and the shell's line in the log names it.",
        "Load its module or set PATH in the script; `module` itself needs a login shell.",
        fatal=True,
    ),
    Code(
        "bad-arguments",
        Stage.ENDED,
        Actor.YOU,
        "The program refused its arguments.",
        "Exit code 2, and the log ends with a usage message and an error.",
        "Correct the command in the script.",
        fatal=True,
    ),
    Code(
        "not-executable",
        Stage.ENDED,
        Actor.YOU,
        "A file that should run can't be executed.",
        "Exit code 126, and the shell's line in the log names it.",
        "`chmod +x`; or it is built for another kind of CPU.",
        fatal=True,
    ),
    Code(
        "step-failed",
        Stage.ENDED,
        Actor.YOU,
        "The script ended with 0, but a step of it failed.",
        "A step's row in the accounting, or srun's line in the log. Steps that the script itself "
        "ended by INT or TERM do not count, nor does the row of a shell that was attached.",
        "`set -e` at the script's beginning, or `srun ... || exit`.",
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
    Code(
        "killed-unknown",
        Stage.ENDED,
        Actor.PROGRAM,
        "KILL ended it, and what sent that is not on record.",
        "Signal 9 or exit code 137; no counter of memory kills, no time limit near, no sender. A "
        "program can also end with 137 by itself.",
        "The black box of a job of `tk up` keeps the counters and the last samples.",
        fatal=True,
    ),
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
        "no-record",
        Stage.ENDED,
        Actor.NOBODY,
        "The scheduler no longer knows the job, and its log was not found.",
        "Slurm forgets a job 5 minutes after its end; the accounting has no row of it, or there is "
        "none. The usual places of logs were looked at.",
        "The black box of a job of `tk up` keeps a record of the end.",
    ),
)

ENDED = (*_SCHEDULER, *PROGRAM, *SCRIPT)
