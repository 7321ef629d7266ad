"""The agent's relays: one on each other node of the allocation, where debuggees dial in too.

A relay (relay_main.py) is a step of the job that srun starts, in a job of PBS ssh; the wire to it
goes over srun's or ssh's stdin and stdout, so no port is open between nodes. None is started before
a loop wants one.
"""

import asyncio
import os
import re
import resource
import socket
import sys
from typing import Callable, Dict, List, NamedTuple, Optional, Set

from tunnelkit.agent.nodes import pbs_nodes
from tunnelkit.agent.nodes.relay_process import RelayFailed, RelayProcess
from tunnelkit.agent.processes import port_file
from tunnelkit.agent.processes.table import TAG, ProcessTable
from tunnelkit.mux import rpc
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.fd_io import read_fd
from tunnelkit.mux.splice import splice
from tunnelkit.mux.tasks import cancel_all, start

#: A debuggee's connection, and who it is: Identity.to_json(), with the name of its "node".
OnDebuggee = Callable[[socket.socket, Dict[str, object]], None]
#: A node's relay is gone, with all connections to that node, and why.
OnLost = Callable[[str, str], None]
#: node, argv -> the argv that runs it there.
Step = Callable[[str, List[str]], List[str]]

_START_TIMEOUT_S = 60.0
_SCONTROL_TIMEOUT_S = 20.0
#: Descriptors that debuggees of other nodes leave to the session's links and its commands.
_SPARE_FDS = 64
#: Not a node's name alone: it becomes a part of srun's argv.
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
#: The batch step's variables are srun's options: it would ask for GPUs, tasks, memory again.
_SLURM_OWN = ("SLURM_", "SRUN_")
_KEPT = ("SLURM_CONF", "SLURM_JWT")


class _Listening(NamedTuple):
    on_debuggee: OnDebuggee
    on_lost: OnLost


