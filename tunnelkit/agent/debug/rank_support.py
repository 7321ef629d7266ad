"""The parts of a loop for ranks: the hook in what it starts, and a dial-in port on every node.

The hook (debuggee/rank_hook.py) runs in each Python of the job; it finds the port of its node in a
file there (port_file.py). Other nodes are served by relays.
"""

import contextlib
import json
import os
import socket
from typing import TYPE_CHECKING, Callable, Dict, List, NamedTuple, Optional, Tuple

from tunnelkit.agent.links import socket_dir
from tunnelkit.agent.nodes.relay_pool import RelayPool, other_nodes
from tunnelkit.agent.processes import port_file
from tunnelkit.agent.processes.peer_process import PeerProcess
from tunnelkit.agent.processes.table import ProcessTable
from tunnelkit.debuggee import ranks
from tunnelkit.mux import rpc

if TYPE_CHECKING:
    from tunnelkit.messages.agent_calls import LoopSpec, Ranks

OnFar = Callable[[socket.socket, "DialedProcess"], None]


class DialedProcess(NamedTuple):
    """A process that dialled in, the node that it runs on, and its rank, if it is one."""

    identity: PeerProcess
    node: str
    rank: Optional[ranks.Rank] = None

    def describe(self) -> Dict[str, object]:
        """The state of the ranks for a session, as a JSON object."""
        return {
            "pid": self.identity.pid,
            "ancestors": list(self.identity.ancestors),
            "node": self.node,
            "rank": list(self.rank) if self.rank is not None else None,
        }


def visitor(identity: PeerProcess, node: str = "") -> DialedProcess:
    """A visitor from `node`, else from this one. Its environment, which may be large, is not
    kept."""
    rank = ranks.rank_of(identity.environ)
    return DialedProcess(identity._replace(environ={}), node or port_file.node_name(), rank)


class RankProcesses:
    """The process of each rank of a run: the first one that has dialled in with that rank."""

    def __init__(self) -> None:
        self._known: Dict[int, Tuple[str, int]] = {}

    def take(self, rank: int, who: DialedProcess) -> bool:
        """Note a process; False if it is one that the rank's process has started.

        A launcher may start a rank again, once its process has ended.
        """
        known = self._known.get(rank)
        if known is not None:
            node, pid = known
            # What has lost its parents has the rank's process no longer among its ancestors.
            lives = node == port_file.node_name() and os.path.exists(f"/proc/{pid}/exe")
            if lives or (node == who.node and pid in (who.identity.pid, *who.identity.ancestors)):
                return False
        self._known[rank] = (who.node, who.identity.pid)
        return True


class RankDialIns:
    """The dial-in ports of one loop of ranks. `environment`, `open`, then `close`."""

    def __init__(self, name: str, table: ProcessTable, relays: RelayPool) -> None:
        self._name = name
        self._table = table
        self._relays = relays
        self._loop_id = 0
        self._path = ""
        self._port = 0
        self._only: Optional[List[int]] = None

    def environment(
        self, loop_id: int, spec: "LoopSpec", wanted: "Ranks", agent: str
    ) -> Dict[str, str]:
        """The environment that every process of the loop must carry.

        agent: the path of this code. Raises NoSocketDirectory, ValueError.
        """
        directory = socket_dir.make_directory()
        path = port_file.path_of(directory, self._name, loop_id, port_file.node_name())
        ending = f".{port_file.node_name()}.port"
        self._only = wanted.get("only")
        settings = {
            "dialin": path[: -len(ending)],
            "only": self._only,
            "step": os.environ.get("SLURM_STEP_ID"),
        }
        if wanted.get("collectives"):
            settings["collectives"] = wanted["collectives"]
        given = (spec.get("env") or {}).get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        entries = [os.path.join(agent, "tunnelkit", "debuggee", "site"), given]
        return {
            ranks.VARIABLE: json.dumps(settings),
            "PYTHONPATH": os.pathsep.join(entry for entry in entries if entry),
            # Frozen standard modules make pydevd warn on every start of 3.11+.
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        }

    def wanted(self, rank: ranks.Rank) -> int:
        """The number of ranks that will dial in, as far as this one knows; 0: unknown."""
        if self._only is None or not rank.world_size:
            return rank.world_size
        return len([one for one in self._only if one < rank.world_size])

    def open(self, loop_id: int, port: int) -> None:
        """Tell this node's processes the port. Raises OSError, NoSocketDirectory."""
        self._loop_id = loop_id
        self._port = port
        self._path = port_file.write(self._name, loop_id, port)

    async def reach(self, on_far: OnFar, on_lost: Callable[[str, str], None]) -> List[str]:
        """Have a port on every other node of the allocation; those nodes. Each that has one
        keeps it. Raises RpcError: ranks on a node without one run free."""
        nodes = await other_nodes(self._table)
        missing = [node for node in nodes if node not in self._relays.nodes]
        if not nodes or (not missing and self._relays.has(self._loop_id)):
            return nodes
        await self._relays.start(nodes)

        def opened(sock: socket.socket, header: Dict[str, object]) -> None:
            try:
                who = visitor(PeerProcess.from_json(header), str(header["node"]))
            except ValueError:
                sock.close()
                return
            on_far(sock, who)

        await self._relays.open(self._loop_id, opened, on_lost)
        return nodes

    async def close(self) -> None:
        """Give up the ports. Idempotent."""
        if self._path:
            port_file.remove(self._path, self._port)
            self._path = ""
            with contextlib.suppress(rpc.RpcError):
                await self._relays.close(self._loop_id)
