"""Nodes and partitions, from `sinfo -N -O` and `scontrol show partition -o`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from tunnelkit.diagnosis.evidence.cluster import GpuCount, NodeView, PartitionView
from tunnelkit.scheduler.slurm.duration import parse_duration
from tunnelkit.scheduler.slurm.inspect.job import nodes_of

_MIB = 1 << 20
_MOST_REASON = 1000
#: A state's flag, one character after its name -> the name that the flag stands for.
_FLAGS = {
    "*": "not_responding",
    "~": "powered_down",
    "#": "powering_up",
    "!": "power_down",
    "%": "powering_down",
    "$": "maint",
    "@": "reboot",
    "^": "reboot",
    "-": "planned",
}
_GRES = re.compile(r"([^:,()]+)(?::([^:,()]+|\(null\)))?(?::([0-9]{1,9})([KM]?))?(?:\([^)]*\))?")
_KEY = re.compile(r"(?:^| )(\w+)=")


def parse_nodes(text: str, partitions: Sequence[PartitionView] = ()) -> tuple[NodeView, ...]:
    """Return the nodes by name; lines that are none are left out."""
    inside: dict[str, list[str]] = defaultdict(list)
    for one in partitions:
        for name in one.nodes:
            inside[name].append(one.name)
    shared = _Shared()
    found: dict[str, NodeView] = {}
    for line in dict.fromkeys(text.splitlines()):
        values = line.split("|", 10)
        if len(values) == 11 and values[0].strip() and values[0] not in found:
            node = _node(values, shared.names(inside.get(values[0], ())), shared)
            if node is not None:
                found[node.name] = node
    return tuple(found.values())


class _Shared:
    """Values that many nodes have, made once: features, GPUs, partitions."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, ...], frozenset[str]] = {}
        self._states: dict[str, frozenset[str]] = {}
        self._gpus: dict[tuple[str, str], tuple[GpuCount, ...]] = {}

    def names(self, names: Sequence[str]) -> frozenset[str]:
        return self._names.setdefault(tuple(names), frozenset(names))

    def states(self, text: str) -> frozenset[str]:
        if text not in self._states:
            self._states[text] = states_of(text)
        return self._states[text]

    def gpus(self, total: str, used: str) -> tuple[GpuCount, ...]:
        if (total, used) not in self._gpus:
            self._gpus[total, used] = gpus_of_node(total, used)
        return self._gpus[total, used]


def _node(values: Sequence[str], inside: frozenset[str], shared: _Shared) -> NodeView | None:
    name, state, cpus, memory, allocated, gres, used, features, by, since, reason = values
    counts = cpus.split("/")
    if len(counts) != 4 or not all(one.isdecimal() for one in (*counts, memory)):
        return None
    reason = reason[:_MOST_REASON].rstrip().removesuffix("|")
    told = reason not in ("none", "")
    return NodeView(
        name=name,
        partitions=inside,
        states=shared.states(state),
        cpus=int(counts[3]),
        cpus_idle=int(counts[1]),
        cpus_taken=int(counts[0]),
        mem_bytes=int(memory) * _MIB,
        mem_allocated_bytes=int(allocated) * _MIB if allocated.isdecimal() else 0,
        gpus=shared.gpus(gres, used),
        features=shared.names([] if features in ("(null)", "") else features.split(",")),
        reason=reason if told else "",
        reason_by=by if told and by != "Unknown" else "",
        since_s=float(since) if told and re.fullmatch(r"[0-9]{9,12}", since) else None,
    )


def states_of(text: str) -> frozenset[str]:
    """Return the states of `mixed-`, `idle+drain` or `down*`; flags by name."""
    found: set[str] = set()
    for part in text.strip().lower().split("+"):
        name = part.rstrip("".join(_FLAGS))
        found.update(_FLAGS[flag] for flag in part[len(name) :])
        if name:
            found.add(name)
    return frozenset(found)


def gpus_of_node(total: str, used: str) -> tuple[GpuCount, ...]:
    """Return the GPUs of sinfo's Gres and GresUsed, by kind."""
    have, taken = _gres(total), _gres(used)
    found = []
    for kind, count in have.items():
        # Some releases print what is used without a kind.
        share = taken.get(kind, taken.get("", 0) if len(have) == 1 else 0)
        found.append(GpuCount(kind, count, min(share, count)))
    return tuple(found)


def _gres(text: str) -> dict[str, int]:
    """Return the number of GPUs by kind of `gpu:a100:3(IDX:0-2),gpu:(null):0(IDX:N/A)`."""
    found: dict[str, int] = defaultdict(int)
    for item in _items(text):
        match = _GRES.match(item.strip())
        if not match or match[1] != "gpu":
            continue
        kind, count = match[2] or "", match[3]
        if count is None and kind.isdecimal():
            kind, count = "", kind
        kind = "" if kind == "(null)" else kind
        found[kind] += int(count) if count else 1
    return dict(found)


def _items(text: str) -> Iterator[str]:
    """Split at the commas outside of parentheses."""
    depth, item = 0, ""
    for char in text:
        depth = max(0, depth + {"(": 1, ")": -1}.get(char, 0))
        if char == "," and not depth:
            yield item
            item = ""
        else:
            item += char
    yield item


def parse_partitions(text: str) -> tuple[PartitionView, ...]:
    """Return the partitions."""
    found = []
    for line in text.splitlines():
        values = keyed(line)
        if values.get("PartitionName"):
            found.append(
                PartitionView(
                    name=values["PartitionName"],
                    nodes=frozenset(nodes_of(values.get("Nodes", ""))),
                    up=values.get("State", "UP") == "UP",
                    tier=_number(values.get("PriorityTier", "")) or 0,
                    time_most_s=parse_duration(values.get("MaxTime", "")),
                    nodes_most=_number(values.get("MaxNodes", "")),
                    nodes_least=_number(values.get("MinNodes", "")) or 0,
                    qos="" if values.get("QoS") == "N/A" else values.get("QoS", ""),
                )
            )
    return tuple(found)


def keyed(line: str) -> dict[str, str]:
    """Return the fields of one `Key=value Key=value` line; values hold no blanks followed by a
    key."""
    marks = list(_KEY.finditer(line))
    found: dict[str, str] = {}
    for at, mark in enumerate(marks):
        end = marks[at + 1].start() if at + 1 < len(marks) else len(line)
        found.setdefault(mark[1], line[mark.end() : end].strip())
    return found


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None
