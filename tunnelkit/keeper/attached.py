"""The people in a kept job, by the processes of this node."""

import os
import re
from typing import Dict, Iterator, List, NamedTuple, Set

#: argv of tk's agent: ... agent-DIGEST.zip attach|serve NAME.
_AGENT = re.compile(rb"(?:^|/)agent-[0-9a-f]+(?:-[^/]*)?\.zip$")


class _Process(NamedTuple):
    """started: clock ticks since the node's boot."""

    pid: int
    parent: int
    started: int
    words: List[bytes]


def anybody(job_id: str, since: int, variable: str = "SLURM_JOB_ID") -> bool:
    """Return True if somebody works in the job. variable: the one that holds its id.

    That is a link of tk to an agent in the job, or a process of the user that was started in the
    job after `since` (as `now_ticks` gives it), by srun or ssh. The agent itself and what it
    started are none: they stay when the laptop goes.
    """
    seen = {one.pid: one for one in _own_processes()}
    own = _below({os.getpid()}, seen)
    inside = [
        one
        for one in seen.values()
        if one.started > since and _is_in_job(one.pid, job_id, variable)
    ]
    agents = {one.pid: _agent_word(one, b"serve") for one in inside}
    names = {name for name in agents.values() if name}
    if any(_agent_word(one, b"attach") in names for one in seen.values() if names):
        return True
    served = _below({pid for pid, name in agents.items() if name}, seen)
    return any(
        one.pid not in own and one.pid not in served and not _is_part(one, names) for one in inside
    )


def now_ticks() -> int:
    """Return the time as /proc counts it."""
    with open("/proc/uptime") as file:
        return int(float(file.read().split()[0]) * os.sysconf("SC_CLK_TCK"))


def _own_processes() -> Iterator[_Process]:
    uid = os.getuid()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            if os.stat("/proc/" + name).st_uid != uid:
                continue
            fields = _read(name, "stat").rpartition(b")")[2].split()
            words = _read(name, "cmdline").split(b"\0")[:-1]
            if words and fields[0] != b"Z":
                yield _Process(int(name), int(fields[1]), int(fields[19]), words)
        except (OSError, IndexError, ValueError):
            continue  # it has ended


def _read(pid: str, name: str) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()


def _is_in_job(pid: int, job_id: str, variable: str) -> bool:
    mark = job_id.encode()
    try:
        given = b"\0" + variable.encode() + b"=" + mark + b"\0"
        if given in b"\0" + _read(str(pid), "environ"):
            return True
        groups = rb"/(?:job_|jobid/)%s(?:/|$)" % re.escape(mark)
        return re.search(groups, _read(str(pid), "cgroup"), re.M) is not None
    except OSError:
        return False


def _agent_word(one: _Process, verb: bytes) -> bytes:
    """Return the name of the agent that a process serves or attaches to; b"" if it does not."""
    for at, word in enumerate(one.words[:-2]):
        if _AGENT.search(word) and one.words[at + 1] == verb:
            return one.words[at + 2]
    return b""


def _is_part(one: _Process, names: Set[bytes]) -> bool:
    """Return True for what carries an agent's step, and for sshd's side of a connection."""
    text = b" ".join(one.words)
    return text.startswith((b"sshd:", b"sshd-session:")) or any(name in text for name in names)


def _below(roots: Set[int], seen: Dict[int, _Process]) -> Set[int]:
    """Return these processes with all that they have started."""
    found = set(roots)
    size = -1
    while size != len(found):
        size = len(found)
        found |= {one.pid for one in seen.values() if one.parent in found}
    return found
