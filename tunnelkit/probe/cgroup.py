"""Memory counters of a job's cgroups, of version 1 and 2, level by level.

Version 1 counts a kill in the victim's own group only, so the groups below a job are added up.
Version 2 counts it in every group above the victim, too. None is "not counted", never zero.
"""

import os
import re
from typing import Iterator, List, Mapping, NamedTuple, Optional, Tuple

#: Limits above this are "none" (version 1 writes 8 EiB less a page).
_NO_LIMIT = 1 << 60
_MOST_GROUPS = 512
#: The kernel takes memory in blocks.
_NEARLY_BYTES = 1 << 20
_MOST_TEXT = 1 << 20


class Mount(NamedTuple):
    """A mounted hierarchy. controllers: empty for version 2. root: of the tree that is seen."""

    point: str
    root: str
    controllers: Tuple[str, ...]


class Group(NamedTuple):
    """One cgroup. level: "job", "step", "task" (below a step), or "above" the job: others' too.

    path: as in /proc/self/cgroup. directory: where its files are.
    """

    level: str
    path: str
    directory: str
    version: int


class Memory(NamedTuple):
    """Counters of one group since it was made. refused: how often its limit was met (failcnt,
    `max`): page cache alone does that. oom: how often nothing could be reclaimed then; None in
    version 1, which does not count it. oom_kill: processes killed by the kernel. swap_full: version
    1's limit of memory and swap together has been met: Linux 6.18 does not count that in failcnt.
    """

    limit_bytes: Optional[int]
    used_bytes: Optional[int]
    peak_bytes: Optional[int]
    refused: Optional[int]
    oom: Optional[int]
    oom_kill: Optional[int]
    swap_full: bool = False


def job_number(environ: Mapping[str, str]) -> str:
    """Return the job's id as groups name it: "4711" (Slurm), "12" or "12[3]" (PBS); else ""."""
    return environ.get("SLURM_JOB_ID") or environ.get("PBS_JOBID", "").partition(".")[0]


def memory_groups(job: str, proc: str = "/proc", pid: str = "self") -> List[Group]:
    """Return the memory groups of a process from its own up, without the root."""
    return _groups("memory", job, proc, pid)


def job_group(job: str, proc: str = "/proc", pid: str = "self") -> Optional[Group]:
    """Return the job's group in any hierarchy: its processes are the job's. None without one."""
    for controller in ("memory", "freezer", "cpuset", "cpuacct", "devices", "pids", ""):
        for group in _groups(controller, job, proc, pid):
            if group.level == "job":
                return group
    return None


def read_memory(directory: str, version: int, *, local: bool = False) -> Memory:
    """Read a group's counters. local: in version 2 without those of groups below it."""
    return _read_v2(directory, local=local) if version == 2 else _read_v1(directory)


def counts_memory(group: Group) -> bool:
    """True unless the memory controller is off in this group, as it may be in version 2."""
    return group.version == 1 or os.path.exists(group.directory + "/memory.events")


def counted(group: Group) -> Iterator[str]:
    """Yield the directories whose counts add up to the group's.

    Above a job there may be thousands, and they are others'."""
    alone = group.version == 2 or group.level == "above"
    return iter((group.directory,)) if alone else below(group.directory)


def processes(group: Group) -> List[int]:
    """Return the pids in a group and below it."""
    found = []
    for directory in below(group.directory):
        found += [int(one) for one in _text(directory, "cgroup.procs").split() if one.isdigit()]
    return found


def below(directory: str) -> Iterator[str]:
    """Yield a group's directory and those below it."""
    waiting, seen = [directory], 0
    while waiting and seen < _MOST_GROUPS:
        here = waiting.pop()
        seen += 1
        yield here
        try:
            with os.scandir(here) as entries:
                waiting += [one.path for one in entries if one.is_dir(follow_symlinks=False)]
        except OSError:
            pass


def node_oom_kills(proc: str = "/proc") -> Optional[int]:
    """Return how many processes the kernel has killed for memory since the node's start."""
    return _counter(_text(proc, "vmstat"), "oom_kill")


def available_bytes(proc: str = "/proc") -> Optional[int]:
    """Return the node's memory that programs can still have."""
    return _meminfo("MemAvailable", proc)


def total_bytes(proc: str = "/proc") -> Optional[int]:
    """Return the node's memory."""
    return _meminfo("MemTotal", proc)


def _meminfo(name: str, proc: str) -> Optional[int]:
    match = re.search("^" + name + ": +([0-9]+) kB", _text(proc, "meminfo"), re.M)
    return int(match.group(1)) * 1024 if match else None


