"""How often the kernel killed for memory in a job's cgroups, and whose limit was met.

Counts are rises since the start, added up: a step's group goes with the step, and so do its counts.
"""

from typing import Dict, List, NamedTuple, Optional

from tunnelkit.probe import cgroup
from tunnelkit.probe.box_record import Line

#: A kill follows the limit by so many looks at most: the kernel tries to free memory first.
_LOOKS_AFTER_LIMIT = 3
#: Shares of the node's memory: it is far from its end above the first, near it below the second.
_PLENTY, _LITTLE = 0.05, 0.10


class _Sum:
    """The rises of one level. oom: None once it is not certain. met: looks since its limit was
    met the last time."""

    def __init__(self, oom_counted: bool) -> None:
        self.oom_kill: Optional[int] = None
        self.refused: Optional[int] = None
        self.oom: Optional[int] = 0 if oom_counted else None
        self.unsure = False
        self.met = _LOOKS_AFTER_LIMIT


class Look(NamedTuple):
    """One look. killed: processes since the last one. available_bytes: of the node, before."""

    killed: int
    available_bytes: Optional[int]


class MemoryCounts:
    """Counts in the groups of this process, from its own up. job: its id as groups name it."""

    def __init__(self, job: str, proc: str = "/proc") -> None:
        self._proc = proc
        self._groups = cgroup.memory_groups(job, proc)
        self._sums = [_Sum(one.version == 2) for one in self._groups]
        self._last: Dict[str, cgroup.Memory] = {}
        self._now: Dict[str, cgroup.Memory] = {}
        self._begun = False
        self._node_start = cgroup.node_oom_kills(proc)
        self._total = cgroup.total_bytes(proc)
        self.available_bytes = cgroup.available_bytes(proc)

    @property
    def used_bytes(self) -> Optional[int]:
        """What the job has in use now; of the innermost group if no group is the job's alone."""
        at = self._counting()
        memory = None if at is None else self._now.get(self._groups[at].directory)
        return None if memory is None else memory.used_bytes

    def look(self) -> Look:
        """Read all counters."""
        self._now = {}
        before, after = self.available_bytes, cgroup.available_bytes(self._proc)
        at, killed = self._counting(), 0
        for number, (group, total) in enumerate(zip(self._groups, self._sums)):
            rise = self._add(group, total, before, after)
            if number == at:
                killed = rise
        self._last.update(self._now)
        self._begun, self.available_bytes = True, after
        return Look(killed, before)

    def lines(self) -> List[Line]:
        """Return the counters for the record."""
        found: List[Line] = []
        for group, total in zip(self._groups, self._sums):
            memory = self._last.get(group.directory)
            found.append(
                {
                    "kind": "memory",
                    "level": group.level,
                    "path": group.path[-300:],
                    "limit_bytes": None if memory is None else memory.limit_bytes,
                    "peak_bytes": None if memory is None else memory.peak_bytes,
                    "refused": total.refused,
                    "oom": None if total.unsure else total.oom,
                    "oom_kill": total.oom_kill,
                }
            )
        now, start = cgroup.node_oom_kills(self._proc), self._node_start
        rise = None if now is None or start is None else max(0, now - start)
        found.append({"kind": "node", "oom_kill": rise, "total_bytes": self._total})
        return found

    def _counting(self) -> Optional[int]:
        """Return which group has all of the job's kills: the job's, else the innermost."""
        levels = [one.level for one in self._groups]
        return levels.index("job") if "job" in levels else (0 if levels else None)

    def _add(
        self, group: cgroup.Group, total: _Sum, before: Optional[int], after: Optional[int]
    ) -> int:
        """Add a level's rises since the last look; return that of its kills."""
        killed = refused = 0
        oom: Optional[int] = None
        limit = None
        for directory in cgroup.counted(group):
            now = self._now.get(directory)
            if now is None:
                now = self._now[directory] = cgroup.read_memory(directory, group.version)
            if directory == group.directory:
                limit = now.limit_bytes
            was = self._last.get(directory, _EMPTY if self._begun else now)
            killed += _rise(was.oom_kill, now.oom_kill)
            refused += _rise(was.refused, now.refused)
            if now.oom is not None:
                oom = (oom or 0) + _rise(was.oom, now.oom)
            total.oom_kill = _known(total.oom_kill, now.oom_kill)
            total.refused = _known(total.refused, now.refused)
        total.oom_kill = None if total.oom_kill is None else total.oom_kill + killed
        total.refused = None if total.refused is None else total.refused + refused
        total.met = 0 if refused else min(total.met + 1, _LOOKS_AFTER_LIMIT)
        if group.version == 2:
            total.oom = None if total.oom is None or oom is None else total.oom + oom
        elif killed:
            self._judge(total, killed, limit, before, after)
        return killed

    def _judge(
        self,
        total: _Sum,
        killed: int,
        limit: Optional[int],
        before: Optional[int],
        after: Optional[int],
    ) -> None:
        """Version 1: say whether it was this level's limit, by what the node had free."""
        met = total.met < _LOOKS_AFTER_LIMIT
        if self._total is None or before is None or after is None:
            total.unsure = True
        elif met:
            # At most the limit can have become free by a kill in this group.
            had = max(before, after - (limit or self._total))
            total.oom = (total.oom or 0) + killed
            total.unsure = total.unsure or had < self._total * _PLENTY
        else:
            total.oom = total.oom or 0
            total.unsure = total.unsure or before > self._total * _LITTLE


_EMPTY = cgroup.Memory(None, None, None, 0, 0, 0)


def _rise(was: Optional[int], now: Optional[int]) -> int:
    return 0 if was is None or now is None else max(0, now - was)


def _known(total: Optional[int], now: Optional[int]) -> Optional[int]:
    """Return 0 instead of "not counted" once there is a count."""
    return 0 if total is None and now is not None else total