class RelayPool:
    """The relays of one agent. Made in its event loop; `stop` ends them all.

    argv: what a relay runs as on its node (`... agent.zip relay NAME`). step: how it gets there.
    timeout_s: how long a relay may take to answer after its start.
    """

    def __init__(
        self,
        table: ProcessTable,
        argv: List[str],
        *,
        step: "Optional[Step]" = None,
        timeout_s: float = _START_TIMEOUT_S,
    ) -> None:
        self._table = table
        self._argv = argv
        self._step = step or job_step
        self._timeout_s = timeout_s
        self._links: Dict[str, RelayProcess] = {}
        self._starting: Dict[str, asyncio.Task[None]] = {}
        self._loops: Dict[int, _Listening] = {}
        self._tasks: Set[asyncio.Task[None]] = set()
        self._stopped = False

    @property
    def nodes(self) -> List[str]:
        """Nodes that have a relay just now."""
        return sorted(self._links)

    async def start(self, nodes: List[str]) -> None:
        """Start a relay on each of `nodes`, all at once; those that have one keep it.

        One that was lost is started again, and the loops that are open get their ports on it.

        Raises RelayFailed (an RpcError) for the first that failed; the others stay.
        """
        wanted = {node: self._start_one(node) for node in nodes if node not in self._links}
        # Shielded: another loop may wait for the same ones.
        done = [asyncio.shield(task) for task in wanted.values()]
        results = await asyncio.gather(*done, return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        if not failures:
            return
        first = failures[0]
        if isinstance(first, RelayFailed) and len(failures) > 1:
            more = f"{first.why} (and {len(failures) - 1} more of {len(nodes)} nodes)"
            raise RelayFailed(str(first.data["node"]), more, str(first.data.get("hint", "")))
        if isinstance(first, asyncio.CancelledError):
            raise RelayFailed(next(iter(wanted)), "the agent is ending")
        raise first

    async def open(
        self, loop_id: int, on_debuggee: OnDebuggee, on_lost: OnLost = lambda node, why: None
    ) -> Dict[str, int]:
        """Listen for this loop's debuggees on every node that has a relay; the ports, by node.

        Each debuggee is handed over as a local socket that carries its bytes; the callee owns
        it. Raises RpcError if a node can't listen, or its relay names no port; then none does.
        """
        self._loops[loop_id] = _Listening(on_debuggee, on_lost)
        links = list(self._links.values())
        calls = [link.call("dialin.open", loop=loop_id) for link in links]
        try:
            answers = await asyncio.gather(*calls)
            return {link.node: _port(link.node, answer) for link, answer in zip(links, answers)}
        except BaseException:
            await self.close(loop_id)
            raise

    def has(self, loop_id: int) -> bool:
        """True while the loop has its ports."""
        return loop_id in self._loops

    async def close(self, loop_id: int) -> None:
        """Give the loop's ports up; connections stay until either side ends them."""
        if self._loops.pop(loop_id, None) is None:
            return
        calls = [link.call("dialin.close", loop=loop_id) for link in self._links.values()]
        # A relay that is lost has given them up already.
        await asyncio.gather(*calls, return_exceptions=True)

    async def signal(self, node: str, pid: int, name: str, tag: str) -> None:
        """Send a signal ("SIGINT") to a process on `node` that carries TK_PROCESS=`tag`.

        Raises RpcError if there is no such process or no relay.
        """
        await self._link(node).call("signal", pid=pid, signal=name, tag=tag)

    async def info(self, node: str) -> object:
        """The answer of the relay on `node` about itself. Raises RpcError."""
        return await self._link(node).call("info")

    async def stop(self, reason: str = "the agent is ending") -> None:
        """End all relays, those that are still starting too; returns once nothing is left."""
        self._stopped = True
        self._loops.clear()
        await cancel_all(*self._starting.values())
        links, self._links = list(self._links.values()), {}
        await asyncio.gather(*(link.stop(reason) for link in links))
        await cancel_all(*self._tasks)

    # -- inside -----------------------------------------------------------

    def _link(self, node: str) -> RelayProcess:
        link = self._links.get(node)
        if link is None:
            raise RelayFailed(node, "it was not started, or is lost")
        return link

    def _start_one(self, node: str) -> "asyncio.Task[None]":
        task = self._starting.get(node)
        if task is None:
            task = self._starting[node] = asyncio.ensure_future(self._run_start(node))
            # Nobody may be left to take the failure, if who waited was cancelled.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def _run_start(self, node: str) -> None:
        try:
            if self._stopped:
                raise RelayFailed(node, "the agent is ending")
            link = RelayProcess(
                node,
                self._table,
                lambda channel, header: self._opened(node, channel, header),
                self._lost,
            )
            await link.start(self._step(node, self._argv), step_environment(), self._timeout_s)
            self._links[node] = link
            for loop_id in list(self._loops):
                await link.call("dialin.open", loop=loop_id)
        finally:
            del self._starting[node]

    def _lost(self, node: str, why: str) -> None:
        self._links.pop(node, None)
        for listening in list(self._loops.values()):
            listening.on_lost(node, why)

    def _opened(self, node: str, channel: Channel, header: Dict[str, object]) -> None:
        loop_id, identity = header.get("loop"), header.get("identity") or {}
        listening = self._loops.get(loop_id) if isinstance(loop_id, int) else None
        is_debuggee = header.get("type") == "debuggee"
        if listening is None or not is_debuggee or not isinstance(identity, dict):
            channel.close({"error": "nobody waits for it"})
            return
        near, far = socket.socketpair()
        if far.fileno() >= resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _SPARE_FDS:
            near.close()
            far.close()
            channel.close({"error": f"the agent has no descriptor left for {node}"})
            return
        near.setblocking(False)
        far.setblocking(False)
        start(self._tasks, splice(far, channel, together=True))
        try:
            listening.on_debuggee(near, dict(identity, node=node))
        except BaseException:
            near.close()
            raise


def _port(node: str, answer: object) -> int:
    """The port that a relay named. Raises RelayFailed."""
    port = answer.get("port") if isinstance(answer, dict) else None
    if not isinstance(port, int) or not 0 < port < 65536:
        raise RelayFailed(node, "it named no port to dial in at")
    return port


def job_step(node: str, argv: List[str]) -> List[str]:
    """The argv that runs `argv` on another node of our job: by
    srun, in a job of PBS or Torque by ssh. Raises RelayFailed outside of a job."""
    if os.environ.get("SLURM_JOB_ID") or not pbs_nodes.in_job():
        return srun_step(node, argv)
    if not _NODE.fullmatch(node):
        raise RelayFailed(node, "that is no node's name")
    known_hosts = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "known_hosts")
    return pbs_nodes.ssh_step(node, argv, known_hosts)


