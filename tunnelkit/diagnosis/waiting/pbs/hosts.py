"""The vnodes of one host together: PBS takes a chunk from one host, of any number of its vnodes.

Hosts have one vnode by default; with the cgroups hook's `vnode_per_numa_node` one for each socket.
Source: "chunk" in the PBS Professional Reference Guide's glossary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tunnelkit.diagnosis.evidence.cluster import NodeView

_HOST = "host="


def hosts_of(vnodes: Iterable[NodeView], not_free: frozenset[str]) -> list[NodeView]:
    """Return the vnodes, those of one host as one.

    not_free: the states of a vnode that takes no job now; nothing of it counts as free."""
    by_host: dict[tuple[str, frozenset[str]], list[NodeView]] = {}
    for one in vnodes:
        by_host.setdefault((_host(one), one.partitions), []).append(one)
    return [
        found[0] if len(found) == 1 else _together(host, found, not_free)
        for (host, _), found in by_host.items()
    ]


def _host(vnode: NodeView) -> str:
    names = (one.removeprefix(_HOST) for one in vnode.features if one.startswith(_HOST))
    return next(names, vnode.name)


def _together(host: str, vnodes: list[NodeView], not_free: frozenset[str]) -> NodeView:
    able = [one for one in vnodes if not one.states & not_free]
    counted = [one if one in able else _full(one) for one in vnodes]
    seen = able or vnodes
    return replace(
        seen[0],
        name=host,
        states=frozenset.intersection(*(one.states for one in seen)),
        cpus=sum(one.cpus for one in counted),
        cpus_idle=sum(one.cpus_idle for one in counted),
        mem_bytes=sum(one.mem_bytes for one in counted),
        mem_allocated_bytes=sum(one.mem_allocated_bytes for one in counted),
        gpus=tuple(gpu for one in counted for gpu in one.gpus),
        features=frozenset().union(*(one.features for one in vnodes)),
    )


def _full(vnode: NodeView) -> NodeView:
    return replace(
        vnode,
        cpus_idle=0,
        mem_allocated_bytes=vnode.mem_bytes,
        gpus=tuple(replace(gpu, used=gpu.total) for gpu in vnode.gpus),
    )
