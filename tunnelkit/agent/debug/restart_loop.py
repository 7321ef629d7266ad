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
import time
from typing import TYPE_CHECKING, Callable, Dict, List, Optional

from tunnelkit.agent.debug.fork_server_client import ServerEnded
from tunnelkit.agent.debug.loop_dial_ins import LoopDialIns
from tunnelkit.agent.debug.loop_log import LoopLog
from tunnelkit.agent.debug.rank_support import DialedProcess, RankDialIns
from tunnelkit.agent.debug.run_starter import RunStarter
from tunnelkit.agent.debug.turns import DueEnd, Turns
from tunnelkit.agent.links.socket_dir import NoSocketDirectory
from tunnelkit.agent.mirror.file_thread import FileGate
from tunnelkit.agent.processes.dial_in import HeldPorts
from tunnelkit.agent.processes.exec_channel import start_error
from tunnelkit.agent.processes.loop_run import LoopRun
from tunnelkit.agent.processes.memory import memory_of
from tunnelkit.agent.processes.table import ProcessTable
from tunnelkit.mux import rpc
from tunnelkit.mux.tasks import cancel_all, first_of, unless

if TYPE_CHECKING:
    from tunnelkit.messages.agent_calls import LoopInfo, LoopSpec, RunEndInfo
    from tunnelkit.messages.loop_events import Ended, LoopEvent, LoopState

#: The next debuggee is made this long after the present one got its editor, so that the
#: two don't compete while F5 is on its way.
_STANDBY_AFTER_S = 0.05

OnDebuggee = Callable[["RestartLoop", int, socket.socket, DialedProcess], None]


