"""The other nodes of a job of PBS or Torque, and the route there: ssh from this node.

pbs_tmrsh and pbsdsh start a program there without a stdin, and the wire needs one. Where nodes take
no ssh from each other a relay can't be started, and the error says so.
"""

import os
import socket
from typing import List

from tunnelkit.agent.processes.table import TAG
from tunnelkit.mux import rpc

_CONNECT_TIMEOUT_S = 10
#: $1 the job's id, then what is to run: it is made a part of the job where the node has the program
#: for that (Torque's is pbs_track). It ends with its stdin, so nothing depends on it.
_IN_JOB = """\
job=$1; shift
{
  attach=$(command -v pbs_attach) || attach=$( . /etc/pbs.conf && echo "$PBS_EXEC/bin/pbs_attach")
  "$attach" -j "$job" -p $$ || pbs_track -j "$job" -a $$
} </dev/null >/dev/null 2>&1
exec "$@"
"""
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-")
#: A Python that a module brought may need it, and ssh carries no environment.
_CARRIED = "LD_LIBRARY_PATH"


def in_job() -> bool:
    """True in a job of PBS or Torque."""
    return bool(os.environ.get("PBS_JOBID"))


def other_nodes() -> List[str]:
    """The job's nodes but this one, as its node file names them; none outside of a job. Raises
    RpcError where they can't be known: ranks there are not to be left out silently."""
    if not in_job():
        return []
    try:
        # PBS has it on the job's first node alone.
        with open(os.environ.get("PBS_NODEFILE", ""), errors="replace") as file:
            nodes = list(dict.fromkeys(line.strip() for line in file if line.strip()))
    except OSError:
        raise rpc.error(
            f"{socket.gethostname()} has no list of the job's nodes (PBS_NODEFILE), "
            "which is on the job's first node"
        ) from None
    here = _short(socket.gethostname())
    others = [node for node in nodes if _short(node) != here]
    if len(others) < len(nodes):
        return others
    if os.environ.get("PBS_NODENUM") == "0":
        return others[1:]
    raise rpc.error(f"{here} is not among the nodes of its job: {', '.join(nodes)}")


def ssh_step(node: str, argv: List[str], known_hosts: str) -> List[str]:
    """ssh's argv that runs `argv` on `node` as a part of our job. Never asks anybody; the first
    host key of a node is taken into `known_hosts`, a changed one is refused."""
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": str(_CONNECT_TIMEOUT_S),
        "StrictHostKeyChecking": "accept-new",
        "UserKnownHostsFile": f'"{known_hosts.replace("%", "%%")}" ~/.ssh/known_hosts',
        "LogLevel": "ERROR",
        "ClearAllForwardings": "yes",
        "ForwardAgent": "no",
        "ForwardX11": "no",
        "RequestTTY": "no",
        # One connection of its own: it ends with the relay, and no other has to wait for it.
        "ControlPath": "none",
    }
    carried = [f"{_CARRIED}={os.environ[_CARRIED]}"] if _CARRIED in os.environ else []
    inside = ["env", "-u", TAG, *carried, *argv]
    command = ["sh", "-c", _IN_JOB, "sh", os.environ.get("PBS_JOBID", ""), *inside]
    return ["ssh", *(f"-o{key}={value}" for key, value in options.items()), "--", node,
            _for_any_shell(command)]  # fmt: skip


def _for_any_shell(argv: List[str]) -> str:
    """One command line that csh and fish read as sh does: all but plain characters as octal."""
    import shlex

    script = os.fsencode("exec " + " ".join(shlex.quote(word) for word in argv))
    octal = "".join(chr(byte) if byte in _PLAIN else f"\\0{byte:03o}" for byte in script)
    return f'exec sh -c \'eval "$(printf %b "{octal}")"\''


def _short(name: str) -> str:
    return name.partition(".")[0].lower()
