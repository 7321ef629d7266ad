"""The jobs that wait and those that have nodes, from one `squeue`."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

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


def parse_queue(
    text: str, *, but: str = ""
) -> tuple[tuple[QueuedJob, ...], tuple[RunningJob, ...]]:
    """Return the waiting jobs but one, highest priority first, then the lowest number; and the
    jobs that have nodes, those that end now, too."""
    nodes = _Nodes()
    splits: dict[str, tuple[str, ...]] = {}
    waiting: list[tuple[int, int, QueuedJob]] = []
    running = []
    for line in text.splitlines():
        # Names hold no separator; the reason, which may, stands last.
        row = line.split("|", 12)
        if len(row) != 13:
            continue
        if row[0] == "PD":
            number = row[1].partition("_")[0].partition("+")[0]
            if number.isdecimal() and len(number) < 19 and but not in (number, row[1]):
                one = _waiting(row, nodes, splits)
                waiting.append((-(one.priority or 0), int(number), one))
        elif row[9] not in _ABSENT:
            running.append(_running(row, nodes))
    waiting.sort(key=_order)
    return tuple(one for _, _, one in waiting), tuple(running)


def _order(row: tuple[int, int, QueuedJob]) -> tuple[int, int]:
    return row[0], row[1]


def _waiting(row: Sequence[str], nodes: _Nodes, splits: dict[str, tuple[str, ...]]) -> QueuedJob:
    _, job_id, user, names, priority, start, _, _, planned, _, _, _, reason = row
    if names not in splits:
        splits[names] = tuple(names.split(","))
    return QueuedJob(
        job_id=job_id,
        user="" if user in _ABSENT else user,
        priority=int(priority) if priority.isdecimal() and len(priority) < 19 else None,
        reason=sys.intern(reason),
        expected_start_s=_time(start),
        expected_nodes=nodes.of(planned),
        partitions=splits[names],
        elements=_elements(job_id) if "[" in job_id else 1,
    )


def _running(row: Sequence[str], nodes: _Nodes) -> RunningJob:
    _, job_id, user, partition, _, _, end, cpus, _, where, qos, account, _ = row
    return RunningJob(
        job_id=job_id,
        user="" if user in _ABSENT else user,
        nodes=nodes.of(where),
        ends_s=_time(end),
        cpus=int(cpus) if cpus.isdecimal() and len(cpus) < 10 else 0,
        partition=sys.intern(partition),
        qos="" if qos in _ABSENT else sys.intern(qos),
        account="" if account in _ABSENT else sys.intern(account),
    )


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
