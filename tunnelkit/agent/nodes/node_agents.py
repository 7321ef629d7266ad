"""Agents on the allocation's other nodes: steps of the job that this agent starts and ends.

Each serves a session by itself, as `<our name>.<node>`: some sites share /tmp between nodes.
"""

import asyncio
import contextlib
import hashlib
import os
import sys
from typing import TYPE_CHECKING, Dict, List, Set

from tunnelkit.agent.nodes.relay_pool import srun_step, step_environment
from tunnelkit.agent.processes.table import ChildProcess, ProcessTable
from tunnelkit.mux import rpc
from tunnelkit.mux.fd_io import read_fd
from tunnelkit.mux.tasks import cancel_all, start

if TYPE_CHECKING:
    from tunnelkit.messages.agent_calls import PeerAgent, PeerStart

#: What an agent prints once it can be reached (agent/main.py), before its pid.
READY = "tunnelkit: agent ready, pid "
_START_TIMEOUT_S = 60.0
_GRACE_S = 5.0
_NAME_CHARS = 64
_TAIL_BYTES = 2000


def peer_name(name: str, node: str) -> str:
    """The agent's name on another node. All are different, and none is too long for a name."""
    whole = f"{name}.{node}"
    if len(whole) <= _NAME_CHARS:
        return whole
    return whole[: _NAME_CHARS - 9] + "." + hashlib.sha256(whole.encode()).hexdigest()[:8]


class _Peer:
    """The step that runs an agent on another node."""

    def __init__(self, process: ChildProcess, stdin: int) -> None:
        self.process = process
        #: It ends with this.
        self.stdin = stdin
        self.pid = 0
        self.said = b""
        #: Done once it is ready, or over.
        self.known: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def read(self, fd: int) -> None:
        """Read what it writes, to its end."""
        with contextlib.suppress(OSError):
            while True:
                data = await read_fd(fd)
                if not data:
                    break
                self.said = (self.said + data)[-_TAIL_BYTES:]
                for line in self.said.decode("utf-8", "replace").splitlines(True):
                    if not self.pid and line.startswith(READY) and line.endswith("\n"):
                        self.pid = int(line[len(READY) :])
                        self.known.set_result(None)
        os.close(fd)
        if not self.known.done():
            self.known.set_result(None)

    def last_line(self) -> str:
        lines = [line.strip() for line in self.said.decode("utf-8", "replace").splitlines()]
        return next((line for line in reversed(lines) if line), "its step ended at once")


class NodeAgents:
    """The other nodes' agents of one agent. `stop` ends them all."""

    def __init__(self, table: ProcessTable, name: str) -> None:
        self._table = table
        self._name = name
        self._peers: Dict[str, _Peer] = {}
        self._reading: Set[asyncio.Task[None]] = set()

    async def start(self, params: "PeerStart") -> "PeerAgent":
        """RPC peer.start: have an agent on `node`; its name and pid. Raises RpcError."""
        node = str(params["node"])
        name = peer_name(self._name, node)
        peer = self._peers.get(node)
        if peer is not None and peer.process.exited.done():
            await self._end(peer)
            peer = None
        if peer is None:
            peer = self._peers[node] = self._spawn(node, name)
        await asyncio.wait([peer.known], timeout=_START_TIMEOUT_S)
        if not peer.pid:
            ended = peer.known.done()
            await self._end(peer)
            why = peer.last_line() if ended else f"no answer within {_START_TIMEOUT_S:g} s"
            raise rpc.error(f"no agent on {node}: {why}")
        return {"name": name, "pid": peer.pid}

    async def stop(self) -> None:
        """End them, with all that they run."""
        await asyncio.gather(*(self._end(peer) for peer in list(self._peers.values())))
        await cancel_all(*self._reading)

    def _spawn(self, node: str, name: str) -> _Peer:
        argv = [sys.executable, "-I", "-S", os.path.abspath(sys.argv[0])]
        argv += ["serve", name, "--while-stdin"]
        read, write = os.pipe()
        stdin, ours = os.pipe()
        try:
            process = self._table.spawn(
                peer_step(node, argv), cwd="/", env=step_environment(),
                stdin=stdin, stdout=write, stderr=write,
            )  # fmt: skip
        except OSError as error:
            os.close(read)
            os.close(ours)
            raise rpc.error(f"no agent on {node}: srun: {error.strerror}") from None
        finally:
            os.close(stdin)
            os.close(write)
        os.set_blocking(read, False)
        peer = _Peer(process, ours)
        start(self._reading, peer.read(read))
        return peer

    async def _end(self, peer: _Peer) -> None:
        if peer.stdin >= 0:
            os.close(peer.stdin)
            peer.stdin = -1
            await asyncio.wait([peer.process.exited], timeout=_GRACE_S)
        await self._table.end(peer.process, _GRACE_S)


def peer_step(node: str, argv: List[str]) -> List[str]:
    """srun's argv for a step that has all that the job has on `node`, and takes nothing from
    other steps. Raises RpcError outside of a job."""
    named = [_NAMES.get(word, word) for word in srun_step(node, argv)]
    return [word for word in named if word not in _CONFINES]


#: What a relay's step is confined by, and how it is called.
_CONFINES = ("--cpus-per-task=1", "--gres=none")
_NAMES = {"--job-name=tk-relay": "--job-name=tk-agent"}
