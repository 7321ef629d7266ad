"""What each of Slurm's pending reasons means: the words of job_state_reason.c, and the sentences
that Slurm writes instead of a word.

Source: Slurm's page "Job Reason Codes", the places in slurmctld that set each reason, and what a
real 22.05 printed. scontrol writes `_` for each blank of a sentence; squeue writes blanks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tunnelkit.diagnosis.codes.registry import CODES
from tunnelkit.diagnosis.verdict import Actor
from tunnelkit.diagnosis.waiting.reasons.limit_words import LimitWord, limit_word

_MOST_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Reason:
    """The meaning of a pending reason.

    sentence: what is the matter, for one line that names the job before it. code: of the verdict.
    known: False if neither word nor sentence is in Slurm's source. by_nodes: the reason alone does
    not decide; the state of the nodes does. limit: the limit that it names.
    """

    code: str
    sentence: str
    by_nodes: bool = False
    known: bool = True
    limit: LimitWord | None = None

    @property
    def actor(self) -> Actor:
        """Who can change it."""
        return CODES[self.code].actor


_NOT_LOOKED = Reason("not-looked", "the scheduler has not looked at the job yet")
_NODES_OUT = "are down, drained, or reserved for jobs of a partition of higher priority"
_LIMITS = "a limit on {} of your account or QOS is reached; it starts when other jobs end"
_RAN = "the job is in the queue again; its run before "
_ACCESS = "the account may not use this partition"

_WORDS = {
    "None": _NOT_LOOKED,
    "Priority": Reason("turn", "jobs with higher priority are in front", by_nodes=True),
    "Resources": Reason("busy", "waiting for the resources to become free", by_nodes=True),
    "Dependency": Reason("dependency", "waiting for the job it depends on"),
    "DependencyNeverSatisfied": Reason(
        "dependency-never", "the job it depends on can never end as asked"
    ),
    "BeginTime": Reason(
        "begin",
        "its begin time has not come yet (a later one was asked for, or it was preempted or "
        "requeued and pauses)",
    ),
    "JobHeldUser": Reason("held-you", "you hold it back: scontrol release JOBID frees it"),
    "JobHeldAdmin": Reason("held-admin", "an administrator holds it back: ask them"),
    "JobHoldMaxRequeue": Reason(
        "launch-failed",
        "it failed to launch too often and is held: scontrol release JOBID tries again",
    ),
    # The partition.
    "PartitionDown": Reason(
        "partition-down", "the partition is switched off at the moment (state DOWN)"
    ),
    "PartitionInactive": Reason(
        "partition-down", "the partition is switched off at the moment (state INACTIVE)"
    ),
    "PartitionTimeLimit": Reason(
        "limit-job", "the time asked for is over the partition's limit", by_nodes=True
    ),
    "PartitionNodeLimit": Reason(
        "nodes-down",
        "the number of nodes is outside the partition's limits, or nodes that it needs are down "
        "or drained",
        by_nodes=True,
    ),
    "PartitionConfig": Reason(
        "never",
        "no node of the partition has what was asked for, or the time or number of nodes asked "
        "for is over its limit",
        by_nodes=True,
    ),
    "MaxMemPerLimit": Reason(
        "limit-job",
        "more memory was asked for than the partition allows for a CPU or a node "
        "(MaxMemPerCPU, MaxMemPerNode)",
    ),
    "AccountNotAllowed": Reason("refused", _ACCESS),
    "QOSNotAllowed": Reason("refused", "the QOS is not valid for this account or partition"),
    "InvalidAccount": Reason("refused", "the account is not valid here"),
    "InvalidQOS": Reason("refused", "the QOS is not valid for this account"),
    "AccountingPolicy": Reason(
        "limit-account", "a limit of your account or QOS holds it back; Slurm does not name it"
    ),
    # Limits that are not in the grammar of `reasons.limit_words`.
    "QOSUsageThreshold": Reason(
        "budget",
        "your fair share has fallen below what the QOS demands (UsageThreshold): past use has to "
        "decay; the end of other jobs does not free it",
    ),
    "AssociationJobLimit": Reason("limit-account", _LIMITS.format("the number of jobs")),
    "AssociationResourceLimit": Reason("limit-account", _LIMITS.format("resources")),
    "AssociationTimeLimit": Reason("limit-account", _LIMITS.format("time")),
    "QOSJobLimit": Reason("limit-qos", _LIMITS.format("the number of jobs")),
    "QOSResourceLimit": Reason("limit-qos", _LIMITS.format("resources")),
    "QOSTimeLimit": Reason("limit-qos", _LIMITS.format("time")),
    "JobArrayTaskLimit": Reason(
        "limit-array",
        "as many tasks of its array run as the array allows at once (%N): it starts when one ends",
    ),
    # The nodes.
    "ReqNodeNotAvail": Reason(
        "nodes-down",
        "a node that it needs is not available: in use, reserved, down or drained",
        by_nodes=True,
    ),
    "NodeDown": Reason("nodes-down", "a node that it needs is down", by_nodes=True),
    "FrontEndDown": Reason("nodes-down", "the front-end node that would start it is down"),
    "BadConstraints": Reason("never", "no node can give what was asked for", by_nodes=True),
    "Constraints": Reason(
        "busy", "no nodes with the features asked for are free together", by_nodes=True
    ),
    "BlockMaxError": Reason("nodes-down", "the Blue Gene block that it needs has an error"),
    "BlockFreeAction": Reason("preparing", "the Blue Gene block that it needs is being freed"),
    # Things beside nodes.
    "Licenses": Reason("licenses", "waiting for a licence to become free"),
    "BurstBufferResources": Reason(
        "shared-busy", "waiting for space in the burst buffer to become free"
    ),
    "MpiPortsBusy": Reason(
        "shared-busy", "all ports that Slurm reserves for MPI on the nodes (MpiParams) are in use"
    ),
    "NvidiaImexChannels": Reason(
        "shared-busy", "all NVIDIA IMEX channels, which join GPUs of several nodes, are in use"
    ),
    "MaxPoweredUpNodes": Reason(
        "shared-busy",
        "as many nodes are powered up as the cluster allows (max_powered_nodes): it starts when "
        "one is free or powered down",
    ),
    "PowerNotAvail": Reason("shared-busy", "the cluster's power limit has no room for it now"),
    "PowerReserved": Reason(
        "shared-busy", "the power that it needs is reserved (cluster's power limit)"
    ),
    # Reservations.
    "Reservation": Reason(
        "reservation", "waiting for its reservation: to begin, or for nodes of it to become free"
    ),
    "ReservationDeleted": Reason("reservation-gone", "the reservation it asks for was deleted"),
    "ReservationInvalid": Reason("reservation-gone", "the reservation it asks for is not valid"),
    # The start itself.
    "Prolog": Reason("preparing", "the nodes' prolog is running"),
    "BurstBufferStageIn": Reason("preparing", "its files are being staged into the burst buffer"),
    "Cleaning": Reason("requeued", "its run before is still being cleared away"),
    "SchedDefer": Reason(
        "not-looked", "the scheduler starts no job at once (defer); it looks at the job later"
    ),
    "FedJobLock": Reason(
        "not-looked", "the clusters of the federation have not agreed yet which one starts it"
    ),
    "DeadLine": Reason("never", "the job can't end before its deadline"),
    "BurstBufferOperation": Reason(
        "launch-failed", "an operation of the burst buffer failed, and the job is held"
    ),
    "JobLaunchFailure": Reason("requeued", f"{_RAN}could not be launched"),
    "SystemFailure": Reason("requeued", f"{_RAN}failed by Slurm, a file system or the network"),
    # Ends; a job that waits with one of them has run before.
    "NonZeroExitCode": Reason("requeued", f"{_RAN}ended with an exit code other than 0"),
    "RaisedSignal": Reason("requeued", f"{_RAN}was ended by a signal"),
    "TimeLimit": Reason("requeued", f"{_RAN}reached its time limit"),
    "InactiveLimit": Reason("requeued", f"{_RAN}was ended because its srun or salloc was silent"),
    "OutOfMemory": Reason("requeued", f"{_RAN}was killed for memory"),
    "InvalidReason": _NOT_LOOKED,
    "InvaildReason": _NOT_LOOKED,
}

#: Sentences that stand instead of a word or behind it, by their beginning.
_SENTENCES = tuple(
    (re.compile(pattern.replace(" ", "[ _]"), re.IGNORECASE), reason)
    for pattern, reason in (
        (r"ReqNodeNotAvail,.?Reserved for maintenance",
         Reason("maintenance", "its nodes are reserved for maintenance, which begins before its "
                "time limit would end it: a shorter --time may start at once", by_nodes=True)),
        (r"ReqNodeNotAvail,.?May be reserved for other job",
         Reason("turn", "the nodes that it needs may be kept for another job", by_nodes=True)),
        (r"ReqNodeNotAvail,.?UnavailableNodes:(?P<detail>\S*)",
         Reason("nodes-down", "nodes that it needs are down, drained or do not answer",
                by_nodes=True)),
        (r"Nodes required for job are DOWN",
         Reason("nodes-down", f"all nodes that it could use {_NODES_OUT}", by_nodes=True)),
        (r"Required node not available",
         Reason("nodes-down", "a node that it needs is down or drained", by_nodes=True)),
        (r".*node configuration is not available",
         Reason("never", "no node can give what was asked for", by_nodes=True)),
        (r"launch failed requeued held",
         Reason("launch-failed", "it failed to launch and is held: scontrol release JOBID tries "
                "again")),
        (r"launch failure limit exceeded requeued held", _WORDS["JobHoldMaxRequeue"]),
        (r"user env retrieval failed requeued held",
         Reason("launch-failed", "it failed to launch, because your environment could not be read "
                "(--get-user-env), and is held: scontrol release JOBID tries again")),
        (r"job requeued in held state",
         Reason("held-you", "it was requeued and is held: scontrol release JOBID frees it")),
        (r"job requeued in special exit state",
         Reason("held-you", "it was requeued and is held (special exit): scontrol release JOBID "
                "frees it")),
        (r"Reservation (?P<detail>\S+?) was deleted", _WORDS["ReservationDeleted"]),
        (r"Reservation (?P<detail>\S+?) is invalid", _WORDS["ReservationInvalid"]),
        (r"Reservation (?P<detail>\S+?), which this job was running under, has ended",
         Reason("requeued", f"{_RAN}ended with its reservation")),
        (r"License request '?(?P<detail>[^']*)'? is no longer valid",
         Reason("held-admin", "the licences that it asks for are not there any more, and it is "
                "held")),
        (r"Job'?s account not (permitted|known)[^(]*(?P<detail>\(.*\))?",
         Reason("refused", _ACCESS)),
        (r"Job'?s QOS not (permitted|known)[^(]*(?P<detail>\(.*\))?",
         Reason("refused", "the QOS may not use this partition")),
        (r"uid \d+ not in group permitted to use this partition (?P<detail>.*)",
         Reason("refused", "you are in no group that may use this partition")),
        (r"Job is at or exceeds (QOS|association).*group.* (minutes|wall limit)(?P<detail>.*)",
         Reason("budget", "the budget of the account or QOS is used up (minutes of all its jobs, "
                "past ones too): the end of other jobs does not free it")),
        (r"Job is at or exceeds (QOS|association).*max TRES(?P<detail>.*)",
         Reason("limit-job", "it asks for more minutes than one job may have under the account or "
                "QOS")),
        (r"Unable to load job (batch script|environment)",
         Reason("requeued", f"{_RAN}failed: Slurm could not read its script or environment")),
        (r"Burst buffer", _WORDS["BurstBufferOperation"]),
        (r".*requeued held",
         Reason("launch-failed", "it was requeued and is held: scontrol release JOBID tries "
                "again")),
    )
)  # fmt: skip


def reason_of(text: str | None) -> Reason:
    """Return the meaning of what squeue or scontrol prints as a pending job's reason."""
    line = " ".join((text or "").split())[:_MOST_CHARACTERS]
    if line.startswith("("):  # squeue's NODELIST(REASON)
        line = line[1:].removesuffix(")").strip()
    if line in ("", "null"):
        return _NOT_LOOKED
    for pattern, reason in _SENTENCES:
        if match := pattern.match(line):
            return _with_detail(reason, match.groupdict().get("detail") or "")
    # Arrays whose tasks wait for different reasons: `Resources,JobArrayTaskLimit`.
    word = re.split(r"[,; :(_]", line, maxsplit=1)[0]
    if word in _WORDS:
        return _WORDS[word]
    if limit := limit_word(word):
        return Reason(limit.code, limit.sentence, limit=limit)
    sentence = f"waiting for a reason that tk does not know: {line}"
    return Reason("waiting-unknown", sentence, known=False)


def _with_detail(reason: Reason, detail: str) -> Reason:
    """Add what Slurm names behind the reason: nodes, a reservation, who may use a partition."""
    words = detail.strip().removeprefix("(").removesuffix(")")
    if not words:
        return reason
    return Reason(reason.code, f"{reason.sentence} ({words})", reason.by_nodes)
