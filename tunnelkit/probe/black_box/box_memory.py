"""Counts of the kernel's kills for memory in a job's cgroups, and whose limit was met.

Counts are rises since the start, added up: a step's group goes with the step, and so do its counts.
"""

from typing import Dict, List, NamedTuple, Optional

from tunnelkit.probe import cgroup
from tunnelkit.probe.black_box.box_record import Line

#: A kill follows the limit by so many looks at most: the kernel tries to free memory first.
_LOOKS_AFTER_LIMIT = 3
#: Shares of the node's memory: it is far from its end above the first, near it below the second.
_PLENTY, _LITTLE = 0.05, 0.10


class Look(NamedTuple):
    """One reading. killed: processes since the last one. available_bytes: of the node, before."""

    killed: int
    available_bytes: Optional[int]


class _Level:
    """The rises of one group. since_met: looks since its limit was met the last time."""

    def __init__(self, group: cgroup.Group) -> None:
        self.group = group
        #: The kernel counts `oom` here. Above a job it counts others' too.
        self.reported = group.version == 2 and group.level != "above"
        self.oom: Optional[int] = 0
        self.oom_kill: Optional[int] = None
        self.refused: Optional[int] = None
        self.limit_bytes: Optional[int] = None
        self.peak_bytes: Optional[int] = None
        self.used_bytes: Optional[int] = None
        self.since_met = _LOOKS_AFTER_LIMIT
        self.swap_full = False

    def add(self, was: cgroup.Memory, now: cgroup.Memory) -> int:
        """Add the rises of one directory; return that of its kills."""
        killed, refused = _rise(was.oom_kill, now.oom_kill), _rise(was.refused, now.refused)
        if now.oom_kill is not None:
            self.oom_kill = (self.oom_kill or 0) + killed
        if now.refused is not None:
            self.refused = (self.refused or 0) + refused
        if refused:
            self.since_met = -1
        if self.reported:
            known = self.oom is not None and now.oom is not None
            self.oom = (self.oom or 0) + _rise(was.oom, now.oom) if known else None
        return killed

    def judge(self, killed: int, before: Optional[int], after: Optional[int], total: int) -> None:
        """Say whether a kill was for this group's limit, by what the node had free: page cache
        meets a limit as well."""
        if self.reported or self.oom is None or self.limit_bytes is None:
            return
        if self.refused is None or before is None or after is None:
            self.oom = None
        elif self.since_met < _LOOKS_AFTER_LIMIT or self.swap_full:
            # At most the limit can have become free by a kill in this group.
            had = max(before, after - self.limit_bytes)
            self.oom = self.oom + killed if had >= total * _PLENTY else None
        elif before > total * _LITTLE:
            self.oom = None

    def line(self, *, alone: bool) -> Line:
        """Return the counters. alone: no other level is the job's own."""
        above = self.group.level == "above"
        return {
            "kind": "memory",
            "level": self.group.level,
            "path": self.group.path[-300:],
            "limit_bytes": self.limit_bytes,
            "peak_bytes": self.peak_bytes,
            "refused": self.refused,
            "oom": None if alone else self.oom,
            "oom_kill": self.oom_kill if alone or not above else None,
        }


class MemoryCounts:
    """Counts in the groups of this process, from its own up. job: its id as groups name it."""

    def __init__(self, job: str, proc: str = "/proc") -> None:
        self._proc = proc
        groups = [one for one in cgroup.memory_groups(job, proc) if cgroup.counts_memory(one)]
        self._levels = [_Level(one) for one in groups]
        names = [one.group.level for one in self._levels]
        #: Has all of the job's kills: the job's group, else the innermost.
        self._whole = self._levels[names.index("job") if "job" in names else 0 :][:1]
        self._alone = "job" not in names
        self._last: Dict[str, cgroup.Memory] = {}
        self._node_start = cgroup.node_oom_kills(proc)
        self._total = cgroup.total_bytes(proc) or 0
        self.available_bytes = cgroup.available_bytes(proc)

    @property
    def used_bytes(self) -> Optional[int]:
        """Memory that the job uses now; of the innermost group if no group is the job's alone."""
        return next((one.used_bytes for one in self._whole), None)

    def look(self) -> Look:
        """Read all counters."""
        begun = bool(self._last)
        read: Dict[str, cgroup.Memory] = {}
        before, killed = self.available_bytes, 0
        for level in self._levels:
            rise = self._read(level, read, begun=begun)
            killed += rise if level in self._whole else 0
        self._last.update(read)
        self.available_bytes = cgroup.available_bytes(self._proc)
        for level in self._levels if killed else ():
            level.judge(killed, before, self.available_bytes, self._total)
        return Look(killed, before)

    def lines(self) -> List[Line]:
        """Return the counters for the record."""
        found = [one.line(alone=self._alone) for one in self._levels]
        now, start = cgroup.node_oom_kills(self._proc), self._node_start
        rise = None if now is None or start is None else max(0, now - start)
        found.append({"kind": "node", "oom_kill": rise, "total_bytes": self._total or None})
        return found

    def _read(self, level: _Level, read: Dict[str, cgroup.Memory], *, begun: bool) -> int:
        """Read a level, and add its rises since the last reading; return that of its kills."""
        group, killed = level.group, 0
        local = group.level == "above" and not self._alone
        for directory in cgroup.counted(group):
            now = read.get(directory)
            if now is None:
                now = read[directory] = cgroup.read_memory(directory, group.version, local=local)
            # A group that was not there before began with zero.
            killed += level.add(self._last.get(directory, _EMPTY if begun else now), now)
            if directory == group.directory:
                level.limit_bytes, level.used_bytes = now.limit_bytes, now.used_bytes
                level.peak_bytes = now.peak_bytes or level.peak_bytes
                level.swap_full = now.swap_full
        level.since_met = min(level.since_met + 1, _LOOKS_AFTER_LIMIT)
        return killed


_EMPTY = cgroup.Memory(None, None, None, 0, 0, 0)


def _rise(was: Optional[int], now: Optional[int]) -> int:
    return 0 if was is None or now is None else max(0, now - was)
