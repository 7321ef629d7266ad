"""Codes of jobs that wait."""

from __future__ import annotations

from tunnelkit.diagnosis.codes.code import Code
from tunnelkit.diagnosis.verdict import Actor, Stage

WAITING = (
    Code(
        "never",
        Stage.WAITING,
        Actor.YOU,
        "The job can never start as it was asked for.",
        "Arithmetic by node: even if all nodes of the partition were empty and in service, too few "
        "have the features, CPUs, memory and GPUs together (`sinfo`); or the job is over the "
        "partition's time or number of nodes (`scontrol show partition`). Proven if Slurm's reason "
        "says so too; else most likely, since a site's own rules are not seen.",
        "Cancel it, and ask for what a node has. A time limit can be shortened in place: "
        "`tk why --start-sooner MINUTES`.",
        fatal=True,
    ),
    Code(
        "fragmented",
        Stage.WAITING,
        Actor.NOBODY,
        "Enough is free, but on several nodes, and the job needs it on one.",
        "Arithmetic by node: the job fits on an empty node, none has enough free, and what is free "
        "on all of them together would be enough.",
        "Ask for what the nearest node has free, let the job spread over nodes, or wait.",
    ),
    Code(
        "busy",
        Stage.WAITING,
        Actor.NOBODY,
        "The nodes that fit are in use.",
        "Arithmetic by node: the job fits on nodes that are in service, and other jobs have them "
        "(`squeue`). Times are time limits: jobs may end earlier. Jobs that the site hides are "
        "called somebody's.",
        "Wait, or take what is offered: less on a node, no feature, another partition.",
    ),
    Code(
        "turn",
        Stage.WAITING,
        Actor.NOBODY,
        "Nodes are free for the job, and jobs of higher priority are in front.",
        "Arithmetic by node, and the order of the queue: jobs that want the same nodes, without "
        "those that are held or wait for something else. The window is the time until the "
        "scheduler plans to give the node to a job in front.",
        "A time limit that ends within the window starts at once by backfill: "
        "`tk why --start-sooner auto`. The job keeps its place.",
    ),
    Code(
        "nodes-down",
        Stage.WAITING,
        Actor.ADMINISTRATOR,
        "Nodes that the job needs are down, drained or reserved.",
        "Arithmetic by node: it fits on empty nodes, and too few of them are in service. The "
        "states, and the administrator's reason, are shown (`sinfo`).",
        "Take other nodes, or ask the administrator when they are back.",
    ),
    Code(
        "maintenance",
        Stage.WAITING,
        Actor.YOU,
        "The job would run into a maintenance window or another reservation.",
        "A reservation of the nodes begins before the job's time limit would end it "
        "(`scontrol show reservation`).",
        "A time limit that ends before the window starts at once, if a node is free: "
        "`tk why --start-sooner auto`. Else wait until it is over.",
    ),
    Code(
        "limit-account",
        Stage.WAITING,
        Actor.NOBODY,
        "With this job, the account's jobs would be over a limit that they share.",
        "The scheduler's reason, and the limit with what is used of it "
        "(`scontrol show assoc_mgr`, LIMIT(USED)).",
        "Wait until enough of these jobs have ended, or use another account.",
    ),
    Code(
        "limit-qos",
        Stage.WAITING,
        Actor.NOBODY,
        "With this job, the QOS's jobs would be over a limit that they share.",
        "The scheduler's reason, and the limit with what is used of it "
        "(`scontrol show assoc_mgr`, LIMIT(USED)).",
        "Wait until enough of these jobs have ended, or use another QOS.",
    ),
    Code(
        "limit-user",
        Stage.WAITING,
        Actor.NOBODY,
        "With this job, your own jobs would be over a limit for each user.",
        "The scheduler's reason, and the limit with what is used of it "
        "(`scontrol show assoc_mgr`, LIMIT(USED)).",
        "Wait until enough of your jobs have ended, or end one.",
    ),
    Code(
        "limit-job",
        Stage.WAITING,
        Actor.YOU,
        "The job alone asks for more than one job may have.",
        "The scheduler's reason names a limit of each single job (`PerJob`, `PerNode`, a least "
        "amount, the partition's time or memory), or the job asks for more than all jobs of the "
        "account or QOS may have together. The end of other jobs does not help. "
        "Of a job of several partitions it may be one of them alone (likely).",
        "Shorten its time limit if that is what is too much; else cancel it, and ask for less.",
        fatal=True,
    ),
    Code(
        "budget",
        Stage.WAITING,
        Actor.ADMINISTRATOR,
        "The budget of the account or QOS is used up.",
        "The scheduler's reason names minutes of past and present jobs together (`GrpTRESMins`, "
        "`GrpWall`): the end of other jobs does not free it. Minutes that are still to run "
        "(`RunMinutes`) are no budget.",
        "Use another account, or ask its owner for more. Budgets decay or are reset where the "
        "site has set that up.",
    ),
    Code(
        "limit-array",
        Stage.WAITING,
        Actor.YOU,
        "As many tasks of the job's array run as the array itself allows at once.",
        "The scheduler's reason (JobArrayTaskLimit); the limit is the `%N` of `--array=1-99%N`.",
        "Wait until a task ends, or let more run at once: "
        "`scontrol update jobid=ARRAY arraytaskthrottle=N`.",
    ),
    Code(
        "shared-busy",
        Stage.WAITING,
        Actor.NOBODY,
        "Something that jobs share beside nodes is in use: burst buffer, MPI ports, IMEX channels.",
        "The scheduler's reason.",
        "Wait until other jobs give it back, or ask for less of it.",
    ),
    Code(
        "dependency",
        Stage.WAITING,
        Actor.NOBODY,
        "The job waits for another job.",
        "The job's dependency and the state of the job that it names.",
        "Wait; or take the dependency away.",
    ),
    Code(
        "dependency-never",
        Stage.WAITING,
        Actor.YOU,
        "The job that it depends on can never end as asked for.",
        "The scheduler marks the dependency as failed, and no other one is enough.",
        "Cancel it, or take the dependency away.",
        fatal=True,
    ),
    Code(
        "held-you",
        Stage.WAITING,
        Actor.YOU,
        "The job is held, and its owner can release it.",
        "The scheduler's reason or hold flag. It was held by its owner, by a coordinator of the "
        "account, or put back into the queue in held state.",
        "Release it: `scontrol release JOB`.",
    ),
    Code(
        "held-admin",
        Stage.WAITING,
        Actor.ADMINISTRATOR,
        "An administrator holds the job back.",
        "The scheduler's reason or hold flag.",
        "Ask the administrator.",
    ),
    Code(
        "launch-failed",
        Stage.WAITING,
        Actor.YOU,
        "The job could not be launched, and is held.",
        "The scheduler's reason says that it was put back and held: the node's prolog, the user's "
        "environment or the burst buffer failed.",
        "Leave that node out, and release the job.",
    ),
    Code(
        "begin",
        Stage.WAITING,
        Actor.NOBODY,
        "The job's begin time has not come yet.",
        "The scheduler's reason; the job has not run before.",
        "Wait, or set another begin time.",
    ),
    Code(
        "requeued",
        Stage.WAITING,
        Actor.NOBODY,
        "The job ran before, and is back in the queue.",
        "The scheduler counts restarts; the begin time is its pause before the next start. "
        "It was preempted, its node failed, or somebody requeued it: the last lines of the log "
        "say which.",
        "Wait. After the second time on one node, leave that node out.",
    ),
    Code(
        "preparing",
        Stage.WAITING,
        Actor.NOBODY,
        "Nodes are allocated and are being made ready.",
        "The scheduler's state or reason: a prolog, a node that boots, files that are staged in.",
        "Wait; after five minutes ask the administrator.",
    ),
    Code(
        "reservation",
        Stage.WAITING,
        Actor.NOBODY,
        "The job waits for its reservation to begin, or for nodes of it.",
        "The scheduler's reason, and the reservation's start.",
        "Wait, or take another reservation.",
    ),
    Code(
        "reservation-gone",
        Stage.WAITING,
        Actor.YOU,
        "The reservation that it asks for is not valid or was deleted.",
        "The scheduler's reason; such a job is held.",
        "Take it out of the reservation and release it, or cancel it.",
        fatal=True,
    ),
    Code(
        "licenses",
        Stage.WAITING,
        Actor.NOBODY,
        "The licences that it asks for are in use.",
        "The scheduler's reason.",
        "Wait, or ask for fewer.",
    ),
    Code(
        "partition-down",
        Stage.WAITING,
        Actor.ADMINISTRATOR,
        "The partition or queue is switched off.",
        "The scheduler's reason, or the queue's state. Of a job of several partitions Slurm says "
        "so for one of them: those that are on are judged by their nodes first.",
        "Take another one, or ask the administrator.",
    ),
    Code(
        "refused",
        Stage.WAITING,
        Actor.YOU,
        "Account, QOS or partition do not go together.",
        "The scheduler's reason, and what the job asks for.",
        "Cancel it, and name an account, QOS and partition that you may use.",
        fatal=True,
    ),
    Code(
        "not-looked",
        Stage.WAITING,
        Actor.NOBODY,
        "The scheduler has not looked at the job yet.",
        "It gives no reason.",
        "Ask again in a minute.",
    ),
    Code(
        "scheduler-silent",
        Stage.WAITING,
        Actor.ADMINISTRATOR,
        "The scheduler does not answer.",
        "Its command gave no answer within 10 s, or an error.",
        "Try again in a minute; `tk doctor` checks the login host.",
    ),
    Code(
        "waiting-unknown",
        Stage.WAITING,
        Actor.NOBODY,
        "The job waits, and the scheduler gives no reason that tk can explain.",
        "The reason in the scheduler's answer is not in its documentation.",
        "Ask again in a minute. If it stays, show the reason to the cluster's support.",
    ),
)
