"""The request of a job of PBS: `-l select=`, `-l nodes=` and sizes such as `24684096kb`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tunnelkit.diagnosis.evidence.job import GpuNeed, NodeNeed

_SIZE = re.compile(r"([0-9]{1,18})([kmgtp]?)([bw]?)", re.IGNORECASE)
_POWERS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_TRUE, _FALSE = {"t", "true", "y", "yes"}, {"f", "false", "n", "no"}
_COUNT = re.compile(r"[0-9]{1,9}")
#: Resources of a chunk that say nothing about which node can have it.
_NO_PROPERTY = {"ncpus", "ngpus", "mem", "vmem", "mpiprocs", "ompthreads", "host", "vnode"}
#: Torque's names for PBS's resources.
_TORQUE = {"ppn": "ncpus", "gpus": "ngpus"}
#: No job has more kinds of chunks; what is beyond is not read.
_CHUNKS = 200


@dataclass(frozen=True, slots=True)
class Chunk:
    """One part of a request: `count` times the resources, each on one node."""

    count: int
    resources: Mapping[str, str]

    def number(self, name: str) -> int:
        """Return how many of a resource; 0 if none is asked for."""
        return count_of(self.resources.get(name, "")) or 0

    @property
    def mem_bytes(self) -> int | None:
        """The memory; None if none is asked for."""
        return size_bytes(self.resources.get("mem", ""))


def size_bytes(text: str) -> int | None:
    """Return the bytes of PBS's `4gb`, `24684096kb` or `512`; a word has eight bytes."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        return None
    scale = 8 if match[3].lower() == "w" else 1
    return int(match[1]) * scale << _POWERS[match[2].lower()]


def count_of(text: str) -> int | None:
    """Return a plain number; None for anything else."""
    return int(text) if _COUNT.fullmatch(text.strip()) else None


def chunks_of(select: str) -> tuple[Chunk, ...]:
    """Return the parts of `2:ncpus=1:ngpus=1+node7:ppn=4`."""
    found = []
    for part in select.split("+")[:_CHUNKS]:
        words = part.strip().split(":")
        count = count_of(words[0])
        resources: dict[str, str] = {}
        for at, word in enumerate(words if count is None else words[1:]):
            name, equals, value = word.partition("=")
            if equals:
                resources[_TORQUE.get(name, name)] = value
            elif word and count is None and at == 0:
                resources["host"] = word  # Torque: nodes=node7:ppn=4
            elif word:
                resources[word] = "True"
        found.append(Chunk(1 if count is None else count, resources))
    return tuple(found)


def need_of(chunks: tuple[Chunk, ...], place: str) -> tuple[int, NodeNeed, tuple[str, ...]]:
    """Return how many nodes at most, what the largest part needs, and the node that it names.

    place=pack puts all on one node."""
    if not chunks:
        return 1, NodeNeed(), ()
    if "pack" in place.split(":"):
        return 1, _together(chunks), _host(chunks[0])
    largest = max(chunks, key=lambda one: (one.number("ngpus"), one.number("ncpus")))
    return max(1, sum(one.count for one in chunks)), _need(largest), _host(largest)


def needs_of(chunks: tuple[Chunk, ...], place: str) -> tuple[int, NodeNeed, NodeNeed]:
    """Return how many nodes at most, what the script's node needs, and what all need together.

    A script runs in its job's first chunk. place=pack puts all on one node."""
    whole = _together(chunks)
    if "pack" in place.split(":"):
        return 1, whole, whole
    return max(1, sum(one.count for one in chunks)), _need(chunks[0]), whole


def _together(chunks: tuple[Chunk, ...]) -> NodeNeed:
    memory = [one.mem_bytes * one.count for one in chunks if one.mem_bytes]
    gpus = sum(one.number("ngpus") * one.count for one in chunks)
    return NodeNeed(
        sum((one.number("ncpus") or 1) * one.count for one in chunks),
        sum(memory) or None,
        (GpuNeed(gpus),) if gpus else (),
        _features(chunks[0]),
    )


def _need(chunk: Chunk) -> NodeNeed:
    gpus = chunk.number("ngpus")
    return NodeNeed(
        chunk.number("ncpus") or 1,
        chunk.mem_bytes,
        (GpuNeed(gpus),) if gpus else (),
        _features(chunk),
    )


def folded(value: str) -> str:
    """Return PBS's booleans in one spelling: a node says `True`, a user may write `true` or `y`."""
    low = value.lower()
    return "True" if low in _TRUE else "False" if low in _FALSE else value


def _features(chunk: Chunk) -> str:
    """Return `gpu_model=a100&scratch=True`; a number may be an amount, and is left out."""
    return "&".join(
        f"{name}={folded(value)}"
        for name, value in chunk.resources.items()
        if name not in _NO_PROPERTY and not re.fullmatch(r"[0-9.]+([kmgtp]?[bw])?", value)
    )


def _host(chunk: Chunk) -> tuple[str, ...]:
    name = chunk.resources.get("host") or chunk.resources.get("vnode") or ""
    return (name,) if name else ()
