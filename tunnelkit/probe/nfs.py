"""NFS: each mount's operations, from /proc/self/mountstats."""

import re
from typing import Dict, NamedTuple

from tunnelkit.probe import proc

_DEVICE = re.compile(r"device (\S+) mounted on (\S+) with fstype (nfs4?)\b")
_OPERATION = re.compile(r"\s+([A-Z_]+): ((?:[0-9]+ ?){8,9})$")
_MOST_MOUNTS = 64


class Operations(NamedTuple):
    """Counters of one operation: how many, sent again, timed out, and milliseconds in all."""

    ops: int
    sent: int
    timeouts: int
    ms: int


def parse(text: str) -> Dict[str, Dict[str, Operations]]:
    """Return the operations of each mount, by its directory and their name."""
    found: Dict[str, Dict[str, Operations]] = {}
    current: Dict[str, Operations] = {}
    for line in text.splitlines():
        if line.startswith("device "):
            mount = _DEVICE.match(line)
            current = {}
            if mount and len(found) < _MOST_MOUNTS:
                found[proc.proc_path(mount[2])] = current
            continue
        match = _OPERATION.match(line)
        if match and len(current) < 128:
            numbers = [int(word) for word in match[2].split()]
            current[match[1]] = Operations(numbers[0], numbers[1], numbers[2], numbers[7])
    return found


def read() -> Dict[str, Dict[str, Operations]]:
    """Return the operations now."""
    return parse(proc.whole_text_of("/proc/self/mountstats", 4 << 20))


def differences(
    before: Dict[str, Operations], after: Dict[str, Operations], seconds: float
) -> Dict[str, object]:
    """Return one mount's operations between: in all, and the busiest."""
    rows = []
    for name, now in after.items():
        was = before.get(name, Operations(0, 0, 0, 0))
        ops = now.ops - was.ops
        if ops > 0 or now.sent > was.sent or now.timeouts > was.timeouts:
            rows.append(
                {
                    "name": name,
                    "ops": ops,
                    "again": max(0, now.sent - was.sent - ops),
                    "timeouts": now.timeouts - was.timeouts,
                    "ms": round((now.ms - was.ms) / ops, 2) if ops > 0 else None,
                }
            )
    rows.sort(key=lambda row: -int(str(row["ops"])))
    done = sum(now.ops - before.get(name, now).ops for name, now in after.items())
    spent = sum(now.ms - before.get(name, now).ms for name, now in after.items())
    return {
        "ops": done,
        "ms": round(spent / done, 2) if done > 0 else None,
        "seconds": round(seconds, 2),
        "busiest": rows[:6],
    }
