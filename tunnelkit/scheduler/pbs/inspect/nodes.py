"""`pbsnodes -a -F json` as NodeViews: the same rows as Slurm's, so that one arithmetic serves."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from tunnelkit.diagnosis.evidence.cluster import GpuCount, NodeView
from tunnelkit.scheduler.pbs.inspect.request import count_of, folded, size_bytes

#: PBS's state of a node -> Slurm's flag with the same meaning.
_FLAGS = {
    "free": "idle",
    "job-busy": "allocated",
    "job-exclusive": "allocated",
    "busy": "allocated",
    "offline": "drained",
    "offline_by_mom": "drained",
    "down": "down",
    "state-unknown": "down",
    "stale": "down",
    "unresolvable": "down",
    "resv-exclusive": "reserved",
    "maintenance": "maint",
    "provisioning": "powering_up",
    "wait-provisioning": "powering_up",
    "sleep": "powered_down",
}
#: Resources that every node has, and that no job chooses a node by.
_COMMON = {"ncpus", "ngpus", "mem", "vmem", "hpmem", "host", "vnode", "accelerator_memory"}

#: A longer comment is cut.
_LONGEST = 300


def node_views(text: str, queue: str) -> tuple[NodeView, ...] | None:
    """Return the nodes; None if the JSON is malformed. queue: of the job that waits."""
    start = text.find("{")
    try:
        told = json.loads(text[start:] if start >= 0 else "", strict=False)
    except (ValueError, RecursionError):
        return None
    nodes = told.get("nodes") if isinstance(told, dict) else None
    if not isinstance(nodes, dict):
        return None
    return tuple(
        _node(str(name), row, queue) for name, row in nodes.items() if isinstance(row, dict)
    )


def _node(name: str, row: Mapping[str, object], queue: str) -> NodeView:
    has, taken = _table(row, "resources_available"), _table(row, "resources_assigned")
    cpus, used = count_of(has.get("ncpus", "")) or 0, count_of(taken.get("ncpus", "")) or 0
    gpus = count_of(has.get("ngpus", "")) or 0
    own = str(row.get("queue", "")) or queue
    return NodeView(
        name=name,
        partitions=frozenset({own}),
        states=frozenset(_states(str(row.get("state", "")), used)),
        cpus=cpus,
        cpus_idle=max(0, cpus - used),
        mem_bytes=size_bytes(has.get("mem", "")) or 0,
        mem_allocated_bytes=size_bytes(taken.get("mem", "")) or 0,
        gpus=(GpuCount("", gpus, count_of(taken.get("ngpus", "")) or 0),) if gpus else (),
        features=frozenset(_features(name, has)),
        reason=str(row.get("comment", ""))[:_LONGEST],
        since_s=_since_s(row.get("last_state_change_time")),
    )


def _table(row: Mapping[str, object], name: str) -> Mapping[str, str]:
    found = row.get(name)
    return {key: str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def _states(text: str, used: int) -> Iterator[str]:
    """Yield PBS's own words and the flags for them."""
    for word in text.lower().split(","):
        if word := word.strip():
            yield word
            flag = _FLAGS.get(word, "")
            if flag:
                yield "mixed" if flag == "idle" and used else flag


def _features(name: str, has: Mapping[str, str]) -> Iterator[str]:
    """Yield `gpu_model=a100`; of a list each one. `host=` and `vnode=` name the node."""
    yield from (f"host={has.get('host', name)}", f"vnode={has.get('vnode', name)}")
    for key, value in has.items():
        if key not in _COMMON:
            yield from (f"{key}={folded(one.strip())}" for one in value.split(","))


def _since_s(value: object) -> float | None:
    return float(value) if isinstance(value, int) and 0 < value < 10**11 else None