def srun_step(node: str, argv: List[str]) -> List[str]:
    """srun's argv for a step of this job on `node` that takes nothing from the job's other steps.

    Raises RelayFailed outside of a job.

    Slurm 20.11 and later: `--overlap` shares CPUs (memory and GPUs too from 21.08 on), so the step
    asks for no memory and no GPU. `--cpus-per-task` is given since some releases inherit the job's.
    Without `--unbuffered` slurmstepd holds back what follows the last newline.
    """
    job_id = os.environ.get("SLURM_JOB_ID", "")
    if not job_id.isdigit():
        raise RelayFailed(node, "this agent runs in no Slurm job")
    if not _NODE.fullmatch(node):
        raise RelayFailed(node, "that is no node's name")
    step = ["srun", f"--jobid={job_id}", "--overlap", "--nodes=1", "--ntasks=1"]
    step += [f"--nodelist={node}", "--cpus-per-task=1", "--mem=0", "--gres=none", "--mpi=none"]
    step += ["--chdir=/", "--job-name=tk-relay", "--export=ALL", "--unbuffered", "--quiet"]
    # Without our tag, which is srun's own: `--export` can't take one back, or change it.
    return [*step, "--", "env", "-u", TAG, *argv]


def step_environment() -> Dict[str, str]:
    """Our environment without what the batch step would tell srun by it."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or not name.startswith(_SLURM_OWN)
    }


async def other_nodes(table: ProcessTable) -> List[str]:
    """The job's nodes but this one; none outside of a job. Raises RpcError."""
    packed = os.environ.get("SLURM_JOB_NODELIST") or os.environ.get("SLURM_NODELIST", "")
    if not packed:
        return pbs_nodes.other_nodes()
    if os.environ.get("SLURM_JOB_NUM_NODES") == "1":
        return []
    names = await _scontrol(table, packed) if re.search(r"[\[,]", packed) else packed
    return [node for node in names.split() if node != port_file.node_name()]


async def _scontrol(table: ProcessTable, packed: str) -> str:
    """Have a node list taken apart; asks no daemon."""
    read, write = os.pipe()
    try:
        null = os.open(os.devnull, os.O_RDWR)
        try:
            process = table.spawn(
                ["scontrol", "show", "hostnames", packed],
                cwd="/", env=dict(os.environ), stdin=null, stdout=write, stderr=null,
            )  # fmt: skip
        finally:
            os.close(null)
            os.close(write)
        os.set_blocking(read, False)
        try:
            text = await asyncio.wait_for(_read_all(read), _SCONTROL_TIMEOUT_S)
        finally:
            how = await table.end(process, 0.0)
    except (OSError, asyncio.TimeoutError) as error:
        raise rpc.error(f"scontrol can't tell the job's nodes: {error!r}") from None
    finally:
        os.close(read)
    if not text.split():
        raise rpc.error(f"scontrol can't take {packed!r} apart", exit_code=how.code)
    return text


async def _read_all(fd: int) -> str:
    parts: List[bytes] = []
    while True:
        data = await read_fd(fd)
        if not data:
            return b"".join(parts).decode()
        parts.append(data)
