"""The laptop's side of a restart loop: an adapter for every debuggee, a debuggee for every F5.

The loop itself runs in the agent (agent/loop.py) and outlives this object. Here
its events are followed, adapters are kept one ahead, and editors are matched
with debuggees.

Rules of this file: generations are taken in their order. One that stands by is
nobody's before all earlier ones are spent.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from tunnelkit.debug.adapter import Adapter, Adapters
from tunnelkit.debug.conversation import Place
from tunnelkit.debug.generation import AdapterGone, Claim, Generation
from tunnelkit.debug.port import Editor, EditorPort
from tunnelkit.errors import DebugError, TunnelkitError
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.records import EVENT, STDERR, Record, RecordReader
from tunnelkit.mux.waiting import cancel_all

#: An editor that comes while another has the debuggee is told so after this long:
#: the first may be just about to hang up.
_SECOND_EDITOR_WAIT_S = 1.0
#: A debuggee that said goodbye to its editor has this long to exit by itself.
_EXIT_GRACE_S = 5.0
_STDERR_TAIL_BYTES = 4096
#: Events that say what the generation in front does; others are told beside it.
_STATES = frozenset({"starting", "armed", "attached", "ended", "waiting", "stopped"})


class AgentApi(Protocol):
    """What a loop needs of the agent."""

    async def call(self, method: str, **params: Any) -> Any: ...

    def open(self, header: dict[str, Any]) -> Channel: ...


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
        place: Callable[[], Place | None] = lambda: None,
        on_record: Callable[[Record], None] = lambda record: None,
    ) -> None:
        self.id = 0
        self.state = "new"
        self.info: dict[str, Any] = {}
        self.last_end: dict[str, Any] = {}
        self._agent = agent
        self._port = port
        self._adapters = adapters
        self._on_disconnect = on_disconnect
        self._place = place
        self._on_record = on_record
        #: Those that have not ended, by number; `_front` is the one whose turn it is.
        self._generations: dict[int, Generation] = {}
        self._front = 0
        self.standby: dict[str, Any] = {}
        self._spare: asyncio.Task[Adapter] | None = None
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stderr = b""
        self._over = False
        self._orphaned = False

    # -- life -------------------------------------------------------------

    async def start(self, spec: dict[str, Any]) -> None:
        """Start a new loop in the agent; `spec` as agent/loop.py describes it."""
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

    async def stop(self) -> None:
        """End the loop in the agent; returns once its processes are gone."""
        await self._agent.call("loop.stop", loop=self.id)

    async def close(self) -> None:
        """Let go of everything on the laptop; the agent's loop is not touched."""
        self._over = True
        self._port.serve(None)
        self._wake()
        await cancel_all(*self._tasks)
        for generation in self._generations.values():
            await generation.close()
        if self._spare is not None:
            await Generation(0, self._spare).close()

    def _follow(self, description: dict[str, Any], *, first: int) -> None:
        self.id = int(description["id"])
        self.info = description
        self._front = int(description.get("generation") or 0)
        if description.get("debug"):
            self._port.serve(self._serve_editor)
            self._prepare_spare()
        channel = self._agent.open({"type": "loop-log", "loop": self.id, "from": first})
        self._spawn(self._follow_log(channel))

    # -- for `tk ready` and `tk status` -----------------------------------

    def describe(self) -> dict[str, Any]:
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
            "last_end": self.last_end,
        }

    def _editor(self) -> Editor | None:
        return next((one.editor for one in self._in_order() if one.editor is not None), None)

    def _in_order(self) -> list[Generation]:
        return [self._generations[number] for number in sorted(self._generations)]

    def _first(self) -> Generation | None:
        """The first generation that is not spent: the one that an F5 of now is about."""
        return next((one for one in self._in_order() if one.claim is not Claim.SPENT), None)

    async def wait_armed(self) -> int:
        """Wait until an F5 would find a debuggee; return its generation.

        Raises DebugError if the debuggee ends before any editor could attach, with the
        last line it wrote.
        """
        seen_waiting = False
        await self._refresh()
        while True:
            changed = self._changed
            generation = self._first()
            if generation is not None and generation.claim in (Claim.FREE, Claim.TAKEN):
                return generation.number
            if self._orphaned:
                self._replace_orphan()
            if self.state == "stopped" or self._over:
                raise DebugError("the debug loop has ended", hint="start it again: tk loop ...")
            if self.state == "waiting":
                if seen_waiting:
                    raise self._early_end()
                # It may have failed on the code before the last save: one more try.
                await self.restart("ready")
                seen_waiting = True
            await changed.wait()

    async def wait_over(self) -> None:
        """Return once the agent's loop has ended."""
        while self.state != "stopped" and not self._over:
            await self._changed.wait()

    def _early_end(self) -> DebugError:
        lines = self._stderr.decode("utf-8", "replace").strip().splitlines()
        error = self.last_end.get("error")
        code, signal = self.last_end.get("code"), self.last_end.get("signal")
        how = f"signal {signal}" if signal else f"exit code {code}"
        return DebugError(
            "the debuggee ended before an editor could attach",
            cause=str(error) if error else f"{how}: {lines[-1] if lines else 'no output'}",
            hint="see `tk logs`",
        )

    # -- what the agent tells ---------------------------------------------

    async def _follow_log(self, channel: Channel) -> None:
        reader = RecordReader()
        while data := await channel.read():
            for record in reader.feed(data):
                if record.kind == EVENT:
                    self._event(record.event())
                elif record.kind == STDERR:
                    self._stderr = (self._stderr + record.payload)[-_STDERR_TAIL_BYTES:]
                self._on_record(record)
        self.state = "stopped"
        self._port.serve(None)
        self._wake()

    def _event(self, event: dict[str, Any]) -> None:
        name, number = str(event.get("event")), int(event.get("generation", 0))
        if name == "standby":
            self.standby = {key: event[key] for key in event if key not in ("event", "time")}
        if name in _STATES and number >= self._front:
            self.state = name
            self._front = number
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
            self._forget(number)
        self._wake()

    def _forget(self, number: int) -> None:
        """A generation has ended, and with it all before it."""
        for one in [one for one in self._in_order() if one.number <= number]:
            one.ended = True
            if one.editor is None:
                del self._generations[one.number]
                self._spawn(one.close())

    def debuggee(self, channel: Channel, generation: int) -> None:
        """A process of this loop dialled in."""
        self._spawn(self._carry_debuggee(channel, self._generation_of(generation)))

    async def _carry_debuggee(self, channel: Channel, generation: Generation | None) -> None:
        if generation is None or generation.ended:
            channel.abort({"error": "too late"})
            return
        try:
            sock = await generation.connect_debuggee()
        except (OSError, DebugError) as error:
            channel.abort({"error": str(error)})
            return
        generation.armed = True
        self._wake()
        await generation.carry_debuggee(sock, channel)

    def _generation_of(self, number: int) -> Generation | None:
        """The generation of that number; None if it is over."""
        if number not in self._generations and number >= self._front:
            spare, self._spare = self._spare, None
            self._generations[number] = Generation(
                number,
                spare or asyncio.create_task(self._adapters.start()),
                on_attached=self._attached,
                on_terminated=self._terminated,
                on_leaving=self._leaving,
            )
            self._prepare_spare()
        return self._generations.get(number)

    def _prepare_spare(self) -> None:
        if self._spare is None and not self._over:
            self._spare = asyncio.create_task(self._adapters.start())

    # -- editors ----------------------------------------------------------

    async def _serve_editor(self, editor: Editor) -> None:
        await self._refresh()
        while (generation := await self._claim(editor)) is not None:
            try:
                await generation.carry_editor(editor, self._place())
                return
            except AdapterGone:
                # The editor has not been heard yet: it waits for the next debuggee.
                generation.left = True
                self._spawn(self.restart("its adapter died", generation.number))
            finally:
                if generation.editor is editor:
                    generation.editor = None
                    self._editor_gone(generation)
                    self._wake()

    async def _claim(self, editor: Editor) -> Generation | None:
        """Wait for a debuggee for this editor. None: it hung up or was refused."""
        receiving: asyncio.Task[bool] | None = None
        patience = asyncio.get_running_loop().time() + _SECOND_EDITOR_WAIT_S
        try:
            while True:
                changed = self._changed
                answer = self._answer(editor, patience)
                if isinstance(answer, Generation):
                    return answer
                if answer is not None:
                    break
                receiving = receiving or asyncio.create_task(editor.receive_early())
                waiting = asyncio.create_task(changed.wait())
                await asyncio.wait(
                    [waiting, receiving], timeout=0.25, return_when=asyncio.FIRST_COMPLETED
                )
                await cancel_all(waiting)
                if receiving.done():
                    if not receiving.result():
                        return None
                    receiving = None
        finally:
            # A read cancelled here has taken nothing from the socket.
            if receiving is not None:
                await cancel_all(receiving)
        await editor.refuse(answer)
        return None

    async def _refresh(self) -> None:
        """See that what was preloaded is what lies on the node's disk now."""
        if not self.info.get("preload"):
            return
        if await self._agent.call("loop.refresh", loop=self.id) is not None:
            for one in self._in_order():
                # Those that nobody has are being replaced.
                one.left = one.left or one.editor is None
            self._wake()

    def _answer(self, editor: Editor, patience: float) -> Generation | str | None:
        """The debuggee that `editor` now has, or why it can't have one, or None: wait."""
        generation = self._first()
        claim = generation.claim if generation is not None else Claim.NOT_YET
        if generation is not None and claim is Claim.FREE:
            generation.editor = editor
            return generation
        if generation is not None and claim is Claim.TAKEN:
            if generation.children_expected > 0:
                # A session for a child process goes to the adapter that announced it.
                generation.children_expected -= 1
                return generation
            if asyncio.get_running_loop().time() >= patience:
                other = generation.editor.name if generation.editor is not None else "An editor"
                return f"{other} is already debugging this process. Stop it there first."
        elif self.state == "waiting":
            error = self._early_end()
            return f"{error.message}: {error.cause}"
        elif self.state == "stopped":
            return "The debug loop has ended. Start it again: tk loop ..."
        elif self._orphaned:
            self._replace_orphan()
        return None

    def _attached(self, generation: Generation) -> None:
        name = generation.editor.name if generation.editor is not None else ""
        self._spawn(
            self._agent.call(
                "loop.attached", loop=self.id, generation=generation.number, client=name
            )
        )

    async def _leaving(self, generation: Generation) -> None:
        """The editor says goodbye: end its debuggee where it stands, if that is the policy."""
        if self._on_disconnect != "restart" or generation.terminated or generation.ended:
            return
        with contextlib.suppress(TunnelkitError, TimeoutError):
            async with asyncio.timeout(_EXIT_GRACE_S):
                await self.restart("editor left", generation.number)
                while not generation.ended:
                    await self._changed.wait()

    def _editor_gone(self, generation: Generation) -> None:
        if generation.ended:
            self._generations.pop(generation.number, None)
            self._spawn(generation.close())
        elif generation.terminated or not generation.attached:
            pass
        elif self._on_disconnect == "restart":
            generation.left = True
            self._spawn(self.restart("editor left", generation.number))
        else:
            generation.left = False
            generation.attached = False

    def _terminated(self, generation: Generation) -> None:
        self._spawn(self._end_later(generation))

    async def _end_later(self, generation: Generation) -> None:
        """A debuggee that has said goodbye must exit soon; one that hangs is ended."""
        try:
            async with asyncio.timeout(_EXIT_GRACE_S):
                while not generation.ended:
                    await self._changed.wait()
        except TimeoutError:
            await self.restart("hung at exit", generation.number)

    def _replace_orphan(self) -> None:
        self._orphaned = False
        self._spawn(self.restart("replaced by a new F5"))

    # -- inside -----------------------------------------------------------

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Work that nobody waits for. If the agent is gone meanwhile, so is its purpose."""

        async def quietly() -> None:
            with contextlib.suppress(TunnelkitError):
                await work

        task = asyncio.create_task(quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
