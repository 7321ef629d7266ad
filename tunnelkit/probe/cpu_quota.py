"""The CPU quotas of a job's cgroups: how often the kernel held its threads back; and freezing."""

from typing import Dict, FrozenSet, Iterable, List, NamedTuple

from tunnelkit.probe import proc


class Hierarchy(NamedTuple):
    """A mounted cgroup hierarchy. controllers: "" for version 2."""

    controllers: FrozenSet[str]
    root: str
    place: str


class Quota(NamedTuple):
    """A cgroup with a quota. periods, throttled: counters, with throttled_s."""

    path: str
    cpus: float
    periods: int
    throttled: int
    throttled_s: float


def hierarchies() -> List[Hierarchy]:
    """Return what is mounted here."""
    found = []
    for line in proc.whole_text_of("/proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        fields, kinds = left.split(), right.split()
        if len(fields) < 5 or len(kinds) < 3 or not kinds[0].startswith("cgroup"):
            continue
        names = kinds[2].split(",") if kinds[0] == "cgroup" else []
        found.append(Hierarchy(frozenset(names), fields[3], fields[4]))
    return found


def levels(cgroup: str, mounted: List[Hierarchy], controller: str) -> List[str]:
    """Return a process's directories of a controller, its own first. cgroup: /proc/PID/cgroup."""
    found = []
    for line in cgroup.splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0":
            places = [one for one in mounted if not one.controllers]
        elif controller in names.split(","):
            places = [one for one in mounted if controller in one.controllers]
        else:
            continue
        for one in places[:1]:
            below = path[len(one.root) :] if one.root != "/" and path.startswith(one.root) else path
            parts = [part for part in below.split("/") if part and part != ".."]
            found += [
                "/".join([one.place, *parts[:length]]) for length in range(len(parts), -1, -1)
            ]
    return found[:32]


def quotas(directories: Iterable[str]) -> Dict[str, Quota]:
    """Return those that have a quota, by directory."""
    found = {}
    for path in directories:
        cpus = _limit_cpus(path)
        if cpus <= 0:
            continue
        counts = proc.counters_of(proc.text_of(f"{path}/cpu.stat", 8192))
        if "nr_periods" in counts:
            throttled_s = (
                counts["throttled_usec"] / 1e6
                if "throttled_usec" in counts
                else counts.get("throttled_time", 0) / 1e9
            )
            found[path] = Quota(
                path, cpus, counts["nr_periods"], counts.get("nr_throttled", 0), throttled_s
            )
    return found


def differences(before: Dict[str, Quota], after: Dict[str, Quota]) -> List[Dict[str, object]]:
    """Return what happened between."""
    return [
        {
            "path": now.path,
            "cpus": round(now.cpus, 3),
            "periods": now.periods - before[path].periods,
            "throttled": now.throttled - before[path].throttled,
            "throttled_s": round(now.throttled_s - before[path].throttled_s, 3),
        }
        for path, now in after.items()
        if path in before
    ]


def is_frozen(directories: Iterable[str]) -> bool:
    """True if one of these cgroups is frozen."""
    return any(
        proc.text_of(f"{path}/freezer.state", 64).strip() in ("FROZEN", "FREEZING")
        or proc.text_of(f"{path}/cgroup.freeze", 64).strip() == "1"
        for path in directories
    )


def _limit_cpus(path: str) -> float:
    words = proc.text_of(f"{path}/cpu.max", 128).split()
    if len(words) == 2 and words[0].isdigit():
        return int(words[0]) / (proc.number_of(words[1]) or 100_000)
    quota = proc.number_of(proc.text_of(f"{path}/cpu.cfs_quota_us", 64))
    return quota / (proc.number_of(proc.text_of(f"{path}/cpu.cfs_period_us", 64)) or 100_000)
