"""Who waits and who has the nodes, from one `squeue`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tunnelkit.diagnosis.evidence.cluster import QueuedJob, RunningJob
from tunnelkit.scheduler.slurm.inspect.job import nodes_of

_ABSENT = {"", "N/A", "(null)", "Unknown", "NONE"}
_STEPS = re.compile(r"([0-9]+)(?:-([0-9]+))?(?::([0-9]+))?")
#: More elements than a job array can have.
_MOST_ELEMENTS = 4_000_001


class _Nodes:
    """Node lists, each text expanded once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, ...]] = dict.fromkeys(_ABSENT, ())

    def of(self, text: str) -> tuple[str, ...]:
        if text not in self._known:
            plain = "[" not in text and "," not in text
            self._known[text] = (text,) if plain else nodes_of(text)
        return self._known[text]


def parse_queue(text: str, *, but: str = "") -> tuple[QueuedJob, ...]:
    """Return the waiting jobs but one, highest priority first, then the lowest number."""
    nodes = _Nodes()
    splits: dict[str, tuple[str, ...]] = {}
    found: list[tuple[int, int, QueuedJob]] = []
    for row in _rows(text):
        state, job_id, user, names, priority, start, _, _, planned, _, reason = row
        if state != "PD" or job_id == but:
            continue
        base = re.match(r"[0-9]+", job_id)
        if not base or base[0] == but:
            continue
        rank = int(priority) if priority.isdecimal() else None
        one = QueuedJob(
            job_id=job_id,
            user="" if user in _ABSENT else user,
            priority=rank,
            reason=reason,
            expected_start_s=_time(start),
            expected_nodes=nodes.of(planned),
            partitions=splits.setdefault(names, tuple(names.split(","))),
            elements=_elements(job_id) if "[" in job_id else 1,
        )
        found.append((-(rank or 0), int(base[0]), one))
    return tuple(one for _, _, one in sorted(found, key=lambda row: row[:2]))


def parse_running(text: str) -> tuple[RunningJob, ...]:
    """Return the jobs that have nodes; those that end now, too."""
    nodes = _Nodes()
    found = []
    for row in _rows(text):
        state, job_id, user, _, _, _, end, cpus, _, where, _ = row
        if state == "PD" or where in _ABSENT:
            continue
        found.append(
            RunningJob(
                job_id=job_id,
                user="" if user in _ABSENT else user,
                nodes=nodes.of(where),
                ends_s=_time(end),
                cpus=int(cpus) if cpus.isdecimal() else 0,
            )
        )
    return tuple(found)


def _rows(text: str) -> Iterator[Sequence[str]]:
    """Yield the rows of squeue. Names of partitions and users hold no separator; the reason,
    which may, stands last."""
    for line in text.splitlines():
        row = line.split("|", 10)
        if len(row) == 11:
            yield row


def _time(text: str) -> float | None:
    return float(text) if text.isdecimal() and 9 <= len(text) <= 12 else None


def _elements(job_id: str) -> int:
    """Return how many elements `12_[1-9:2,20%4]` names; squeue cuts a long list with `...`."""
    inside = job_id.partition("[")[2].partition("]")[0].partition("%")[0]
    total = 0
    for match in _STEPS.finditer(inside):
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        total += max(0, (last - first) // max(1, step) + 1)
    return min(max(total, 1), _MOST_ELEMENTS)