def _groups(controller: str, job: str, proc: str, pid: str) -> List[Group]:
    found = _place(controller, proc, pid)
    if found is None:
        return []
    mount, path = found
    groups = []
    names = path.strip("/").split("/") if path != "/" else []
    levels = _levels(names, job)
    for depth in range(len(names), 0, -1):
        at = "/" + "/".join(names[:depth])
        directory = _directory(mount, at)
        if directory is not None and os.path.isdir(directory):
            version = 1 if mount.controllers else 2
            groups.append(Group(levels[depth - 1], at, directory, version))
    return groups


def _levels(names: List[str], job: str) -> List[str]:
    """Return the level of each part of a path, outermost first."""
    levels, inside = [], ""
    for name in names:
        if inside:
            inside = "step" if inside == "job" and name.startswith("step_") else "task"
        elif job and (name == "job_" + job or name == job or name.startswith(job + ".")):
            inside = "job"
        levels.append(inside or "above")
    return levels


def _place(controller: str, proc: str, pid: str) -> Optional[Tuple[Mount, str]]:
    """Return where the controller's hierarchy is mounted, and the process's path in it.

    The controller may be of version 1, or belong to version 2 ("": version 2 itself)."""
    mounts = list(_mounts(_text(proc, pid, "mountinfo")))
    unified = None
    for line in _text(proc, pid, "cgroup").splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if controller and controller in names.split(","):
            for mount in mounts:
                if controller in mount.controllers:
                    return mount, path
        elif number == "0" and not names:
            unified = path
    for mount in mounts:
        if unified is not None and not mount.controllers:
            return mount, unified
    return None


def _mounts(text: str) -> Iterator[Mount]:
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2":
            yield Mount(_unescaped(fields[4]), _unescaped(fields[3]), ())
        elif kind[0] == "cgroup":
            yield Mount(_unescaped(fields[4]), _unescaped(fields[3]), tuple(kind[2].split(",")))


def _directory(mount: Mount, path: str) -> Optional[str]:
    """Return a group's directory; None if the mount does not show it."""
    if ".." in path.split("/"):
        return None
    if mount.root not in ("", "/"):
        if path != mount.root and not path.startswith(mount.root + "/"):
            return None
        path = path[len(mount.root) :]
    return mount.point.rstrip("/") + path


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda one: chr(int(one.group(1), 8)), text)


def _read_v1(directory: str) -> Memory:
    # A limit of memory and swap together kills just so.
    both = _limit(_text(directory, "memory.memsw.limit_in_bytes"))
    most = _number(_text(directory, "memory.memsw.max_usage_in_bytes"))
    refused = [_number(_text(directory, f"memory.{one}failcnt")) for one in ("", "memsw.")]
    known = [one for one in refused if one is not None]
    return Memory(
        limit_bytes=_limit(_text(directory, "memory.limit_in_bytes")),
        used_bytes=_number(_text(directory, "memory.usage_in_bytes")),
        peak_bytes=_number(_text(directory, "memory.max_usage_in_bytes")),
        refused=sum(known) if known else None,
        oom=None,
        oom_kill=_counter(_text(directory, "memory.oom_control"), "oom_kill"),
        swap_full=both is not None and most is not None and most >= both - _NEARLY_BYTES,
    )


def _read_v2(directory: str, *, local: bool) -> Memory:
    events = _text(directory, "memory.events.local" if local else "memory.events")
    return Memory(
        limit_bytes=_limit(_text(directory, "memory.max")),
        used_bytes=_number(_text(directory, "memory.current")),
        peak_bytes=_number(_text(directory, "memory.peak")),
        refused=_counter(events, "max"),
        oom=_counter(events, "oom"),
        oom_kill=_counter(events, "oom_kill"),
    )


def _counter(text: str, name: str) -> Optional[int]:
    match = re.search(r"^" + name + r" ([0-9]{1,20})$", text, re.M)
    return int(match.group(1)) if match else None


def _number(text: str) -> Optional[int]:
    text = text.strip()
    return int(text) if re.fullmatch(r"[0-9]{1,20}", text) else None


def _limit(text: str) -> Optional[int]:
    number = _number(text)
    return None if number is None or number >= _NO_LIMIT else number


def _text(*path: str) -> str:
    """Return a small file's text; "" if it can't be read."""
    try:
        fd = os.open("/".join(path), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    parts, left = [], _MOST_TEXT
    try:
        # The kernel hands out a page at a time.
        while left > 0:
            data = os.read(fd, min(left, 1 << 16))
            if not data:
                break
            parts.append(data)
            left -= len(data)
    except OSError:
        return ""
    finally:
        os.close(fd)
    return b"".join(parts).decode("utf-8", "replace")
