"""A job's memory limits: how often the kernel took pages back because one was reached."""

from typing import Dict, Iterable, List, NamedTuple

from tunnelkit.probe import proc

_NO_LIMIT = 1 << 60


class Pressure(NamedTuple):
    """A cgroup with a memory limit. hits: how often it was reached. stalled_us: how long all
    of its tasks waited for memory; -1 where the kernel does not count that."""

    path: str
    limit_bytes: int
    used_bytes: int
    hits: int
    stalled_us: int


def pressures(directories: Iterable[str]) -> Dict[str, Pressure]:
    """Return those that have a limit, by directory."""
    found = {}
    for path in directories:
        limit = proc.number_of(proc.text_of(f"{path}/memory.max", 64)) or proc.number_of(
            proc.text_of(f"{path}/memory.limit_in_bytes", 64)
        )
        if not 0 < limit < _NO_LIMIT:
            continue
        used = proc.number_of(proc.text_of(f"{path}/memory.current", 64)) or proc.number_of(
            proc.text_of(f"{path}/memory.usage_in_bytes", 64)
        )
        events = proc.counters_of(proc.text_of(f"{path}/memory.events", 1024))
        hits = events.get("max", proc.number_of(proc.text_of(f"{path}/memory.failcnt", 64)))
        stalled = _stalled_us(proc.text_of(f"{path}/memory.pressure", 1024))
        found[path] = Pressure(path, limit, used, hits, stalled)
    return found


def differences(
    before: Dict[str, Pressure], after: Dict[str, Pressure], seconds: float
) -> List[Dict[str, object]]:
    """Return what happened between."""
    return [
        {
            "path": now.path,
            "limit_bytes": now.limit_bytes,
            "used_bytes": now.used_bytes,
            "hits_a_second": round((now.hits - before[path].hits) / seconds, 2),
            "stalled": None
            if now.stalled_us < 0 or before[path].stalled_us < 0
            else round((now.stalled_us - before[path].stalled_us) / 1e6 / seconds, 3),
        }
        for path, now in after.items()
        if path in before
    ]


def _stalled_us(text: str) -> int:
    for line in text.splitlines():
        if line.startswith("full "):
            total = line.rpartition("total=")[2]
            return int(total) if total.isdigit() else -1
    return -1
