"""The process that dialled in: its pid, what started it, and the environment it started with."""

import os
import socket
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from tunnelkit.agent.processes.table import TAG
from tunnelkit.mux.peer_credentials import socket_inode

_MAX_ANCESTORS = 32


class PeerProcess(NamedTuple):
    """A process as /proc shows it. pid 0: it could not be found (gone already, or no Linux).

    tag: TK_PROCESS of its environment, "" without one. ancestors: pids from its parent up.
    """

    pid: int = 0
    tag: str = ""
    ancestors: Tuple[int, ...] = ()
    environ: Mapping[str, str] = {}

    def to_json(self) -> Dict[str, object]:
        """As a JSON object; `from_json` reads it."""
        return {
            "pid": self.pid,
            "tag": self.tag,
            "ancestors": list(self.ancestors),
            "environ": dict(self.environ),
        }

    @staticmethod
    def from_json(data: Mapping[str, object]) -> "PeerProcess":
        """Read what `to_json` wrote. Raises ValueError on anything else."""
        pid, ancestors = data.get("pid", 0), data.get("ancestors", [])
        environ = data.get("environ", {})
        if not isinstance(ancestors, list) or not isinstance(environ, dict):
            raise ValueError("no identity")
        if not isinstance(pid, int) or not all(isinstance(one, int) for one in ancestors):
            raise ValueError("no identity")
        return PeerProcess(
            pid,
            str(data.get("tag", "")),
            tuple(ancestors[:_MAX_ANCESTORS]),
            {str(name): str(value) for name, value in environ.items()},
        )


def identify(sock: socket.socket, likely: Iterable[int] = ()) -> PeerProcess:
    """The process at the other end of a loopback TCP connection.

    `likely`: pids to check first; then those that carry a tag, then all of this user's.
    """
    try:
        inode = socket_inode(sock.getpeername(), sock.getsockname())
    except OSError:
        return PeerProcess()
    if not inode:
        return PeerProcess()
    link = f"socket:[{inode}]"
    tried = set()
    for pid in _candidates(likely):
        if pid not in tried and _holds(pid, link):
            return of_process(pid)
        tried.add(pid)
    return PeerProcess()


def of_process(pid: int) -> PeerProcess:
    """The identity of a live process."""
    environ = _environ(pid)
    return PeerProcess(pid, environ.get(TAG, ""), _ancestors(pid), environ)


def _candidates(likely: Iterable[int]) -> Iterable[int]:
    for pid in likely:
        yield pid
    pids = _pids()
    needle = (TAG + "=").encode()
    for pid in pids:
        if needle in _read(pid, "environ"):
            yield pid
    for pid in pids:
        yield pid


def _pids() -> List[int]:
    """Newest first: who dials in has mostly just been started."""
    try:
        return sorted((int(name) for name in os.listdir("/proc") if name.isdigit()), reverse=True)
    except OSError:
        return []


def _holds(pid: int, link: str) -> bool:
    where = f"/proc/{pid}/fd"
    try:
        for name in os.listdir(where):
            try:
                if os.readlink(os.path.join(where, name)) == link:
                    return True
            except OSError:
                continue
    except OSError:
        pass
    return False


def _environ(pid: int) -> Dict[str, str]:
    found = {}
    for word in _read(pid, "environ").split(b"\0"):
        name, equals, value = word.partition(b"=")
        if equals:
            found[os.fsdecode(name)] = os.fsdecode(value)
    return found


def _ancestors(pid: int) -> Tuple[int, ...]:
    found: List[int] = []
    while len(found) < _MAX_ANCESTORS:
        parent = _parent(pid)
        if not parent:
            break
        found.append(parent)
        pid = parent
    return tuple(found)


def _parent(pid: int) -> Optional[int]:
    # The name, in parentheses, may hold anything; the parent is the second word after it.
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if len(fields) > 1 else None


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""
