"""The people in a kept job, by the processes of this node."""

import os
import re
from typing import Dict, Iterator, List, NamedTuple, Set

#: argv of tk's agent: ... agent-DIGEST.zip attach|serve NAME.
_AGENT = re.compile(rb"(?:^|/)agent-[0-9a-f]+(?:-[^/]*)?\.zip$")
_SSHD = (b"sshd:", b"sshd-session:")
#: Their words say whether somebody types into them.
_SHELLS = re.compile(rb"-?(?:ba|da|k|z|c|tc|fi)?sh$")
_WITH_VALUE = (b"--init-file", b"--rcfile")


class _Process(NamedTuple):
    """started: clock ticks since the node's boot. tty: 0 for none."""

    pid: int
    parent: int
    session: int
    tty: int
    started: int
    words: List[bytes]


def anybody(job_id: str, since: int, variable: str = "SLURM_JOB_ID") -> bool:
    """Return True if somebody works in the job. variable: the one that holds its id.

    That is a link of tk to an agent in the job, or a process of the user that was started in the
    job after `since` (as `now_ticks` gives it), by srun or ssh. The agent itself and what it
    started are none: they stay when the laptop goes. Nor is what the script's processes start.
    """
    seen = {one.pid: one for one in _own_processes()}
    inside = [one for one in seen.values() if _is_in_job(one.pid, job_id, variable)]
    agents = {one.pid: _agent_word(one, b"serve") for one in inside}
    names = {name for name in agents.values() if name}
    if any(_agent_word(one, b"attach") in names for one in seen.values() if names):
        return True
    others = _below({os.getpid(), *(pid for pid, name in agents.items() if name)}, seen)
    others |= _of_the_script(inside, since, seen)
    return any(
        one.started > since and one.pid not in others and not _is_part(one, names) for one in inside
    )


def _of_the_script(inside: List[_Process], since: int, seen: Dict[int, _Process]) -> Set[int]:
    """Return the script's processes: those of before, and what they start, such as each `sleep` of
    a monitor's loop; without those of people who were there already."""
    people = _below({one.pid for one in inside if _is_login(one)}, seen)
    roots = [one for one in inside if one.started <= since and one.pid not in people]
    # What a process leaves behind when it ends stays in its session.
    sessions = {one.session for one in roots if one.session and not one.tty}
    found = _below({one.pid for one in roots}, seen)
    return (found | {pid for pid, one in seen.items() if one.session in sessions}) - people


def _is_login(one: _Process) -> bool:
    """Return True for sshd's side of a connection, and a shell that somebody types into."""
    if b" ".join(one.words).startswith(_SSHD):
        return True
    options = one.words[1:]
    if options[:1] and options[0] in _WITH_VALUE:
        options = options[2:]
    is_shell = _SHELLS.match(os.path.basename(one.words[0])) is not None
    runs = any(not word.startswith(b"-") or word == b"-c" for word in options)
    return is_shell and one.tty != 0 and not runs


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
                parent, session, tty, started = (int(fields[at]) for at in (1, 3, 4, 19))
                yield _Process(int(name), parent, session, tty, started, words)
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
    return text.startswith(_SSHD) or any(name in text for name in names)


def _below(roots: Set[int], seen: Dict[int, _Process]) -> Set[int]:
    """Return these processes with all that they have started."""
    found = set(roots)
    size = -1
    while size != len(found):
        size = len(found)
        found |= {one.pid for one in seen.values() if one.parent in found}
    return found
