"""The Pythons that run below this agent, or that its job or pod runs by itself, and which of them
a debugger can be brought into."""

import os
import re
import shutil
from typing import TYPE_CHECKING, Collection, List, Mapping, Optional

from tunnelkit.agent.debug.fork_server_client import agent_path
from tunnelkit.agent.debug.standing import is_standing
from tunnelkit.agent.processes import port_file
from tunnelkit.agent.processes.peer_process import PeerProcess, of_process
from tunnelkit.debuggee import python_command, ranks

if TYPE_CHECKING:
    from tunnelkit.messages.agent_calls import PythonInfo

_PYTHON = re.compile(r"python([\d.]*)(t|d|td)?")
#: Files of this house: agent, black box, what looks at a script.
_OURS = re.compile(r"[a-z-]+-[0-9a-f]{32}\.zip")
#: The tag of what the job runs by itself, without tk; no process has it.
JOBS_OWN = "-"


def find(debugged: Collection[int], first: object = None) -> "List[PythonInfo]":
    """All processes of this user that run a program of the user's own, oldest first.

    debugged: pids that have a debugger already. first: pid of the first node's agent, whose
    programs may have ranks here.
    """
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            one = look(int(name), debugged, first)
            # A debuggee is started by words of this house.
            if one and one["python"] and (one["pid"] in debugged or _is_program(one["command"])):
                found.append(one)
    return sorted(found, key=lambda one: one["pid"])


def look(pid: int, debugged: Collection[int], first: object = None) -> "Optional[PythonInfo]":
    """One process; None if it runs neither below this agent or the first node's, nor in the job or
    pod by itself."""
    identity = of_process(pid)
    stands = not identity.tag and is_standing(pid, identity.environ)
    is_jobs = not stands and not identity.tag and _in_this_job(identity)
    below = identity.tag.partition(".")[0] in (str(os.getpid()), str(first))
    command = _words(pid) if stands or is_jobs or below else []
    if not command:
        return None
    node = port_file.node_name() if _is_pod() else ranks.node_name(identity.environ)
    rank = ranks.rank_of(identity.environ)
    python = _interpreter(identity, command)
    program = python_command.parse(command[1:])
    why = ""
    if not python:
        exe = os.path.basename(_link(f"/proc/{pid}/exe"))
        why = f"it is no Python: {exe or command[0]}"
    elif node != port_file.node_name():
        why = f"it runs on {node}; only processes on {port_file.node_name()} can be attached to"
    elif pid in debugged:
        why = "it has a debugger already: press F5 on its loop's port"
    return {
        "pid": pid,
        "node": node,
        "rank": rank.global_rank if rank is not None else None,
        "local": rank.local_rank if rank is not None else 0,
        "run": JOBS_OWN if is_jobs else identity.tag,
        "ancestors": list(identity.ancestors),
        "command": command,
        "python": python,
        "launcher": program is not None and python_command.is_launcher(program),
        "why_not": why,
    }


def _in_this_job(identity: PeerProcess) -> bool:
    """True if the process belongs to the agent's job, or to its container.

    Anybody can have the job's id in the environment; root could read that of all users."""
    if _owner(identity.pid) != os.geteuid():
        return False
    if _is_pod():
        # A pod's processes have its name for the host, and see the files of their container.
        mine, theirs = os.environ.get("HOSTNAME"), identity.environ.get("HOSTNAME")
        mount = "/proc/{}/ns/mnt"
        ours = _link(mount.format("self"))
        return bool(mine) and mine == theirs and ours == _link(mount.format(identity.pid))
    jobs = [name for name in ("SLURM_JOB_ID", "PBS_JOBID") if name in os.environ]
    return bool(jobs) and all(identity.environ.get(name) == os.environ[name] for name in jobs)


def _owner(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return -1


def _is_pod() -> bool:
    return bool(os.environ.get("TK_NODE"))


def start_time(pid: int) -> str:
    """When that process began, in the kernel's ticks: tells it from a later one of the same
    pid. "" if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # proc(5): field 22; the third follows the name.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    gone = len(fields) < 20 or fields[0] in (b"Z", b"X")
    return "" if gone else fields[19].decode("ascii", "replace")


def _is_program(command: List[str]) -> bool:
    """False for what this house, pip and multiprocessing start for themselves."""
    if agent_path() in command or "debugpy" in command:
        return False
    if any(_OURS.fullmatch(os.path.basename(word)) for word in command):
        return False
    program = python_command.parse(command[1:])
    return program is None or not python_command.is_helper(program)


def _interpreter(identity: PeerProcess, command: List[str]) -> str:
    """A path that starts the same Python; in a virtual environment /proc/PID/exe would be the
    one outside. "" if it is no Python."""
    exe = _link(f"/proc/{identity.pid}/exe")
    if not _PYTHON.fullmatch(os.path.basename(exe)):
        return ""
    named = _found(command[0], identity.environ, _link(f"/proc/{identity.pid}/cwd"))
    return named if named and os.path.realpath(named) == os.path.realpath(exe) else exe


def _found(word: str, environ: Mapping[str, str], cwd: str) -> str:
    if "/" in word:
        return os.path.join(cwd, word)
    return shutil.which(word, path=environ.get("PATH", os.defpath)) or ""


def _words(pid: int) -> List[str]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return []


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