class RestartLoop:
    """One restart loop. `run` owns everything of it until `stop`.

    doors: needed for ranks. gate: closed while the mirror's files change; no run begins then.
    held: keeps the port afterwards.
    """

    def __init__(
        self,
        loop_id: int,
        spec: "LoopSpec",
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
        self.last_end: Optional[RunEndInfo] = None
        self._debug = bool(spec.get("debug"))
        self._grace_s = float(spec.get("grace_s", 2.0))
        self._table = table
        self._on_debuggee = on_debuggee
        self._dial_ins = LoopDialIns(self._runs, self._arrived, doors, held)
        self._gate = gate
        self._starter = RunStarter(spec, table, self.log.append, self._tell)
        self._made = 0
        self._turns = Turns(free=not spec.get("together"))
        self._front: Optional[LoopRun] = None
        self._next: Optional[LoopRun] = None
        self._failures = 0
        #: Two that ask at once both get what is true after what the first one did.
        self._refreshing = asyncio.Lock()
        self._restart: Optional[str] = None
        self._restart_wanted = asyncio.Event()
        #: The reason why the run in front is ended as one that has failed.
        self._failed_elsewhere = ""
        self._stopped = asyncio.Event()
        self._stop_why = ""

    # -- calls from outside ------------------------------------------------

    def describe(self) -> "LoopInfo":
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
            "once": bool(self.spec.get("once")),
            "together": self.spec.get("together"),
            "given": self.spec.get("given") or [],
            "generation": self.generation,
            "state": self.state,
            "records": self.log.next_number,
            "pid": front.process.pid if front is not None else None,
            "port": self._dial_ins.here.port,
            "last_end": self.last_end,
            "refused_peers": self._dial_ins.here.refused,
        }

    def begin(self, generation: int, now: bool) -> None:
        """The runs up to this one may begin: those on the other nodes have ended.

        now: also if this one would pause."""
        self._turns.begin(generation)
        if now and self._front is None:
            self._failures = 0
            self._restart_wanted.set()

    def attached(self, generation: int, who: str) -> None:
        """An editor is on this generation's debuggee."""
        for run in self._runs():
            if run.number == generation:
                run.has_client(who)
                if run is self._front:
                    self._become({"event": "attached", "client": who})

    async def restart(self, reason: str, generation: Optional[int] = None) -> None:
        """End the running generation (if it is `generation`) and arm the next at once."""
        following = self._next
        if generation is None or generation == self.generation:
            self._restart = reason
            self._failures = 0
            self._restart_wanted.set()
        elif generation > self.generation and following is None:
            self._turns.end_later(DueEnd(generation, reason, failed=False))
        elif following is not None and following.number == generation:
            # It was taken before its turn came, and given up.
            self._next = None
            await self._end(following, reason)

    def fail(self, reason: str, generation: int) -> None:
        """End that generation, if it runs, as one that has failed: its part on another node has."""
        if generation > self.generation:
            self._turns.end_later(DueEnd(generation, reason, failed=True))
        elif generation == self.generation and self._front is not None:
            self._failed_elsewhere = reason
            self._restart_wanted.set()

    async def refresh(self) -> List[int]:
        """Before an F5: check that what was preloaded is still what lies on the disk.

        If not, the debuggees that nobody has had yet are started again; returns their numbers.
        """
        async with self._refreshing:
            ended: List[int] = []
            why = await self._starter.stale()
            if why is None:
                return ended
            following, self._next = self._next, None
            if following is not None:
                ended.append(following.number)
                await self._end(following, why)
            if self._front is not None and not self._front.attached.is_set():
                ended.append(self._front.number)
                await self.restart(why)
            return ended

    def stop(self, why: str = "stopped") -> None:
        """End the loop; `run` returns once nothing of it is left."""
        self._stop_why = self._stop_why or why
        self._stopped.set()
        self._dial_ins.refuse()
        self._restart_wanted.set()

    # -- life -------------------------------------------------------------

    async def run(self) -> None:
        """Run generations until `stop`."""
        try:
            self._dial_ins.open(self.id)
            while not self._stopped.is_set():
                await unless(self._stopped, self._turns.wait(self._made + 1))
                if self._stopped.is_set():
                    break
                await self._reach_nodes()
                await self._its_turn()
                # Asked for while there was nothing to restart.
                self._restart = None
                self._restart_wanted.clear()
                if self._front is not None and not self._stopped.is_set():
                    await self._live(self._front)
                if self._failed_elsewhere:
                    self._failed_elsewhere = ""
                    self._restart_wanted.clear()
                if self.spec.get("once"):
                    self.stop()
                if not self._stopped.is_set() and self._restart is None:
                    await self._back_off()
        except (OSError, NoSocketDirectory) as error:
            self._note_end(self._made, {"error": str(error)}, "not started", attached=False)
        finally:
            self._dial_ins.close()
            for run in self._runs():
                await self._table.end(run.process, self._grace_s)
                await run.close()
            self._front = self._next = None
            await self._starter.close()
            await self._dial_ins.close_far()
            self._become({"event": "stopped"})
            self.log.close()

    async def _reach_nodes(self) -> None:
        """Be there for ranks on other nodes; without one, ranks on that node run free."""
        try:
            await unless(self._stopped, self._dial_ins.reach_nodes(self._node_lost))
        except rpc.RpcError as error:
            self._tell({"event": "no-relay", "why": str(error)})

    def _node_lost(self, node: str, why: str) -> None:
        self._tell({"event": "node-lost", "node": node, "why": why})

    async def _its_turn(self) -> None:
        """Put the run that stands by, or a new one, in front.

        None is there if that fails; the log has the reason then.
        """
        try:
            if self._next is None:
                await self._make_next()
        except (OSError, ValueError) as error:
            how: RunEndInfo = {"error": start_error(self.spec, error)}
            self._note_end(self._made, how, "not started", attached=False)
        except ServerEnded as error:
            self._note_end(self._made, error.how.describe(), "ended", attached=False)
        self._front, self._next = self._next, None

    async def _make_next(self) -> None:
        """Make the next run, unless the loop is stopped meanwhile. Raises what Starter.make
        does."""
        self._made += 1
        self._dial_ins.expect()
        try:
            self._next = await unless(self._stopped, self._make(self._made))
        finally:
            self._dial_ins.made()

    async def _make(self, number: int) -> LoopRun:
        if self._gate is not None:
            await self._gate.wait_open()
        return await self._starter.make(number, self._dial_ins.here.port)

    async def _wait_open(self) -> None:
        """Not in the middle of a checkout: wait until the mirror's files are whole, or for the
        loop's end."""
        if self._gate is not None and not self._gate.is_open:
            await unless(self._stopped, self._gate.wait_open())

    async def _live(self, run: LoopRun) -> None:
        """A run's turn, from its first moment to the last of its processes."""
        self.generation = run.number
        due = self._turns.take_end(run.number)
        if due is not None and due.failed:
            self.fail(due.reason, run.number)
        elif due is not None:
            await self.restart(due.reason, run.number)
        self._become(
            {"event": "starting", "pid": run.process.pid, "port": self._dial_ins.here.port}
        )
        if run.dialled:
            self._become({"event": "armed", "pid": run.process.pid})
        if run.attached.is_set():
            self._become({"event": "attached", "client": run.client})
        await self._wait_open()
        run.begin(self.log.append, self._message_came)
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
            self._tell({"event": "no-standby", "why": str(error)})
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
        end: RunEndInfo = {**how.describe(), "waited_s": run.waited_s(how.duration_s)}
        self._note_end(run.number, end, why, attached=run.attached.is_set())

    def _runs(self) -> List[LoopRun]:
        return [run for run in (self._front, self._next) if run is not None]

    def _arrived(self, run: LoopRun, sock: socket.socket, who: DialedProcess) -> None:
        """A process has dialled in: hand it over as one of this run."""
        run.dialled = True
        if run is self._front and self.state == "starting":
            self._become({"event": "armed", "pid": run.process.pid})
        elif run is self._next and self._front is not None:
            self._tell({"event": "standby", "pid": run.process.pid, **memory_of(run.process.pid)})
        wanted = self._dial_ins.wanted(run, who)
        if wanted is not None and who.rank is not None:
            rank, pid = who.rank.global_rank, who.identity.pid
            self._tell(
                {"event": "rank", "rank": rank, "wanted": wanted, "node": who.node, "pid": pid}
            )
        self._on_debuggee(self, run.number, sock, who)

    def _why(self) -> str:
        if self._stopped.is_set():
            return self._stop_why
        return self._restart or self._failed_elsewhere or "ended"

    def _note_end(self, number: int, how: "RunEndInfo", why: str, *, attached: bool) -> None:
        end: RunEndInfo = {**how, "why": why, "generation": number}
        if self._front is not None and self._front.number < number:
            # Its turn had not come: the run in front goes on.
            self._log_end({"event": "ended", "ahead": True, **end})
            return
        if number >= self.generation and self._next is None:
            self.generation = number
        if number == self.generation:
            self.last_end = end
            self.state = "ended"
            early = self._debug or how.get("duration_s", 0.0) < 1.0
            by_itself = why in ("ended", "not started", self._failed_elsewhere)
            failed = by_itself and early and not attached
            self._failures = self._failures + 1 if failed else 0
        self._log_end({"event": "ended", **end})

    def _log_end(self, end: "Ended") -> None:
        self.log.event({"time": time.time(), **end})

    async def _back_off(self) -> None:
        """After a run that no editor saw: wait, so that a broken command does not spin."""
        if self._failures == 0:
            return
        delay_s = min(10.0, 0.25 * 2 ** min(self._failures, 6))
        self._become({"event": "waiting", "delay_s": delay_s})
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._restart_wanted.wait(), delay_s)

    def _message_came(self, message: Dict[str, object]) -> None:
        """Handle a message of a debuggee about itself."""
        imported, kept = message.get("imported"), message.get("kept")
        if isinstance(imported, dict):
            module, duration_s = imported.get("module", ""), imported.get("duration_s", 0.0)
            self._tell({"event": "imported", "module": module, "duration_s": duration_s})
        elif isinstance(kept, dict):
            error, where = kept.get("error", ""), kept.get("where", "")
            self._become({"event": "kept", "error": error, "where": where})

    def _become(self, state: "LoopState") -> None:
        self.state = state["event"]
        self._tell(state)

    def _tell(self, event: "LoopEvent") -> None:
        self.log.event({"generation": self.generation, "time": time.time(), **event})
