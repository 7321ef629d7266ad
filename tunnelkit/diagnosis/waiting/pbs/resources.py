"""Comments of PBS that name a resource: what is missing, or whose limit it is.

`Insufficient amount of resource: ngpus (R: 2 A: 0 T: 2)`: asked for by the whole job, free on the
nodes that it may use, and all that these have. Without amounts PBS speaks of a single node.
"""

from __future__ import annotations

import re

from tunnelkit.diagnosis.waiting.pbs.forms import Form

_WAIT_FOR_OWN = "wait until one of your jobs ends, or end one"
_WAIT_FOR_GROUP = "wait until a job of the group or project ends, or ask for less"
_QUEUE = "wait, or use another queue: `qstat -Q` lists them"
#: `{thing}` is the resource in words; `{res}` is PBS's name for it.
LIMIT_FORMS: tuple[Form, ...] = (
    Form("Queue {queue} per-user limit reached on resource {res}", "limit-user",
         "waits: your jobs in queue {queue} use all the {thing} that one user may", _WAIT_FOR_OWN),
    Form("Server per-user limit reached on resource {res}", "limit-user",
         "waits: your jobs use all the {thing} that one user may", _WAIT_FOR_OWN),
    Form("Queue {queue} per-group limit reached on resource {res}", "limit-account",
         "waits: your group's jobs in queue {queue} use all the {thing} that it may",
         _WAIT_FOR_GROUP),
    Form("Server per-group limit reached on resource {res}", "limit-account",
         "waits: your group's jobs use all the {thing} that it may", _WAIT_FOR_GROUP),
    Form("Queue {queue} per-project limit reached on resource {res}", "limit-account",
         "waits: its project's jobs in queue {queue} use all the {thing} that it may",
         _WAIT_FOR_GROUP),
    Form("Server per-project limit reached on resource {res}", "limit-account",
         "waits: its project's jobs use all the {thing} that it may", _WAIT_FOR_GROUP),
    Form("would exceed user {who}'s limit on resource {res} in complex", "limit-user",
         "waits: with it {who} would have more {thing} than allowed", _WAIT_FOR_OWN),
    Form("would exceed user {who}'s limit on resource {res} in queue {queue}", "limit-user",
         "waits: with it {who} would have more {thing} in queue {queue} than allowed",
         _WAIT_FOR_OWN),
    Form("would exceed group {who}'s limit on resource {res} in complex", "limit-account",
         "waits: with it group {who} would have more {thing} than allowed", _WAIT_FOR_GROUP),
    Form("would exceed group {who}'s limit on resource {res} in queue {queue}", "limit-account",
         "waits: with it group {who} would have more {thing} in queue {queue} than allowed",
         _WAIT_FOR_GROUP),
    Form("would exceed project {who}'s limit on resource {res} in complex", "limit-account",
         "waits: with it project {who} would have more {thing} than allowed", _WAIT_FOR_GROUP),
    Form("would exceed project {who}'s limit on resource {res} in queue {queue}",
         "limit-account",
         "waits: with it project {who} would have more {thing} in queue {queue} than allowed",
         _WAIT_FOR_GROUP),
    Form("would exceed overall limit on resource {res} in complex", "limit-queue",
         "waits: with it all jobs together would have more {thing} than allowed", "wait"),
    Form("would exceed overall limit on resource {res} in queue {queue}", "limit-queue",
         "waits: with it all jobs of queue {queue} together would have more {thing} than allowed",
         _QUEUE),
)  # fmt: skip

_WORDS = {
    "ncpus": "CPUs",
    "ngpus": "GPUs",
    "gpus": "GPUs",
    "mem": "memory",
    "vmem": "virtual memory",
    "host": "node",
    "vnode": "node",
    "walltime": "time",
    "cput": "CPU time",
    "nodect": "nodes",
    "mpiprocs": "MPI processes",
}
_LACK = re.compile(
    r"Insufficient amount of (?P<pool>queue |server |)resource:? *(?P<res>[^\s(]*) *(?P<detail>.*)",
    re.IGNORECASE | re.DOTALL,
)
_AMOUNTS = re.compile(r"\(R: (\S+) A: (\S+) T: (\S+)\)")
_DIFFERS = re.compile(r"\((\S*) != (.*)\)", re.DOTALL)
_SIZE = re.compile(r"([0-9]+)([kmgtp]?)b", re.IGNORECASE)
_POWERS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}


def thing(name: str) -> str:
    """Return a resource in words: "GPUs" for ngpus; another's own name."""
    return _WORDS.get(name, name or "resources")


def amounts_of(said: str) -> tuple[str, str, str] | None:
    """Return what is asked for, free, and there in all, in a comment with `(R: 2 A: 0 T: 2)`."""
    match = _AMOUNTS.search(said)
    return (readable(match[1]), readable(match[2]), readable(match[3])) if match else None


def readable(amount: str) -> str:
    """Return `23.5 GB` for `24684096kb`; other amounts as they are."""
    match = _SIZE.fullmatch(amount)
    if not match:
        return amount
    size = int(match[1]) << _POWERS[match[2].lower()]
    if size >= 1 << 30:
        return f"{size / (1 << 30):.1f}".removesuffix(".0") + " GB"
    return f"{size / (1 << 20):.1f}".removesuffix(".0") + " MB"


def find_lack(said: str) -> tuple[Form, dict[str, str]] | None:
    """Return the form of a comment about too little of a resource; None if it is another."""
    match = _LACK.fullmatch(said)
    if not match:
        return None
    res, detail, pool = match["res"], match["detail"].strip(), match["pool"].strip().lower()
    filled = {"res": res, "thing": thing(res), "pool": pool, "detail": detail}
    filled["amounts"] = f"{res}{_amounts(detail)}"
    if differs := _DIFFERS.search(detail):
        filled.update(asked=differs[1], there=differs[2])
        return _differs_form(said, res), filled
    if pool:
        return _pool_form(said), filled
    return _node_form(said, res, detail), filled


def _amounts(detail: str) -> str:
    amounts = amounts_of(detail)
    return f": {amounts[0]} asked for, {amounts[1]} free of {amounts[2]}" if amounts else ""


def _differs_form(text: str, res: str) -> Form:
    if res in ("host", "vnode"):
        return Form(
            text, "never", "waits in vain: it asks for node {asked}, and there are {there}",
            "cancel it, and name a node that there is", "qdel {job}",
        )  # fmt: skip
    return Form(
        text, "never", "waits in vain: it asks for {res} {asked}, and there is {there}",
        "cancel it, and ask for what nodes have: `pbsnodes -a` lists it", "qdel {job}",
    )  # fmt: skip


def _pool_form(text: str) -> Form:
    return Form(
        text, "limit-queue",
        "waits: the {thing} of the {pool} are used up by jobs that run ({amounts})",
        "wait, or ask for less",
    )  # fmt: skip


def _node_form(text: str, res: str, detail: str) -> Form:
    if res in ("host", "vnode"):
        return Form(text, "busy", "waits for the node to become free", "wait, or name no node")
    if not _AMOUNTS.search(detail):
        # PBS does not say whether any node can ever have as much.
        return Form(
            text, "busy",
            "waits for the {thing} to become free on one node; `pbsnodes NODE` shows how many "
            "it has ({res})", "wait, or ask for less on a node",
        )  # fmt: skip
    return Form(
        text, "busy", "waits for the {thing} to become free ({amounts})",
        "wait, or ask for less",
    )  # fmt: skip
