"""The agent: what it offers to its session, and its life.

Channel types it serves: rpc, exec, tcp, loop-log, mirror. Channel types it opens:
stderr (for an exec), debuggee (a process that dialled in to a loop).
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Coroutine, Dict, List, Optional, Set, Union

from tunnelkit.agent import file_agent, zip_lease
from tunnelkit.agent.debug import python_processes
from tunnelkit.agent.debug.debuggee_connections import DebuggeeConnections
from tunnelkit.agent.debug.fork_server_client import agent_path
from tunnelkit.agent.debug.injection import Injection
from tunnelkit.agent.debug.rank_support import DialedProcess, RankDialIns
from tunnelkit.agent.debug.restart_loop import RestartLoop
from tunnelkit.agent.links.reverse_connect import keep_dialling
from tunnelkit.agent.links.session_links import SessionLinks
from tunnelkit.agent.links.socket_dir import NoSocketDirectory
from tunnelkit.agent.links.tcp_channel import listening, serve_tcp
from tunnelkit.agent.mirror.service import MirrorService
from tunnelkit.agent.nodes.node_agents import NodeAgents
from tunnelkit.agent.nodes.relay_pool import RelayPool
from tunnelkit.agent.processes.container_words import expand
from tunnelkit.agent.processes.dial_in import HeldPorts
from tunnelkit.agent.processes.exec_channel import ExecChannel, command_of
from tunnelkit.agent.processes.table import ProcessTable
from tunnelkit.mux import rpc
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.mux import Mux
from tunnelkit.mux.peer_credentials import network
from tunnelkit.mux.tasks import cancel_all, start
from tunnelkit.wire.endpoint import Endpoint
from tunnelkit.wire.errors import ChannelError

if TYPE_CHECKING:
    from tunnelkit.messages import agent_calls as calls

_GRACE_S = 3.0
_PROBE_TIMEOUT_S = 60.0
#: The job's script sets it: how long before the time limit Slurm sends USR1
#: (scheduler/slurm/submit.py).
WARNING_VARIABLE = "TK_WARNING_S"


class Agent:
    """All that lives in one agent process. `run` until the agent is ordered to end.

    invitation: a file that may name the address to dial (reverse_connect.py).
    """

    def __init__(
        self, name: str, listener: socket.socket, invitation: Optional[str] = None
    ) -> None:
        self._name = name
        self._invitation = invitation
        self.files = MirrorService()
        self._table = ProcessTable()
        self._relays = RelayPool(self._table, [*_own_argv(), "relay", name])
        self._peers = NodeAgents(self._table, name)
        self._clients = SessionLinks(listener, self._make_mux)
        self._mux: Optional[Mux] = None
        self._peer: Optional[rpc.RpcPeer] = None
        self._execs: Dict[int, ExecChannel] = {}
        self._loops: Dict[int, Union[RestartLoop, Injection]] = {}
        self._loop_tasks: Dict[int, asyncio.Task[None]] = {}
        self._tasks: Set[asyncio.Task[None]] = set()
        self._debuggees = DebuggeeConnections(self._spawn)
        self._held = HeldPorts()
        self._ending = asyncio.Event()
        self._why = ""
        self._started = time.time()

    async def run(self) -> None:
        """Serve until `shutdown`, TERM or INT; then end everything that runs."""
        loop = asyncio.get_running_loop()
        self._table.start()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end, f"the job is ending: {number.name}")
        # The batch shell may have started us deaf to it; what we start must not be.
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
        loop.add_signal_handler(signal.SIGUSR1, self._time_limit_near, take_warning_s())
        loop.add_signal_handler(signal.SIGHUP, lambda: None)
        self._clients.start()
        self._spawn(zip_lease.keep(_own_argv()[-1]))
        if self._invitation is not None:
            clients = self._clients
            self._spawn(keep_dialling(self._invitation, clients.has_link, clients.serve))
        await self._ending.wait()
        # First of all: some schedulers give no time, and who hears of the end may give none either.
        self._clients.leave()
        for debug_loop in self._loops.values():
            debug_loop.stop(self._why)
        await self.files.close()
        await asyncio.gather(*self._loop_tasks.values(), return_exceptions=True)
        await asyncio.gather(self._relays.stop(), self._peers.stop())
        await self._table.end_all(_GRACE_S)
        self._held.close()
        await self._clients.stop(self._why)
        await cancel_all(*self._tasks)

    # -- one session ------------------------------------------------------

    def _make_mux(self, endpoint: Endpoint) -> Mux:
        self._execs = {}
        self._peer = None
        self._mux = Mux(endpoint, self._opened)
        self._debuggees.new_session(self._mux)
        self._spawn(self._introduce(self._mux))
        return self._mux

    async def _introduce(self, mux: Mux) -> None:
        """Send a new client what it asks for first: that saves it a round trip."""
        with contextlib.suppress(ChannelError):  # too long an environment: it asks
            mux.open({"type": "info", "info": await self._info({})}).close()

    def _opened(self, channel: Channel, header: Dict[str, object]) -> None:
        kind, loop_id = header.get("type"), header.get("loop")
        if kind == "rpc":
            self._peer = rpc.RpcPeer(channel, self._handlers())
            self._spawn(self._peer.serve())
        elif kind == "exec":
            assert self._mux is not None
            process = ExecChannel(self._table, self._mux, channel)
            self._execs[channel.id] = process
            self._spawn(self._run_exec(channel.id, process, header))
        elif kind == "tcp":
            self._spawn(serve_tcp(channel, header))
        elif kind == "mirror":
            self.files.serve(channel, header)
        elif kind == "loop-log" and isinstance(loop_id, int) and loop_id in self._loops:
            self._spawn(self._send_log(self._loops[loop_id], channel, header.get("from")))
        else:
            channel.close({"error": f"this agent has no channel of type {kind!r}"})

    def _handlers(self) -> Dict[str, rpc.Handler]:
        return {
            "info": self._info,
            "exec.probe": self._exec_probe,
            "exec.signal": self._exec_signal,
            "exec.resize": self._exec_resize,
            "attach.find": self._attach_find,
            "attach.start": self._attach_start,
            "loop.start": self._loop_start,
            "loop.list": self._loop_list,
            "loop.begin": self._loop_begin,
            "loop.claim": self._loop_claim,
            "loop.fail": self._loop_fail,
            "loop.restart": self._loop_restart,
            "loop.refresh": self._loop_refresh,
            "loop.stop": self._loop_stop,
            "loop.attached": self._loop_attached,
            "mirror.differing": self.files.differing,
            "mirror.verify": self.files.verify,
            "peer.start": self._peers.start,
            "tcp.listening": listening,
            "shutdown": self._shutdown,
        }

    async def _run_exec(
        self, channel_id: int, process: ExecChannel, header: Dict[str, object]
    ) -> None:
        try:
            await process.run(header)
        finally:
            self._execs.pop(channel_id, None)

    async def _send_log(
        self, debug_loop: Union[RestartLoop, Injection], channel: Channel, first: object
    ) -> None:
        async for record in debug_loop.log.read(first if isinstance(first, int) else 0):
            if channel.is_over:
                return
            await channel.write(record.encode())
        channel.close({})

    # -- calls ------------------------------------------------------------

    async def _info(self, params: "calls.Nothing") -> "calls.AgentInfo":
        return {
            **await file_agent.info(params),
            "name": self._name,
            "node": os.environ.get("TK_NODE")
            or os.environ.get("SLURMD_NODENAME")
            or socket.gethostname(),
            "network": network(),
            "job_id": os.environ.get("SLURM_JOB_ID") or os.environ.get("PBS_JOBID"),
            "started": self._started,
            "pythonpath": os.environ.get("PYTHONPATH"),
            "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        }

    async def _exec_probe(self, params: "calls.Command") -> Optional[int]:
        """Run a short command for its exit code alone; None if it can't be started."""
        try:
            argv, cwd, env = command_of(params)
            null = os.open(os.devnull, os.O_RDWR)
            try:
                process = self._table.spawn(
                    argv, cwd=cwd, env=env, stdin=null, stdout=null, stderr=null
                )
            finally:
                os.close(null)
        except (OSError, ValueError):
            return None
        try:
            how = await asyncio.wait_for(asyncio.shield(process.exited), _PROBE_TIMEOUT_S)
        except asyncio.TimeoutError:
            how = await self._table.end(process, 0.0)
        return how.code

    async def _exec_signal(self, params: "calls.ExecSignal") -> None:
        process = self._execs[int(params["channel"])].process
        if process is not None:
            process.signal(int(getattr(signal, str(params["signal"]))))

    async def _exec_resize(self, params: "calls.ExecResize") -> None:
        self._execs[int(params["channel"])].resize(int(params["rows"]), int(params["cols"]))

    async def _loop_start(self, params: "calls.LoopSpec") -> "calls.LoopInfo":
        loop_id = max(self._loops, default=0) + 1
        _give_defaults(params)
        _expand(params)
        ranks, doors = params.get("ranks"), None
        if ranks:
            doors = RankDialIns(self._name, self._table, self._relays)
            try:
                env = doors.environment(loop_id, params, ranks, agent_path())
            except (NoSocketDirectory, ValueError) as error:
                raise rpc.error(str(error)) from None
            params["env"] = {**(params.get("env") or {}), **env}
        gate = self.files.gate
        debug_loop = RestartLoop(
            loop_id, params, self._table, self._dialled_in, doors, gate, self._held
        )
        self._debuggees.claim(loop_id)
        self._loops[loop_id] = debug_loop
        self._loop_tasks[loop_id] = asyncio.ensure_future(debug_loop.run())
        return debug_loop.describe()

    def _dialled_in(
        self, debug_loop: RestartLoop, generation: int, sock: socket.socket, who: DialedProcess
    ) -> None:
        self._debuggees.add(sock, debug_loop.id, generation, who)

    async def _attach_find(self, params: "calls.AttachFind") -> "List[calls.PythonInfo]":
        debugged = self._debuggees.pids
        if params.get("pid") is None:
            return python_processes.find(debugged, params.get("first"))
        one = python_processes.look(int(params["pid"]), debugged, params.get("first"))
        return [] if one is None else [one]

    async def _attach_start(self, params: "calls.AttachSpec") -> "calls.LoopInfo":
        """Begin to bring a debugger into a process; the loop's log says how that goes."""
        debugged = self._debuggees.pids
        found = python_processes.look(int(params["pid"]), debugged, params.get("first"))
        if found is None or found["why_not"]:
            why = found["why_not"] if found is not None else "it is gone"
            raise rpc.error(f"process {params['pid']} can't be attached to: {why}")
        spec: calls.InjectionSpec = {
            **params,
            "python": found["python"],
            "command": found["command"],
        }
        injection = Injection(max(self._loops, default=0) + 1, spec, self._table, self._injected)
        self._debuggees.claim(injection.id)
        self._loops[injection.id] = injection
        self._loop_tasks[injection.id] = asyncio.ensure_future(injection.run())
        self._spawn(injection.hold())
        return injection.describe()

    def _injected(self, injection: Injection, sock: socket.socket, who: DialedProcess) -> None:
        self._debuggees.add(sock, injection.id, injection.generation, who, injection.hung_up)

    async def _loop_begin(self, params: "calls.LoopBegin") -> None:
        debug_loop = self._one_loop(params)
        if isinstance(debug_loop, RestartLoop):
            debug_loop.begin(int(params["generation"]), bool(params.get("now")))

    async def _loop_claim(self, params: "calls.OneLoop") -> int:
        return self._debuggees.claim(self._one_loop(params).id)

    async def _loop_list(self, params: "calls.Nothing") -> "List[calls.LoopInfo]":
        return [debug_loop.describe() for debug_loop in self._loops.values()]

    async def _loop_restart(self, params: "calls.LoopRestart") -> None:
        await self._one_loop(params).restart(
            str(params.get("reason", "restarted")), params.get("generation")
        )

    async def _loop_fail(self, params: "calls.LoopFail") -> None:
        debug_loop = self._one_loop(params)
        if isinstance(debug_loop, RestartLoop):
            debug_loop.fail(str(params["reason"]), int(params["generation"]))

    async def _loop_refresh(self, params: "calls.OneLoop") -> List[int]:
        return await self._one_loop(params).refresh()

    async def _loop_stop(self, params: "calls.OneLoop") -> None:
        debug_loop = self._one_loop(params)
        debug_loop.stop()
        await asyncio.wait([self._loop_tasks[debug_loop.id]])
        self._loops.pop(debug_loop.id, None)
        self._loop_tasks.pop(debug_loop.id, None)

    async def _loop_attached(self, params: "calls.LoopAttached") -> None:
        self._one_loop(params).attached(int(params["generation"]), str(params.get("client", "")))

    def _one_loop(self, params: "calls.OneLoop") -> Union[RestartLoop, Injection]:
        debug_loop = self._loops.get(int(params["loop"]))
        if debug_loop is None:
            raise rpc.error(f"no loop {params['loop']} on this node")
        return debug_loop

    async def _shutdown(self, params: "calls.Shutdown") -> None:
        self._end(str(params.get("reason", "told to end")))

    # -- ends -------------------------------------------------------------

    def end_with(self, fd: int) -> None:
        """End once there is nothing more to read there: the process that started this agent is
        gone.
        """
        loop = asyncio.get_running_loop()

        def look() -> None:
            if not os.read(fd, 4096):
                loop.remove_reader(fd)
                self._end("the agent on the first node has ended")

        loop.add_reader(fd, look)

    def _end(self, why: str) -> None:
        if not self._ending.is_set():
            self._why = why
            if self._peer is not None:
                with contextlib.suppress(Exception):
                    self._peer.notify("ending", reason=why)
            self._ending.set()

    def _time_limit_near(self, left_s: int) -> None:
        if self._peer is not None:
            self._peer.notify("time-limit", left_s=left_s)

    def _spawn(self, work: "Coroutine[object, object, None]") -> None:
        start(self._tasks, work)


def _give_defaults(spec: "calls.LoopSpec") -> None:
    """Add the defaults to the command's environment that this node's has not."""
    env = spec.get("env") or {}
    missing = {
        str(name): str(value)
        for name, value in (spec.get("defaults") or {}).items()
        if name not in os.environ and name not in env
    }
    spec["env"], spec["given"] = {**missing, **env}, sorted(missing)


def _expand(spec: "calls.LoopSpec") -> None:
    """Expand the command of a container."""
    if spec.get("expands"):
        for part in (spec["argv"], spec["interpreter"], spec["words"]):
            part[:] = [expand(str(word), os.environ) for word in part]


def take_warning_s() -> int:
    """Return the lead time of the time-limit warning, and remove it from the environment.

    A job that was not submitted by tk has no such variable: then the usual lead time.
    """
    text = os.environ.pop(WARNING_VARIABLE, "")
    return int(text[:9]) if text.isdecimal() else 120


def _own_argv() -> List[str]:
    """The argv that runs this agent's file, without a command."""
    return [sys.executable, "-I", "-S", os.path.abspath(sys.argv[0])]
