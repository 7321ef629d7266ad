"""The laptop's side of a restart loop: an adapter for every debuggee, a debuggee for every F5.

The loop itself runs in the agent (agent/debug/restart_loop.py) and outlives this object. Here its
events are followed and adapters are kept one ahead; editor_dispatch.py matches editors with
debuggees.

Rules of this file: generations are taken in their order. One that stands by is
nobody's before all earlier ones are spent.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from tunnelkit.debug.adapter.adapter import AdapterAhead, Adapters
from tunnelkit.debug.agent_api import AgentApi
from tunnelkit.debug.dap.editor_port import Editor, EditorPort
from tunnelkit.debug.dap.exit_report import early_end
from tunnelkit.debug.dap.peek import whole
from tunnelkit.debug.dap.proxy import SourceFiles
from tunnelkit.debug.debug_target import DebugTarget, TargetEvents, TargetIdentity
from tunnelkit.debug.editor_dispatch import EditorDispatch
from tunnelkit.debug.generation import EXIT_GRACE_S, MOST_TARGETS, Closing, Generation, Reservation
from tunnelkit.debug.interrupt import interrupt
from tunnelkit.debug.loop_log import no_log, read_log
from tunnelkit.debug.loop_status import LoopStatus
from tunnelkit.debug.rank_ports import RankPorts
from tunnelkit.debug.rank_sessions import announce, describe_ranks
from tunnelkit.errors import DebugError, TunnelkitError
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.loop_records import EVENT, STDERR, LoopRecord
from tunnelkit.mux.tasks import cancel_all

_STDERR_TAIL_BYTES = 4096
_GENERATIONS_AHEAD = 2  # of their turn, beside the one in front: the agent never has more
#: The states of the generation in front; others are reported beside it.
_STATES = frozenset({"starting", "armed", "attached", "kept", "ended", "waiting", "stopped"})
#: Of debuggees at once: ranks, and what they start. A node could dial any number.
_MOST_CONNECTIONS = MOST_TARGETS + 256


class DebugLoop:
    """One loop of the agent, seen from the laptop. `start` or `adopt`, then `close`.

    on_record gets every event and piece of output, in order. on_disconnect:
    "restart" ends a debuggee whose editor left, "continue" lets it run on. place: where the
    editor's files are on the node, None without a mirror.
    """

    def __init__(
        self,
        agent: AgentApi,
        port: EditorPort,
        adapters: Adapters,
        *,
        on_disconnect: str = "restart",
        place: Callable[[], SourceFiles | None] = lambda: None,
        on_record: Callable[[LoopRecord], None] = lambda record: None,
    ) -> None:
        self.id = 0
        self.state = "new"
        self.info: dict[str, Any] = {}
        self.last_end: dict[str, Any] = {}
        self._agent = agent
        self._port = port
        self._adapters = adapters
        self._on_disconnect = on_disconnect
        self._on_record = on_record
        self._editors = EditorDispatch(
            self, place=place, refresh=self._refresh, capabilities=adapters.capabilities
        )
        self._rank_ports = RankPorts(port.port, self._editors.serve)
        #: Those that have not ended, by number; `_front` is the one whose turn it is.
        self._generations: dict[int, Generation] = {}
        self._over_with = Closing()
        self._front = 0
        self.standby: dict[str, Any] = {}
        #: The exception that the program is kept at, while no editor is on it.
        self.kept: dict[str, Any] = {}
        #: How often it has come to wait after a debuggee that nobody saw.
        self._failures = 0
        self._ahead = AdapterAhead(adapters)
        self.changed = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stderr, self._carried = b"", 0
        self._over = False
        self._orphaned = False

    # -- life -------------------------------------------------------------

    async def start(self, spec: dict[str, Any]) -> None:
        """Start a new loop in the agent; `spec` as agent/debug/restart_loop.py describes it."""
        self._follow(await self._agent.call("loop.start", **spec), first=0)

    async def adopt(self, description: dict[str, Any]) -> None:
        """Go on with a loop that a killed session left behind.

        Its debuggees, armed, running or stopped, get new adapters: the next F5 finds
        them where they were. One whose connection is lost is replaced by the next F5.
        """
        self._follow(description, first=-1)
        self.state = str(description["state"])
        offered = await self._agent.call("loop.claim", loop=self.id)
        self._orphaned = self.state == "attached" and not offered

    async def restart(self, reason: str, generation: int | None = None) -> None:
        """End the debuggee and arm the next."""
        await self._agent.call("loop.restart", loop=self.id, reason=reason, generation=generation)

    async def interrupt(self, rank: int | None = None) -> list[dict[str, Any]]:
        """Pause the program, or one rank of it (interrupt.py). Raises DebugError."""
        return await interrupt(self.first(), rank)

    async def stop(self) -> None:
        """End the loop in the agent; returns once its processes are gone."""
        await self._agent.call("loop.stop", loop=self.id)

    async def close(self, lost: str = "") -> None:
        """Release all on the laptop; the agent's loop stays. lost: the reason for editors."""
        self._over = True
        self._port.serve(None)
        self._wake()
        await self._rank_ports.close()
        await cancel_all(*self._tasks)
        for generation in self._generations.values():
            if lost and not generation.ending.done():
                generation.ending.set_result({"lost": lost})
            await generation.close()
        await self._over_with.wait()
        await self._ahead.close()

    def _follow(self, description: dict[str, Any], *, first: int) -> None:
        self.id = int(description["id"])
        self.info = description
        self._front = int(description.get("generation") or 0)
        if description.get("debug"):
            self._port.serve(self._editors.serve)
            self._ahead.prepare()
        channel = self._agent.open({"type": "loop-log", "loop": self.id, "from": first})
        self._spawn(self._follow_log(channel))

    # -- for `tk ready` and `tk status` -----------------------------------

    def describe(self) -> LoopStatus:
        """The loop as a JSON object."""
        editor = self._editor()
        return {
            "id": self.id,
            "command": self.info.get("shown") or self.info.get("argv"),
            "debug": bool(self.info.get("debug")),
            "port": self._port.port,
            "state": self.state,
            "generation": self._front,
            "pid": self.info.get("pid"),
            "editor": editor.name if editor is not None else None,
            "standby": self.standby or None,
            "kept": {key: self.kept.get(key) for key in ("error", "where")} if self.kept else None,
            "ranks": describe_ranks(self.first(), self._rank_ports) if self.ranked else None,
            "last_end": self.last_end,
        }

    @property
    def has_editor(self) -> bool:
        """True while an editor is on it."""
        return self._editor() is not None

    @property
    def port(self) -> int:
        """The port for editors."""
        return self._port.port

    @property
    def ranked(self) -> bool:
        """True for a loop whose runs are ranks."""
        return bool(self.info.get("ranks"))

    def _editor(self) -> Editor | None:
        return next((one.editor for one in self._in_order() if one.editor is not None), None)

    def _in_order(self) -> list[Generation]:
        return [self._generations[number] for number in sorted(self._generations)]

    def first(self) -> Generation | None:
        """The first generation that is not spent: the one that an F5 of now is about."""
        return next((one for one in self._in_order() if one.claim is not Reservation.SPENT), None)

    async def wait_armed(self) -> int:
        """Wait until an F5 would find a debuggee; return its generation.

        Raises DebugError if the debuggee ends before any editor could attach, with the
        last line it wrote.
        """
        asked_after: int | None = None
        await self._refresh()
        while True:
            changed = self.changed
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
                    asked_after = self._failures
                    await self.restart("ready")
                elif self._failures > asked_after:
                    raise early_end(self.last_end, self._stderr)
            await changed.wait()

    async def wait_over(self) -> None:
        """Return once the agent's loop has ended."""
        while self.state != "stopped" and not self._over:
            await self.changed.wait()

    # -- what the agent tells ---------------------------------------------

    async def _follow_log(self, channel: Channel) -> None:
        try:
            await self._read_log(channel)
        except Exception as error:
            # Of any kind: a reader that dies unheard leaves a loop that never changes.
            self._on_record(no_log(error))
            channel.abort({"error": "no log of a loop"})
        self.state = "stopped"
        self._port.serve(None)
        self._wake()

    async def _read_log(self, channel: Channel) -> None:
        async for record, event in read_log(channel):
            if record.kind == EVENT:
                self._event(event)
            elif record.kind == STDERR:
                self._stderr = (self._stderr + record.payload)[-_STDERR_TAIL_BYTES:]
            self._on_record(record)

    def _event(self, event: dict[str, Any]) -> None:
        name, number = str(event.get("event")), int(event.get("generation", 0))
        if name == "standby":
            self.standby = {key: event[key] for key in event if key not in ("event", "time")}
        ahead = bool(event.get("ahead"))
        if name in _STATES and number >= self._front and not ahead:
            self.state = name
            self._front = number
            self.kept = event if name == "kept" else {}
        if name == "waiting":
            self._failures += 1
        if name == "starting":
            self.info["pid"] = event.get("pid")
            self.standby = {}
            self._stderr = b""
            if self.info.get("debug"):
                self._generation_of(number)
        elif name == "ended":
            if number == self._front:
                self.last_end = event
            ended = self._generations.get(number)
            if ended is not None and not ended.ending.done():
                ended.ending.set_result(event)
            if ahead:
                self.standby = {}
            self._forget(number, ahead=ahead)
        self._wake()

    def _forget(self, number: int, *, ahead: bool) -> None:
        """A generation has ended, and with it all before it, unless it was ahead of its turn."""
        first = number if ahead else 0
        for one in [one for one in self._in_order() if first <= one.number <= number]:
            one.ended = True
            if one.editor is None:
                self._over_with.add(self._generations.pop(one.number))

    def debuggee(self, channel: Channel, header: dict[str, Any]) -> None:
        """Take a process of this loop that dialled in. header: the agent's description of it."""
        generation = self._generation_of(whole(header.get("generation")) or 0)
        if generation is None or generation.ended or self._carried >= _MOST_CONNECTIONS:
            channel.abort({"error": "too late, or too many"})
            return
        try:
            target = generation.target_for(TargetIdentity.from_header(header))
        except DebugError as error:
            channel.abort({"error": str(error)})
            return
        if target.who.rank is not None:
            self._rank_ports.open(target.who.rank, target.who.world_size)
        self._spawn(self._carry_debuggee(channel, target))

    async def _carry_debuggee(self, channel: Channel, target: DebugTarget) -> None:
        self._carried += 1
        try:
            await target.carry_debuggee(channel)
        except (OSError, DebugError) as error:
            channel.abort({"error": str(error)})
        finally:
            self._carried -= 1

    def _armed(self, target: DebugTarget) -> None:
        self._wake()
        self._announce(self._generation_with(target))

    def _generation_with(self, target: DebugTarget) -> Generation | None:
        return next((one for one in self._generations.values() if target in one.targets), None)

    def _generation_of(self, number: int) -> Generation | None:
        """The generation of that number; None if it is over, or none that the loop can have
        yet: each costs a debug adapter on this machine."""
        ahead = sum(one > self._front for one in self._generations)
        room = number == self._front or ahead < _GENERATIONS_AHEAD
        if number not in self._generations and number >= self._front and room:
            self._generations[number] = Generation(
                number,
                self._ahead.take,
                ranked=self.ranked,
                only=(self.info.get("ranks") or {}).get("only"),
                events=TargetEvents(
                    armed=self._armed,
                    attached=self._attached,
                    terminated=self._terminated,
                    leaving=self._leaving,
                    heard=self._heard,
                ),
                changed=self._wake,
            )
        return self._generations.get(number)

    # -- what editors do ---------------------------------------------------

    async def _refresh(self) -> None:
        """See that what was preloaded is what lies on the node's disk now."""
        if not self.info.get("preload"):
            return
        if await self._agent.call("loop.refresh", loop=self.id) is not None:
            for one in self._in_order():
                # Those that nobody has are being replaced.
                one.left = one.left or one.editor is None
            self._wake()

    def stand(self) -> str | None:
        """The reason why no debuggee will come; None if one may."""
        if self.state == "waiting":
            error = early_end(self.last_end, self._stderr)
            return f"{error.message}: {error.cause}"
        if self.state == "stopped":
            return "The debug loop has ended. Start it again: tk loop ..."
        if self._orphaned:
            self._replace_orphan()
        return None

    async def give_up(self, target: DebugTarget, why: str) -> None:
        """End the generation of this target."""
        generation = self._generation_with(target)
        if generation is not None:
            generation.left = True
            self._spawn(self.restart(why, generation.number))

    def _attached(self, target: DebugTarget) -> None:
        generation = self._generation_with(target)
        if generation is None:
            return
        name = target.editor.name if target.editor is not None else ""
        number = generation.number
        self._spawn(self._agent.call("loop.attached", loop=self.id, generation=number, client=name))

    async def _heard(self, target: DebugTarget) -> None:
        self._announce(self._generation_with(target))

    def _announce(self, generation: Generation | None) -> None:
        """Tell the editor on the primary of the other ranks that are there."""
        if generation is not None and generation.ranked:
            self._spawn(announce(generation, self._rank_ports))

    async def _leaving(self, target: DebugTarget) -> None:
        """The editor says goodbye: end its debuggee where it stands, if that is the policy."""
        generation = self._generation_with(target)
        if generation is None or generation.terminated or generation.ended:
            return
        if target is not generation.primary or target.terminated:
            return  # the other ranks stay where they are
        if self._on_disconnect != "restart":
            # It runs on, and is the next editor's again.
            target.left = False
            return
        with contextlib.suppress(TunnelkitError, TimeoutError):
            async with asyncio.timeout(EXIT_GRACE_S):
                await self.restart("editor left", generation.number)
                while not generation.ended:
                    await self.changed.wait()

    def editor_gone(self, target: DebugTarget) -> None:
        """The main editor of this target has hung up."""
        self._wake()
        generation = self._generation_with(target)
        if generation is None:
            return
        if generation.ended:
            if generation.editor is None:
                self._generations.pop(generation.number, None)
                self._over_with.add(generation)
        elif target.terminated or not target.attached:
            pass
        elif target is not generation.primary:
            # One rank was let go: it runs on, the others are still debugged.
            target.left = True
        elif self._on_disconnect == "restart":
            target.left = True
            self._spawn(self.restart("editor left", generation.number))
        else:
            target.left = False
            target.attached = False

    def _terminated(self, target: DebugTarget) -> None:
        generation = self._generation_with(target)
        if generation is not None and generation.terminated:
            self._spawn(self._end_later(generation))

    async def _end_later(self, generation: Generation) -> None:
        """A debuggee that has said goodbye must exit soon; one that hangs is ended."""
        try:
            async with asyncio.timeout(generation.exit_grace_s):
                while not generation.ended:
                    await self.changed.wait()
        except TimeoutError:
            await self.restart("hung at exit", generation.number)

    def _replace_orphan(self) -> None:
        self._orphaned = False
        self._spawn(self.restart("replaced by a new F5"))

    # -- inside -----------------------------------------------------------

    def _wake(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Work that nobody waits for. If the agent is gone meanwhile, so is its purpose."""

        async def quietly() -> None:
            with contextlib.suppress(TunnelkitError):
                await work

        task = asyncio.create_task(quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
