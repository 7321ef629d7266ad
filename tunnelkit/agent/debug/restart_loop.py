"""The restart loop: one debuggee after the other, the next one armed while the last still runs.

The loop lives in the agent, so it outlives links and sessions. Its log holds its states as events,
of the generation whose turn it is:

    starting -> armed -> attached -> ended -> starting ...
    starting -> ended (crashed early) -> waiting (back-off) -> starting ...
    attached -> kept (died with no editor on it) -> attached (one has come) -> ended ...

Rules of this file: a generation's whole process group and strays are gone before the next one's
program is read, and every event carries its generation.
"""

import asyncio
import contextlib
import socket
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from tunnelkit.agent.debug.fork_server_client import ServerEnded
from tunnelkit.agent.debug.loop_log import LoopLog
from tunnelkit.agent.debug.rank_support import DialedProcess, RankDialIns, visitor
from tunnelkit.agent.debug.run_starter import RunStarter
from tunnelkit.agent.debug.unidentified_peers import UnidentifiedPeers
from tunnelkit.agent.links.socket_dir import NoSocketDirectory
from tunnelkit.agent.mirror.file_thread import FileGate
from tunnelkit.agent.processes.dial_in import DialIn, HeldPorts
from tunnelkit.agent.processes.exec_channel import start_error
from tunnelkit.agent.processes.loop_run import LoopRun
from tunnelkit.agent.processes.memory import memory_of
from tunnelkit.agent.processes.peer_process import identify
from tunnelkit.agent.processes.table import ProcessTable
from tunnelkit.mux import rpc
from tunnelkit.mux.tasks import cancel_all, first_of

#: The next debuggee is made this long after the present one got its editor, so that the
#: two don't compete while F5 is on its way.
_STANDBY_AFTER_S = 0.05

OnDebuggee = Callable[["RestartLoop", int, socket.socket, DialedProcess], None]


