"""The nodes of PBS, beside its comment: does one part of the job fit on a node, and where.

PBS names no node, and says nothing of what is free but scattered. What is found here is likely,
never proven: a site may have rules of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from tunnelkit.diagnosis.evidence.cluster import ClusterView, NodeView
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict
from tunnelkit.diagnosis.waiting.pbs.hosts import hosts_of
from tunnelkit.diagnosis.waiting.pbs.resources import readable

SOURCE = "pbsnodes -a"
#: A node with one of these states takes no job now.
_OUT = frozenset(
    {"offline", "offline_by_mom", "down", "state-unknown", "stale", "unresolvable"}
    | {"maintenance", "resv-exclusive", "drained", "reserved", "maint"}
)
#: A job has it for itself, or it is being made ready.
_CLOSED = frozenset({"job-exclusive", "busy", "provisioning", "wait-provisioning"})
#: Of a node where PBS counts no memory: any amount fits.
_UNCOUNTED = 1 << 62
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Amounts:
    """CPUs, memory and GPUs."""

    cpus: int
    mem_bytes: int
    gpus: int

    def lacks(self, need: Amounts) -> dict[str, str]:
        """Return what is less than `need`, in words by name."""
        found = {}
        if self.cpus < need.cpus:
            found["CPUs"] = str(need.cpus - self.cpus)
        if self.mem_bytes < need.mem_bytes:
            found["memory"] = readable(f"{need.mem_bytes - self.mem_bytes}b")
        if self.gpus < need.gpus:
            found["GPUs"] = str(need.gpus - self.gpus)
        return found


def judge_nodes(job: JobView, cluster: ClusterView) -> Verdict | None:
    """Return why no node can take a part of the job now; None if one can, or nodes are unknown."""
    need = _need(job)
    nodes = [one for one in cluster.nodes if job.partition in one.partitions]
    suitable = hosts_of((one for one in nodes if _suits(one, job)), _OUT | _CLOSED)
    if not nodes:
        return None
    able = [one for one in suitable if not total(one).lacks(need)]
    if not able:
        return _never(job, need, nodes, suitable)
    up = [one for one in able if not one.states & _OUT]
    if not up:
        return _down(able)
    if any(not free(one).lacks(need) and not _closed(one) for one in up):
        return None
    return _taken(need, up)


def total(node: NodeView) -> Amounts:
    """Return what a node has."""
    memory = node.mem_bytes or _UNCOUNTED
    return Amounts(node.cpus, memory, sum(one.total for one in node.gpus))


def free(node: NodeView) -> Amounts:
    """Return what jobs have left of a node."""
    return Amounts(
        node.cpus_idle,
        max(0, node.mem_bytes - node.mem_allocated_bytes) if node.mem_bytes else _UNCOUNTED,
        sum(max(0, one.total - one.used) for one in node.gpus),
    )


def _need(job: JobView) -> Amounts:
    gpus = sum(one.count for one in job.need.gpus)
    return Amounts(job.need.cpus, job.need.mem_bytes or 0, gpus)


def _suits(node: NodeView, job: JobView) -> bool:
    names = {node.name, *(one.partition("=")[2] for one in node.features if _names(one))}
    if job.required_nodes and not names & set(job.required_nodes):
        return False
    wanted = [one for one in job.need.features.split("&") if one]
    return all(one in node.features or _is_unset(one, node) for one in wanted)


def _is_unset(feature: str, node: NodeView) -> bool:
    """True if a boolean must be False, and the node has no value of it: PBS takes that as
    False."""
    name, _, value = feature.partition("=")
    return value == "False" and not any(one.startswith(f"{name}=") for one in node.features)


def _names(feature: str) -> bool:
    return feature.startswith(("host=", "vnode="))


def _closed(node: NodeView) -> bool:
    return bool(node.states & _CLOSED)


def _never(job: JobView, need: Amounts, nodes: list[NodeView], suitable: list[NodeView]) -> Verdict:
    steps = (NextStep("cancel it, and ask for what a node has", f"qdel {job.job_id}"),)
    if not suitable:
        named = " ".join(job.required_nodes) or job.need.features.replace("&", ", ")
        seen = Evidence(f"none of {len(nodes)} nodes is or has {named}", SOURCE, "nodes")
        sentence = f"can never run: no node of queue {job.partition} is or has {named}"
        return Verdict("never", sentence, Certainty.LIKELY, (seen,), next_steps=steps)
    best = min(suitable, key=lambda one: len(total(one).lacks(need)))
    have = total(best)
    where = f"node {best.name} has less than" if job.required_nodes else "no node has"
    lacks = ", ".join(f"{amount} {what}" for what, amount in have.lacks(need).items())
    sentence = f"can never run: {where} what it asks for"
    text = f"{best.name}, when empty: {_words(have)}; {lacks} short"
    seen = Evidence(text, SOURCE, "nearest")
    asked = Evidence(_words(need), "qstat -f: Resource_List", "asked")
    return Verdict("never", sentence, Certainty.LIKELY, (asked, seen), next_steps=steps)


def _down(able: list[NodeView]) -> Verdict:
    seen = tuple(
        Evidence(
            f"{one.name} {','.join(sorted(one.states & _OUT))}"
            + (f": {one.reason}" if one.reason else ""),
            SOURCE, "nodes", one.since_s,
        )
        for one in able[:_MOST_NAMED]
    )  # fmt: skip
    names = _names_of(able)
    return Verdict(
        "nodes-down",
        f"waits: all nodes that it fits on are out of service ({names})",
        Certainty.LIKELY,
        seen,
        next_steps=(NextStep("ask the administrator when they are back, or take others"),),
    )


def _taken(need: Amounts, up: list[NodeView]) -> Verdict:
    rooms = [(one, free(one)) for one in up if not _closed(one)]
    whole = Amounts(
        sum(room.cpus for _, room in rooms),
        sum(room.mem_bytes for _, room in rooms),
        sum(room.gpus for _, room in rooms),
    )
    seen = [Evidence(_words(need), "qstat -f: Resource_List", "asked")]
    if len(rooms) > 1 and not whole.lacks(need):
        seen += _nearest(need, rooms)
        return Verdict(
            "fragmented",
            "waits: enough is free, but on several nodes, and it asks for it on one",
            Certainty.LIKELY,
            tuple(seen),
            next_steps=(NextStep("ask for less on a node, or spread it over nodes; or wait"),),
        )
    return Verdict(
        "busy",
        f"waits: the nodes that it fits on are in use ({_names_of(up)})",
        Certainty.LIKELY,
        (*seen, *_nearest(need, rooms)),
        next_steps=(NextStep("wait, or ask for less"),),
    )


def _nearest(need: Amounts, rooms: list[tuple[NodeView, Amounts]]) -> list[Evidence]:
    def misses(row: tuple[NodeView, Amounts]) -> tuple[int, str]:
        return len(row[1].lacks(need)), row[0].name

    return [
        Evidence(f"{node.name} {_words(room)}", SOURCE, "free")
        for node, room in sorted(rooms, key=misses)[:_MOST_NAMED]
    ]


def _words(amounts: Amounts) -> str:
    words = [_count(amounts.cpus, "CPU")]
    if amounts.gpus:
        words.insert(0, _count(amounts.gpus, "GPU"))
    if 0 < amounts.mem_bytes < _UNCOUNTED:
        words.append(readable(f"{amounts.mem_bytes}b"))
    return ", ".join(words)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _names_of(nodes: list[NodeView]) -> str:
    names = [one.name for one in nodes[:_MOST_NAMED]]
    return ", ".join(names) + (
        f" and {len(nodes) - _MOST_NAMED} more" if len(nodes) > _MOST_NAMED else ""
    )
