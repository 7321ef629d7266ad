"""The forms of a comment of a waiting job, as OpenPBS's scheduler and server write them.

Source: openpbs `src/scheduler/job_info.cpp` (table `fctt`), its callers, and the server's own
comments (`req_runjob.c`, `req_holdjob.c`, `req_jobobit.c`). A name in braces stands for what
PBS fills in. The forms that name no resource; the others are in `pbs_resources`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_WAIT_FOR_OWN = "wait until one of your jobs ends, or end one"
_WAIT_FOR_GROUP = "wait until a job of the group or project ends"
_OTHER_QUEUE = "wait, or use another queue: `qstat -Q` lists them"
_SHORTER = "a shorter time limit may start sooner"
_QALTER = "qalter -l walltime=HH:MM:SS {job}"
_ASK = "show the comment to the administrator"
_AGAIN = "cancel it and submit it again; if it stays, show the comment to the administrator"


@dataclass(frozen=True, slots=True)
class Form:
    """One form of a comment, without `Not Running: `.

    text: as PBS writes it. sentence: begins with "waits" or "is", for a line that begins with
    the job. step, command: the next step; `{job}` is the job's id.
    """

    text: str
    code: str
    sentence: str
    step: str
    command: str = ""


FORMS: tuple[Form, ...] = (
    # -- its turn
    Form("Job would interfere with a top job", "turn",
         "waits for its turn: it would delay a job that is in front", _SHORTER, _QALTER),
    Form("Job would break strict sorted order", "turn",
         "waits for its turn: this cluster starts jobs strictly in order", "wait"),
    Form("Can't preempt enough work to run job", "turn",
         "waits for its turn: it may preempt others, but that would not free enough", "wait"),
    Form("Job is under job_sort_formula threshold value", "turn",
         "waits: its priority is below the threshold that a job needs to start",
         "wait: on most clusters priority grows with time. If it stays, ask the administrator"),
    Form("Draining system to allow {other} to run", "turn",
         "waits for its turn: nodes are kept free for job {other}", "wait"),
    Form("Job has zero shares for fairshare", "budget",
         "waits: its owner has 0 shares in the fair-share tree, and gets no turn",
         "ask the administrator for shares, or use a project or account that has some"),
    # -- nodes
    Form("No available resources on nodes", "busy",
         "waits for the resources to become free: no node has all that it asks for", "wait"),
    Form("Not enough free nodes available", "busy",
         "waits for the nodes to become free: fewer are free than it asks for",
         "wait, or ask for fewer nodes"),
    Form("Not enough of the right type of nodes are available", "busy",
         "waits for the nodes of its kind to become free", "wait"),
    Form("Not enough of the right type of nodes available", "busy",
         "waits for the nodes of its kind to become free", "wait"),
    Form("Not enough total nodes available", "busy",
         "waits for the nodes to become free: it asks for more nodes than there are",
         "ask for fewer nodes", "qdel {job}"),
    Form("Too few free resources", "busy", "waits for the resources to become free", "wait"),
    Form("Nodes not available", "busy", "waits for the nodes to become free", "wait"),
    Form("{what} set {set} has too few free resources", "busy",
         "waits for the nodes to become free: it has to fit into one group of nodes "
         "({what} set {set}), and none has enough free", "wait, or ask for fewer nodes"),
    Form("can't fit in the largest placement set, and can't span psets", "never",
         "waits in vain: no group of nodes (placement set) is large enough for it, and it may "
         "not use several", "cancel it, and ask for less", "qdel {job}"),
    Form("{what} is requesting an exclusive node and node is in use", "busy",
         "waits for the node to become free: it wants it for itself",
         "wait; without place=excl it can share a node"),
    Form("Node has reached job run limit", "busy",
         "waits for the nodes to become free: they run as many jobs as each may", "wait"),
    Form("Node has reached user run limit", "limit-user",
         "waits: on each node that fits run as many jobs of yours as may", _WAIT_FOR_OWN),
    Form("Node has reached group run limit", "limit-account",
         "waits: on each node that fits run as many jobs of your group as may", _WAIT_FOR_GROUP),
    Form("Max number of small cpusets has been reached", "busy",
         "waits for the nodes to become free: they share no more small sets of CPUs", "wait"),
    Form("Node can't satisfy a multi-node job", "never",
         "waits in vain: the nodes that fit take no jobs of several nodes",
         "ask for one node, or for other nodes", "qdel {job}"),
    Form("Node ineligible because job requested pack placement and won't fit on node", "never",
         "waits in vain: it asks for all on one node (place=pack), and no node has that much",
         "cancel it, and submit it with place=free or less", "qdel {job}"),
    Form("Node is of an ineligible type: {type}", "never",
         "waits in vain: nodes of type {type} run no such jobs",
         "cancel it, and ask for other nodes", "qdel {job}"),
    Form("Specified {what} does not exist: {name}", "never",
         "waits in vain: there is no {what} {name}",
         "cancel it, and name one that there is: `pbsnodes -a` lists them", "qdel {job}"),
    Form("Node has no PBS license", "nodes-down",
         "waits: the node has no PBS licence", "ask the administrator, or take other nodes"),
    # -- provisioning
    Form("Cannot provision, provisioning disabled on server", "partition-down",
         "waits: it wants another system on its node (aoe), and that is switched off",
         "ask the administrator, or submit it without aoe"),
    Form("Cannot provision, provisioning disabled on vnode", "partition-down",
         "waits: it wants another system on its node (aoe), and that is switched off there",
         "ask the administrator, or submit it without aoe"),
    Form("Cannot provision, requested AOE {name} not available on vnode", "never",
         "waits in vain: no node that fits can be given the system (aoe) {name}",
         "cancel it, and name a system that there is: `pbsnodes -a` lists them", "qdel {job}"),
    Form("Cannot provision, requested EOE {name} not available on vnode", "never",
         "waits in vain: no node that fits has the power profile (eoe) {name}",
         "cancel it, and name a profile that there is: `pbsnodes -a` lists them", "qdel {job}"),
    Form("Cannot provision, host has multiple vnodes", "never",
         "waits in vain: its node is divided into several vnodes, and takes no other system",
         "cancel it, and submit it without aoe", "qdel {job}"),
    Form("Provisioning for job would interfere with backfill job", "busy",
         "waits for the node to become free, to install another system there", "wait"),
    Form("Provision conflict with existing job/reservation", "busy",
         "waits for the node to become free, to install another system there", "wait"),
    # -- times
    Form("Dedicated time conflict", "time-window",
         "waits for another time: its queue and the dedicated time exclude each other",
         "wait, or use another queue"),
    Form("Job would cross dedicated time boundary", "maintenance",
         "waits: it would still run when the dedicated time begins", _SHORTER, _QALTER),
    Form("Job will run in primetime only", "time-window",
         "waits for prime time: its queue starts jobs only then", _OTHER_QUEUE),
    Form("Job will run in nonprimetime only", "time-window",
         "waits for the end of prime time: its queue starts jobs only then", _OTHER_QUEUE),
    Form("Job will cross into {time}", "time-window",
         "waits: it would still run when {time} begins", _SHORTER, _QALTER),
    Form("Job would interfere with a confirmed reservation", "reservation-ahead",
         "waits: it would still run when a reservation begins", _SHORTER, _QALTER),
    Form("Job would interfere with a confirmed reservation: {name}", "reservation-ahead",
         "waits: it would still run when reservation {name} begins", _SHORTER, _QALTER),
    Form("Job would conflict with reservation or top job", "turn",
         "waits for its turn: it would delay a job that is in front, or a reservation",
         _SHORTER, _QALTER),
    Form("Node not eligible for advance reservation", "never",
         "waits in vain: its nodes take no reservations", "name other nodes", "qdel {job}"),
    # -- queues
    Form("Queue not started", "partition-down",
         "waits: its queue is stopped, and starts no jobs",
         "move it to another queue (`qstat -Q` lists them), or ask the administrator",
         "qmove QUEUE {job}"),
    Form("Queue not an execution queue", "partition-down",
         "waits: its queue runs no jobs, but hands them on to another queue",
         "move it to a queue that runs jobs: `qstat -Q` lists them", "qmove QUEUE {job}"),
    # -- numbers of running jobs
    Form("Queue {queue} job limit has been reached", "limit-queue",
         "waits: queue {queue} runs as many jobs as it may", _OTHER_QUEUE),
    Form("Server job limit has been reached", "limit-queue",
         "waits: the cluster runs as many jobs as it may", "wait"),
    Form("User has reached server running job limit", "limit-user",
         "waits: as many jobs of yours run as may at the same time", _WAIT_FOR_OWN),
    Form("User has reached queue {queue} running job limit", "limit-user",
         "waits: as many jobs of yours run in queue {queue} as may", _WAIT_FOR_OWN),
    Form("Group has reached server running limit", "limit-account",
         "waits: as many jobs of your group run as may", _WAIT_FOR_GROUP),
    Form("Group has reached queue {queue} running limit", "limit-account",
         "waits: as many jobs of your group run in queue {queue} as may", _WAIT_FOR_GROUP),
    Form("Project has reached server running limit", "limit-account",
         "waits: as many jobs of its project run as may", _WAIT_FOR_GROUP),
    Form("Project has reached queue {queue}'s running limit", "limit-account",
         "waits: as many jobs of its project run in queue {queue} as may", _WAIT_FOR_GROUP),
    Form("Queue {queue} job limit reached for group {who}", "limit-account",
         "waits: as many jobs of group {who} run in queue {queue} as may", _WAIT_FOR_GROUP),
    Form("Queue {queue} job limit reached for user {who}", "limit-user",
         "waits: as many jobs of {who} run in queue {queue} as may", _WAIT_FOR_OWN),
    Form("Queue {queue} job limit reached for project {who}", "limit-account",
         "waits: as many jobs of project {who} run in queue {queue} as may", _WAIT_FOR_GROUP),
    Form("Server job limit reached for group {who}", "limit-account",
         "waits: as many jobs of group {who} run as may", _WAIT_FOR_GROUP),
    Form("Server job limit reached for user {who}", "limit-user",
         "waits: as many jobs of {who} run as may", _WAIT_FOR_OWN),
    Form("Server job limit reached for project {who}", "limit-account",
         "waits: as many jobs of project {who} run as may", _WAIT_FOR_GROUP),
    Form("Number of concurrent running subjobs limit reached", "limit-user",
         "waits: as many jobs of its array run as the array itself allows (-J ...%N)",
         _WAIT_FOR_OWN),
    Form("Job would exceed mission CPU share", "limit-account",
         "waits: its mission uses its whole share of the CPUs", _WAIT_FOR_GROUP),
    Form("Job exceeds total mission share", "limit-job",
         "waits in vain: it asks for more CPUs than the whole share of its mission",
         "cancel it, and ask for less", "qdel {job}"),
    # -- launching
    Form("PBS Error: {error}", "launch-retry",
         "waits: PBS could not start it ({error}), and tries again", _ASK),
    Form("Job was sent for execution at {when}", "preparing",
         "waits for its node, which makes itself ready", "wait"),
    Form("Job manually qrun.", "preparing", "is started by an administrator", "wait"),
    Form("Job manually qrun on {nodes}", "preparing",
         "is started by an administrator on {nodes}", "wait"),
    Form("Job run at {when}", "requeued",
         "ran before, and is in the queue again", "wait"),
    Form("Job has been moved to {queue}", "preparing",
         "waits in {queue}, where it was moved to", "ask there: qstat {job}"),
    # -- faults
    Form("Internal Scheduling Error", "scheduler-error",
         "waits: the scheduler failed while it looked at it", _AGAIN),
    Form("Job not in queued state", "not-looked",
         "waits: it was not in the queue when the scheduler looked", "ask again in a minute"),
    Form("Job is in an invalid state", "scheduler-error",
         "waits: the server keeps a state of it that the scheduler does not know", _AGAIN),
    Form("Bad requested resource data", "never",
         "waits in vain: the scheduler can't read what it asks for",
         "cancel it, and correct its -l options", "qdel {job}"),
    Form("invalid placement spec", "never",
         "waits in vain: the scheduler can't read its place= line",
         "cancel it, and correct -l place=", "qdel {job}"),
    Form("Invalid Job/Resv {why}", "never",
         "waits in vain: the scheduler can't use what it asks for ({why})",
         "cancel it, and correct -l select=", "qdel {job}"),
    *(
        Form(text, "scheduler-error",
             "waits: what the server has on record of it is not complete",
             _AGAIN)
        for text in (
            "No server pointer", "Job has no job sub-structure",
            "Reservation has no resv sub-structure", "No Name", "No User", "No Group",
            "No Select", "No Place", "Is neither job nor resv", "Is running w/o exec_vnode1",
            "Is running w/o exec_vnode2", "exec_vnode mismatch 1", "exec_vnode mismatch 2",
        )
    ),
)  # fmt: skip
#: Node is in an ineligible state: what the state means. Others: nodes-down.
_STATE_CODES = {
    "free": "busy",
    "busy": "busy",
    "job-busy": "busy",
    "job-exclusive": "busy",
    "provisioning": "preparing",
    "sleep": "preparing",
}
_NAME = re.compile(r"\\\{([a-z]+)\\\}")


def match_form(form: Form, said: str) -> dict[str, str] | None:
    """Return what PBS filled in; None if the comment has another form."""
    begin = form.text.partition("{")[0].rstrip(".").casefold()
    if not said.casefold().startswith(begin):
        return None
    escaped = re.escape(form.text.rstrip("."))
    pattern = _NAME.sub(r"(?P<\1>.*?)", escaped) + r"\.?"
    match = re.fullmatch(pattern, said, re.IGNORECASE | re.DOTALL)
    return {name: value.strip() for name, value in match.groupdict().items()} if match else None


def find_form(said: str, forms: tuple[Form, ...] = FORMS) -> tuple[Form, dict[str, str]] | None:
    """Return the form of a comment and what PBS filled in; None if it has none of these.

    said: without `Not Running: `, with single blanks."""
    for form in (*forms, *_state_forms(said)):
        if (filled := match_form(form, said)) is not None:
            return form, filled
    return None


def _state_forms(said: str) -> tuple[Form, ...]:
    """Return the form of a node's state, whose meaning depends on the state."""
    begin = "Node is in an ineligible state: "
    if not said.startswith(begin):
        return ()
    state = said.removeprefix(begin).strip().rstrip(".")
    code = _STATE_CODES.get(state, "nodes-down")
    words = {
        "busy": ("waits for the node to become free ({state})", "wait"),
        "preparing": ("waits for its node, which makes itself ready ({state})", "wait"),
        "nodes-down": (
            "waits: the nodes that fit are out of service ({state})",
            "take other nodes, or ask the administrator when they are back: pbsnodes -l",
        ),
    }[code]
    return (Form(begin + "{state}", code, *words),)