class RestartLoop:
    """One restart loop. `run` owns everything of it until `stop`.

    spec: argv, cwd, env as for exec; `debug`: the command dials in and waits for an
    editor; `grace_s`: from TERM to KILL. `interpreter` and `words`: it is a Python program,
    run by debugpy with these arguments; then `standby`: keep the next debuggee ready, and
    `preload`: modules to import once for all. `ranks`: it starts ranks, all or `only` some of
    which dial in; then doors are needed. gate: closed while the mirror's files change; no run
    begins then. held: keeps the port afterwards. `shown` (the command as given) and
    `editor_port` (the session's port) are kept for a session that comes later.
    """

    def __init__(
        self,
        loop_id: int,
        spec: Dict[str, Any],
        table: ProcessTable,
        on_debuggee: OnDebuggee,
        doors: Optional[RankDialIns] = None,
        gate: Optional[FileGate] = None,
        held: Optional[HeldPorts] = None,
    ) -> None:
        self.id = loop_id
        self.spec = spec
        self.log = LoopLog()
        self.generation = 0
        self.state = "new"
        self.last_end: Optional[Dict[str, Any]] = None
        self._debug = bool(spec.get("debug"))
        self._grace_s = float(spec.get("grace_s", 2.0))
        self._table = table
        self._on_debuggee = on_debuggee
        self._dialin = DialIn(self._dialled)
        self._doors = doors
        self._gate = gate
        self._held = held
        self._starter = RunStarter(spec, table, self.log.append, self._tell)
        self._made = 0
        self._front: Optional[LoopRun] = None
        self._next: Optional[LoopRun] = None
        #: Dialled in while the run that they belong to is being made.
        self._early: Optional[List[Tuple[socket.socket, DialedProcess]]] = None
        self._strangers = UnidentifiedPeers(self._admit)
        self._failures = 0
        #: Two that ask at once both get what is true after what the first one did.
        self._refreshing = asyncio.Lock()
        self._restart: Optional[str] = None
        self._restart_wanted = asyncio.Event()
        self._stopped = asyncio.Event()
        self._stop_why = ""

    # -- calls from outside ------------------------------------------------

    def describe(self) -> Dict[str, Any]:
        """The loop as a JSON object."""
        front = self._front
        return {
            "id": self.id,
            "argv": self.spec.get("argv"),
            "shown": self.spec.get("shown"),
            "editor_port": self.spec.get("editor_port"),
            "debug": self._debug,
            "preload": self.spec.get("preload") or [],
            "ranks": self.spec.get("ranks"),
            "post_mortem": bool(self.spec.get("post_mortem")),
            "reload": bool(self.spec.get("reload")),
            "generation": self.generation,
            "state": self.state,
            "pid": front.process.pid if front is not None else None,
            "port": self._dialin.port,
            "last_end": self.last_end,
            "refused_peers": self._dialin.refused,
        }

    def attached(self, generation: int, who: str) -> None:
        """An editor is on this generation's debuggee."""
        for run in (self._front, self._next):
            if run is not None and run.number == generation:
                run.has_client(who)
                if run is self._front:
                    self._become("attached", client=who)

    async def restart(self, reason: str, generation: Optional[int] = None) -> None:
        """End the running generation (if it is `generation`) and arm the next at once."""
        following = self._next
        if generation is None or generation == self.generation:
            self._restart = reason
            self._failures = 0
            self._restart_wanted.set()
        elif following is not None and following.number == generation:
            # It was taken before its turn came, and given up.
            self._next = None
            await self._end(following, reason)

    async def refresh(self) -> Optional[str]:
        """Before an F5: check that what was preloaded is still what lies on the disk.

        If not, the debuggees that no editor has yet are started again; returns what has changed.
        """
        async with self._refreshing:
            why = await self._starter.stale()
            if why is None:
                return None
            following, self._next = self._next, None
            if following is not None:
                await self._end(following, why)
            if self._front is not None and not self._front.attached.is_set():
                await self.restart(why)
            return why

    def stop(self, why: str = "stopped") -> None:
        """End the loop; `run` returns once nothing of it is left."""
        self._stop_why = self._stop_why or why
        self._stopped.set()
        self._restart_wanted.set()

    # -- life -------------------------------------------------------------

    async def run(self) -> None:
        """Run generations until `stop`."""
        self._dialin.open()
        try:
            if self._doors is not None:
                self._doors.open(self.id, self._dialin.port)
            while not self._stopped.is_set():
                await self._reach_nodes()
                await self._its_turn()
                # Asked for while there was nothing to restart.
                self._restart = None
                self._restart_wanted.clear()
                if self._front is not None and not self._stopped.is_set():
                    await self._live(self._front)
                if not self._stopped.is_set() and self._restart is None:
                    await self._back_off()
        except (OSError, NoSocketDirectory) as error:
            self._note_end(self._made, {"error": str(error)}, "not started", attached=False)
        finally:
            self._give_up_port()
            self._strangers.close()
            for run in (self._front, self._next):
                if run is not None:
                    await self._table.end(run.process, self._grace_s)
                    await run.close()
            self._front = self._next = None
            await self._starter.close()
            if self._doors is not None:
                await self._doors.close()
            self._become("stopped")
            self.log.close()

    def _give_up_port(self) -> None:
        """Not while something that outlives this may dial it."""
        if self._held is None or not self._dialin.port:
            self._dialin.close()
        else:
            self._held.add(self._dialin)

    async def _reach_nodes(self) -> None:
        """Be there for ranks on other nodes; without one, ranks on that node run free."""
        if self._doors is None:
            return
        reaching = asyncio.ensure_future(self._doors.reach(self._dialled_far, self._node_lost))
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await first_of(reaching, stopped)
            if reaching.done():
                reaching.result()
        except rpc.RpcError as error:
            self._tell("no-relay", why=str(error))
        finally:
            await cancel_all(reaching, stopped)

    def _node_lost(self, node: str, why: str) -> None:
        self._tell("node-lost", node=node, why=why)

    async def _its_turn(self) -> None:
        """Put the run that stands by, or a new one, in front.

        None is there if that fails; the log has the reason then.
        """
        try:
            if self._next is None:
                await self._make_next()
        except (OSError, ValueError) as error:
            how: Dict[str, Any] = {"error": start_error(self.spec, error)}
            self._note_end(self._made, how, "not started", attached=False)
        except ServerEnded as error:
            self._note_end(self._made, error.how.describe(), "ended", attached=False)
        self._front, self._next = self._next, None

    async def _make_next(self) -> None:
        """Make the next run, unless the loop is stopped meanwhile. Raises what Starter.make
        does."""
        self._made += 1
        self._early = []
        making = asyncio.ensure_future(self._make(self._made))
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await first_of(making, stopped)
            if making.done():
                self._next = making.result()
        finally:
            await cancel_all(making, stopped)
            early, self._early = self._early, None
            for sock, who in early:
                self._visit(sock, who)

    async def _make(self, number: int) -> LoopRun:
        if self._gate is not None:
            await self._gate.wait_open()
        return await self._starter.make(number, self._dialin.port)

    async def _wait_open(self) -> None:
        """Not in the middle of a checkout: wait until the mirror's files are whole, or for the
        loop's end."""
        if self._gate is None or self._gate.is_open:
            return
        whole = asyncio.ensure_future(self._gate.wait_open())
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await first_of(whole, stopped)
        finally:
            await cancel_all(whole, stopped)

    async def _live(self, run: LoopRun) -> None:
        """A run's turn, from its first moment to the last of its processes."""
        self.generation = run.number
        self._become("starting", pid=run.process.pid, port=self._dialin.port)
        if run.dialled:
            self._become("armed", pid=run.process.pid)
        if run.attached.is_set():
            self._become("attached", client=run.client)
        await self._wait_open()
        run.begin(self.log.append, self._told)
        wanted = asyncio.ensure_future(self._restart_wanted.wait())
        ahead = asyncio.ensure_future(self._stand_by(run))
        try:
            await first_of(run.process.exited, wanted)
            by_itself = run.process.exited.done()
            await self._end(run, "ended" if by_itself else self._why())
            if run.attached.is_set():
                # It may be about to be made: that is the next one's start.
                await asyncio.wait([ahead])
        finally:
            await cancel_all(wanted, ahead)
        self._front = None

    async def _stand_by(self, run: LoopRun) -> None:
        """Once `run` has its editor, make the next one, which waits for its turn."""
        if not self._debug or not self._starter.can_stand_by:
            return
        await run.attached.wait()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(run.process.exited), _STANDBY_AFTER_S)
        if self._next is not None or self._stopped.is_set():
            return
        try:
            await self._make_next()
        except (OSError, ValueError, ServerEnded) as error:
            # When its turn comes it is tried again, with the whole message.
            self._tell("no-standby", why=str(error))
        following = self._next
        if following is None or run.process.exited.done():
            return
        await first_of(run.process.exited, following.process.exited)
        if following.process.exited.done() and self._next is following:
            self._next = None
            await self._end(following, "ended while it stood by")

    async def _end(self, run: LoopRun, why: str) -> None:
        """End a run with all that it started, and tell how it ended."""
        how = await self._table.end(run.process, self._grace_s)
        await run.drain(0.5)
        await run.close()
        told = dict(how.describe(), waited_s=run.waited_s(how.duration_s))
        self._note_end(run.number, told, why, attached=run.attached.is_set())

    def _dialled(self, sock: socket.socket) -> None:
        likely = [run.process.pid for run in (self._front, self._next) if run is not None]
        self._visit(sock, visitor(identify(sock, likely)))

    def _dialled_far(self, sock: socket.socket, who: DialedProcess) -> None:
        self._visit(sock, who)

    def _admit(self, sock: socket.socket, who: DialedProcess) -> None:
        self._visit(sock, who, stayed=True)

    def _visit(self, sock: socket.socket, who: DialedProcess, *, stayed: bool = False) -> None:
        """A process has dialled in: hand it over as one of the run that it belongs to. stayed:
        nobody knows it, but it has not hung up."""
        runs = [run for run in (self._front, self._next) if run is not None]
        run = next((one for one in runs if one.process.tag == who.identity.tag), None)
        if run is None and self._early is not None and not self._stopped.is_set():
            # A forked debuggee can dial in before the fork server has reported it.
            self._early.append((sock, who))
            return
        if run is None and runs:
            # Elsewhere nobody can tell which process it is.
            if sys.platform == "linux" and not (
                runs[0].dialled or stayed or self._stopped.is_set()
            ):
                self._strangers.hold(sock, who)
                return
            run = runs[0]
        if run is None or self._stopped.is_set():
            sock.close()
            return
        pid = who.identity.pid
        run.dialled = True
        if run is self._front and self.state == "starting":
            self._become("armed", pid=run.process.pid)
        elif run is self._next and self._front is not None:
            self._tell("standby", pid=run.process.pid, **memory_of(run.process.pid))
        if self._doors is not None and who.rank is not None:
            wanted = self._doors.wanted(self.spec, who.rank)
            rank = who.rank.global_rank
            self._tell("rank", rank=rank, wanted=wanted, node=who.node, pid=pid)
        self._on_debuggee(self, run.number, sock, who)

    def _why(self) -> str:
        return self._stop_why if self._stopped.is_set() else self._restart or "ended"

    def _note_end(self, number: int, how: Dict[str, Any], why: str, *, attached: bool) -> None:
        end = dict(how, why=why, generation=number)
        if self._front is not None and self._front.number < number:
            # Its turn had not come: the run in front goes on.
            self.log.event("ended", time=time.time(), ahead=True, **end)
            return
        if number >= self.generation and self._next is None:
            self.generation = number
        if number == self.generation:
            self.last_end = end
            self.state = "ended"
            early = self._debug or float(how.get("duration_s", 0.0)) < 1.0
            failed = why in ("ended", "not started") and early and not attached
            self._failures = self._failures + 1 if failed else 0
        self.log.event("ended", time=time.time(), **end)

    async def _back_off(self) -> None:
        """After a run that no editor saw: wait, so that a broken command does not spin."""
        if self._failures == 0:
            return
        delay_s = min(10.0, 0.25 * 2 ** min(self._failures, 6))
        self._become("waiting", delay_s=delay_s)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._restart_wanted.wait(), delay_s)

    def _told(self, message: Dict[str, Any]) -> None:
        """Handle a message of a debuggee about itself."""
        if "imported" in message:
            self._tell("imported", **message["imported"])
        elif "kept" in message:
            self._become("kept", **message["kept"])

    def _become(self, state: str, **fields: Any) -> None:
        self.state = state
        self._tell(state, **fields)

    def _tell(self, event: str, **fields: Any) -> None:
        self.log.event(event, generation=self.generation, time=time.time(), **fields)
