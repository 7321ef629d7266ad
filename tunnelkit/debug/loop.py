"""The laptop's side of a restart loop: an adapter for every debuggee, a debuggee for every F5.

The loop itself runs in the agent (agent/debug/restart_loop.py) and outlives this object. Here its
events are followed (loop_status.py) and its runs kept (runs.py); editor_dispatch.py matches editors
with debuggees.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType

from tunnelkit.debug.adapter.adapter import Adapters
from tunnelkit.debug.ahead.habits import Habits
from tunnelkit.debug.dap.editor_port import EditorPort
from tunnelkit.debug.dap.exit_report import RunEnd
from tunnelkit.debug.dap.messages import Message, whole
from tunnelkit.debug.dap.proxy import SourceFiles
from tunnelkit.debug.debug_target import DebugTarget, carry_free
from tunnelkit.debug.editor_dispatch import EditorDispatch
from tunnelkit.debug.generation import MOST_TARGETS, Generation, Reservation
from tunnelkit.debug.loop_agents.base import LogRecords, LoopAgents
from tunnelkit.debug.loop_log import no_log, notice
from tunnelkit.debug.loop_status import LoopProgress, LoopStatus
from tunnelkit.debug.rank_ports import RankPorts
from tunnelkit.debug.rank_sessions import announce, describe_ranks, open_in_editor
from tunnelkit.debug.ranks.console_messages import EditorOfRank
from tunnelkit.debug.runs import Runs
from tunnelkit.debug.shared_debuggee import RaisedException
from tunnelkit.debug.target_identity import TargetIdentity
from tunnelkit.errors import DebugError, TunnelkitError
from tunnelkit.messages import agent_calls as calls
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.loop_records import EVENT, STDERR, STDOUT, LoopRecord, event_payload
from tunnelkit.mux.tasks import cancel_all, start

#: Of debuggees at once: ranks, and what they start. A node could dial any number.
_MOST_CONNECTIONS = MOST_TARGETS + 256
#: As the agent's.
_MOST_RECORD_BYTES = 64 << 10
#: Of a loop's log: all of it.
FROM_THE_BEGIN: Mapping[int, int] = MappingProxyType({})


class DebugLoop:
    """One loop of the agent, seen from the laptop. `start` or `adopt`, then `close`.

    info: the agent's description of it. on_record gets every event and piece of output, in order.
    on_disconnect: "restart" ends a debuggee whose editor left, "continue" lets it run on. place:
    where the editor's files are on the node, None without a mirror. read_ahead: ask debuggees ahead
    of their editors.
    """

    def __init__(
        self,
        agents: LoopAgents,
        port: EditorPort,
        adapters: Adapters,
        *,
        on_disconnect: str = "restart",
        place: Callable[[], SourceFiles | None] = lambda: None,
        on_record: Callable[[LoopRecord], None] = lambda record: None,
        read_ahead: bool = True,
    ) -> None:
        self.id = self.adopted_run = 0  # the run that a killed session had begun
        self.habits = Habits() if read_ahead else None
        self.info: calls.LoopInfo = {"id": 0, "debug": False, "editor_port": None}
        self.changed = asyncio.Event()
        self.ends_left_runs = on_disconnect == "restart"
        self._agents = agents
        self._port = port
        self._on_record = on_record
        self._progress = LoopProgress()
        self._runs = Runs(adapters, self)
        self._editors = EditorDispatch(
            self, place=place, refresh=self._refresh, capabilities=adapters.capabilities
        )
        self._rank_ports = RankPorts(port.port, self._editors.serve)
        self._tasks: set[asyncio.Task[None]] = set()
        self._carried = 0
        self._over = False
        self._orphaned = False

    # -- life -------------------------------------------------------------

    async def start(self, spec: calls.LoopSpec) -> None:
        """Start a new loop in the agent."""
        self._follow(await self._agents.start(spec))

    async def adopt(
        self, description: calls.LoopInfo, first: Mapping[int, int] = FROM_THE_BEGIN
    ) -> None:
        """Go on with a loop that a killed session left behind.

        first: the records that come first, by part, as that session had those before.
        Its debuggees, armed, running or stopped, get new adapters: the next F5 finds
        them where they were. One whose connection is lost is replaced by the next F5.
        """
        self._follow(description, first)
        self.adopted_run = self._progress.front
        self._progress.state = description.get("state", "")
        offered = await self._agents.claim()
        self._orphaned = self.state == "attached" and not offered

    async def restart(self, reason: str, generation: int | None = None) -> None:
        """End the debuggee and arm the next."""
        await self._agents.restart(reason, generation)

    async def open_in_editor(self, run: Generation, target: DebugTarget) -> EditorOfRank:
        """Open a rank in an editor that is on others of its run (rank_sessions.py)."""
        return await open_in_editor(run, target, self._rank_ports)

    async def stop(self) -> None:
        """End the loop in the agent; returns once its processes are gone."""
        await self._agents.stop()

    async def close(self, lost: str = "") -> None:
        """Release all on the laptop; the agent's loop stays. lost: the reason for editors."""
        self._over = True
        self._port.release(self._editors.serve)
        self.wake()
        await self._rank_ports.close()
        await cancel_all(*self._tasks)
        await self._runs.close(lost)

    def _follow(
        self, description: calls.LoopInfo, first: Mapping[int, int] = FROM_THE_BEGIN
    ) -> None:
        self.id = description["id"]
        self.info = description
        self._progress.front = self._runs.front = description.get("generation", 0)
        self._progress.pid = description.get("pid")
        if self.debugs:
            self._port.serve(self._editors.serve)
            self._runs.prepare()
        self.spawn(self._follow_log(self._agents.log(first)))

    # -- for `tk ready` and `tk status` -----------------------------------

    def describe(self) -> LoopStatus:
        """The loop as a JSON object."""
        editor, progress = self._runs.editor, self._progress
        kept = {key: progress.kept.get(key) for key in ("error", "where")}
        return {
            "id": self.id,
            "command": self.info.get("shown") or self.info.get("argv"),
            "debug": self.debugs,
            "port": self._port.port,
            "state": progress.state,
            "generation": progress.front,
            "pid": progress.pid,
            "editor": editor.name if editor is not None else None,
            "standby": progress.standby or None,
            "kept": kept if progress.kept else None,
            "ranks": describe_ranks(self.first(), self._rank_ports) if self.ranked else None,
            "last_end": progress.last_end,
        }

    @property
    def state(self) -> str:
        """The state of the run in front, as the agent names it; before: new."""
        return self._progress.state

    @property
    def debugs(self) -> bool:
        """True for a loop whose program waits for an editor."""
        return bool(self.info.get("debug"))

    @property
    def has_editor(self) -> bool:
        """True while an editor is on it."""
        return self._runs.editor is not None

    @property
    def port(self) -> int:
        """The port for editors."""
        return self._port.port

    @property
    def keeps_failures(self) -> bool:
        """True: with --post-mortem."""
        return bool(self.info.get("post_mortem"))

    @property
    def ranked(self) -> bool:
        """True for a loop whose runs are ranks."""
        return bool(self.info.get("ranks"))

    def first(self) -> Generation | None:
        """Return the first generation that is not spent: the one that an F5 of now is about."""
        return self._runs.first()

    def with_new_child(self) -> DebugTarget | None:
        """Return the target of a spent run that has just started a child process."""
        return self._runs.with_new_child()

    async def wait_armed(self) -> int:
        """Wait until an F5 would find a debuggee; return its generation.

        Raises DebugError if the debuggee ends before any editor could attach, with the
        last line it wrote.
        """
        asked_after: int | None = None
        await self._refresh()
        while True:
            changed = self.changed
            self.next_is_wanted()
            generation = self.first()
            if generation is not None and generation.claim in (Reservation.FREE, Reservation.TAKEN):
                return generation.number
            if self._orphaned:
                self._replace_orphan()
            if self.state == "stopped" or self._over:
                raise DebugError("the debug loop has ended", hint="start it again: tk loop ...")
            if self.state == "waiting":
                if asked_after is None:
                    # It may have failed on the code before the last save: one more try.
                    asked_after = self._progress.failures
                    await self.restart("ready")
                elif self._progress.failures > asked_after:
                    raise self._progress.early_end()
            await changed.wait()

    async def wait_over(self) -> None:
        """Return once the agent's loop has ended."""
        while self.state != "stopped" and not self._over:
            await self.changed.wait()

    # -- what the agent reports --------------------------------------------

    async def _follow_log(self, log: LogRecords) -> None:
        try:
            await self._read_log(log)
        except Exception as error:
            # Of any kind: a reader that dies unheard leaves a loop that never changes.
            self._on_record(no_log(error))
        self._progress.state = "stopped"
        self._port.release(self._editors.serve)
        self.wake()

    async def _read_log(self, log: LogRecords) -> None:
        async with contextlib.aclosing(log):
            async for record, event in log:
                if record.kind == EVENT:
                    self._event(event)
                elif record.kind == STDERR:
                    self._progress.note_stderr(record.payload)
                self._on_record(record)

    def _event(self, event: Message) -> None:
        number = _number_of(event)
        self._progress.note(event, number)
        self._runs.front = self._progress.front
        name = event.get("event")
        if name == "starting" and self.debugs:
            self._run_of(number)
        elif name == "ended":
            self._runs.end(number, RunEnd.from_event(event), ahead=bool(event.get("ahead")))
        self.wake()

    def debuggee(self, channel: Channel, header: Mapping[str, object]) -> None:
        """Take a process of this loop that dialled in. header: the agent's description of it."""
        generation = self._run_of(whole(header.get("generation")) or 0)
        if generation is None or generation.ended:
            channel.abort({"error": "too late"})
            return
        try:
            target = generation.target_for(TargetIdentity.from_header(header))
        except DebugError as error:
            channel.abort({"error": str(error)})
            return
        if target is not None and target.who.rank is not None and self.ranked:
            self._rank_ports.open(target.who.rank, target.who.world_size)
        self.spawn(self._carry_debuggee(channel, target))

    async def _carry_debuggee(self, channel: Channel, target: DebugTarget | None) -> None:
        if target is None:
            await carry_free(channel)
            return
        self._carried += 1
        try:
            await target.carry_debuggee(channel, free=self._carried > _MOST_CONNECTIONS)
        except (OSError, DebugError) as error:
            channel.abort({"error": str(error)})
        finally:
            self._carried -= 1

    def _run_of(self, number: int) -> Generation | None:
        """Return the generation of that number; None if it is over, or too far ahead."""
        ranks = self.info.get("ranks")
        only = ranks["only"] if ranks else None
        return self._runs.get_or_add(number, ranked=self.ranked, only=only)

    # -- what editors do ---------------------------------------------------

    async def _refresh(self) -> None:
        """See that what was preloaded is what lies on the node's disk now."""
        if not self.info.get("preload"):
            return
        if ended := await self._agents.refresh():
            for one in self._runs.in_order():
                one.left = one.left or one.number in ended
            self.wake()

    def next_is_wanted(self) -> None:
        """Note that somebody waits for a run: one that hangs at its end is in the way."""
        for run in self._runs.in_order():
            run.next_is_wanted()

    def stand(self) -> str | None:
        """The reason why no debuggee will come; None if one may."""
        if self.state == "waiting":
            error = self._progress.early_end()
            return f"{error.message}: {error.cause}"
        if self.state == "stopped":
            return "The debug loop has ended. Start it again: tk loop ..."
        if self._orphaned:
            self._replace_orphan()
        return None

    # -- for its generations (RunHost) --------------------------------------

    @property
    def begins_again(self) -> bool:
        """False for `tk pdb` and `tk attach`: no run follows theirs."""
        return not (self.info.get("once") or self.info.get("attach"))

    def announce_ranks(self, generation: Generation) -> None:
        """Offer the other ranks that are there to the editor on the primary."""
        self.spawn(announce(generation, self._rank_ports))

    async def report_attached(self, generation: int, editor: str) -> None:
        """Report to the agent that an editor has the program."""
        await self._agents.attached(generation, editor)

    def rank_kept(
        self, generation: Generation, target: DebugTarget, raised: RaisedException
    ) -> None:
        """Report a rank that is kept at an uncaught exception to the loop's terminal and log."""
        failure = raised.failure(raised.at_s)
        payload = event_payload(
            "rank-kept",
            generation=generation.number,
            rank=target.who.rank,
            node=target.who.node,
            error=failure.summary if failure is not None else raised.type,
            where=raised.place,
        )
        self._on_record(LoopRecord(EVENT, 0, payload))

    def note(self, text: str) -> None:
        """Put a line into the loop's record."""
        self._on_record(notice(text))

    def left_out(self, text: str) -> None:
        """Take text of log points that an editor was not given to the terminal and the log."""
        data = text.encode("utf-8", "replace")
        for place in range(0, len(data), _MOST_RECORD_BYTES):
            piece = data[place : place + _MOST_RECORD_BYTES]
            self._on_record(LoopRecord(STDOUT, 0, piece))

    def run_given_up(self, generation: Generation, why: str) -> None:
        """End a generation whose adapter is gone."""
        self.spawn(self.restart(why, generation.number))

    def run_abandoned(self, generation: Generation) -> None:
        """Close a generation that has ended and that its last editor has left."""
        self._runs.drop(generation)

    def wake(self) -> None:
        """Wake all that wait for a change."""
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run work that nobody waits for. If the agent is gone meanwhile, so is its purpose."""

        async def quietly() -> None:
            with contextlib.suppress(TunnelkitError):
                await work

        start(self._tasks, quietly())

    # -- inside -----------------------------------------------------------

    def _replace_orphan(self) -> None:
        self._orphaned = False
        self.spawn(self.restart("replaced by a new F5"))


def _number_of(event: Message) -> int:
    """Return the generation of an event. Raises ValueError."""
    number = whole(event.get("generation", 0))
    if number is None:
        raise ValueError(f"generation {event.get('generation')!r}")
    return number
