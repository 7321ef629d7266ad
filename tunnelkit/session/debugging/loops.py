"""The session's loops: started by a `tk loop`, streamed to it, written to the log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path

from tunnelkit.config.schema import DebugSettings
from tunnelkit.debug.adapter.adapter import Adapters
from tunnelkit.debug.agent_api import AgentApi
from tunnelkit.debug.attachment import Attachment
from tunnelkit.debug.dap.editor_port import EditorPort
from tunnelkit.debug.dap.messages import whole
from tunnelkit.debug.dap.proxy import SourceFiles
from tunnelkit.debug.loop import DebugLoop
from tunnelkit.debug.loop_agents.base import LoopAgents, OneAgent
from tunnelkit.debug.loop_agents.several import NodePart, SeveralAgents
from tunnelkit.debug.loop_command import LoopCommand, loop_spec
from tunnelkit.errors import DebugError, TunnelkitError
from tunnelkit.messages.agent_calls import LOOP_LIST, AttachTarget, LoopInfo
from tunnelkit.mirror.api import name_paths
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.loop_records import EVENT, LoopRecord, event_payload
from tunnelkit.mux.tasks import cancel_all, start
from tunnelkit.session.debugging.loop_log_file import LoopLogFile
from tunnelkit.session.debugging.port_fallback import LoopPorts
from tunnelkit.session.debugging.session_loop import Recorder, SessionLoop

log = logging.getLogger("tunnelkit.session")
#: Limit of the time in which all nodes answer about a killed session's loop.
_ADOPT_S = 30.0


async def _restart(loop: DebugLoop, reason: str) -> None:
    with contextlib.suppress(TunnelkitError):
        await loop.restart(reason)


def _is_attachment(loop: SessionLoop) -> bool:
    return isinstance(loop.loop, Attachment)


class Loops:
    """All loops of a session; each has one EditorPort to itself.

    parts: returns all of the allocation's nodes, for a loop that a killed session had on them.
    """

    def __init__(
        self,
        agent: Callable[[], AgentApi],
        port: EditorPort,
        settings: DebugSettings,
        *,
        place: Callable[[], SourceFiles | None],
        parts: Callable[[], Awaitable[list[NodePart]]],
        log: Path,
    ) -> None:
        self._agent = agent
        self._parts = parts
        self._port = port
        self.ports = LoopPorts(port, settings.port)
        port.others = self._other_ports
        self._settings = settings
        self._adapters = Adapters()
        self._place = place
        self._log = LoopLogFile(log)
        self._loops: dict[int, SessionLoop] = {}
        #: The loops whose parts on further nodes have these ids.
        self._part_of: dict[int, int] = {}
        #: Nodes that the allocation has lost, and why.
        self.lost_nodes: dict[str, str] = {}
        #: Loops that terminals have asked for, and that do not run yet.
        self.starting = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._adopting: set[asyncio.Task[None]] = set()

    async def start(
        self,
        command: LoopCommand,
        *,
        cwd: str,
        port: int | None,
        standby: bool | None = None,
        preload: Sequence[str] | None = None,
        only: Sequence[int] | None = None,
        post_mortem: bool | None = None,
        reload: bool = False,
        once: bool = False,
        parts: Sequence[NodePart] = (),
    ) -> SessionLoop:
        """Start a loop.

        port: instead of the session's own, as is a port in the command. None: as in the settings.
        only: the ranks to debug, None for all. reload: restart when files change on the node.
        once: it is over with its first run, and gets a free port if another loop has the session's.
        parts: the nodes that it has parts on; none for the first node alone.

        Raises DebugError if that port is taken or has a loop already.
        """
        wanted = self.ports.wanted(port, command.port, once=once)
        keeps = self._settings.post_mortem if post_mortem is None else post_mortem
        keeps = keeps and command.can_be_kept
        agents = self._several(parts, keeps) if parts else OneAgent(self._agent())
        if command.debug and wanted == self._port.port:
            await self._let_go_unused()
        editors = self.ports.take(wanted) if command.debug else self._port
        loop = self._make(agents, editors, keeps)
        try:
            await loop.loop.start(
                loop_spec(
                    command,
                    cwd=cwd,
                    editor_port=loop.port.port,
                    standby=self._settings.standby if standby is None else standby,
                    preload=self._settings.preload if preload is None else preload,
                    only=only,
                    post_mortem=keeps,
                    reload=reload,
                    collectives=self._settings.collective_timeouts,
                    once=once,
                )
            )
        except BaseException:
            await self._close(loop)
            raise
        loop.reload = reload
        self._log.begin(loop.loop.id)
        self._add(loop, loop.loop.id, agents)
        if once:
            self._spawn(self._forget_when_over(loop, loop.loop.id))
        return loop

    async def adopt(self, agent: AgentApi, node: str) -> int:
        """Take over the loops that a killed session left in a node's agent; return their number."""
        descriptions = await LOOP_LIST.ask(agent, {})
        for description in descriptions:
            if description.get("together"):
                # Its part on the first node stands for all.
                if agent is self._agent():
                    start(self._adopting, self._adopt_parts(description))
                continue
            port, moved = self.ports.again(description)
            if description.get("attach"):
                loop = self._make_attachment(port, agent, node)
                self._spawn(self._forget_when_over(loop, description["id"]))
            else:
                keeps = bool(description.get("post_mortem"))
                one = OneAgent(agent)
                one.adopt(description)
                loop = self._make(one, port, keeps)
                loop.reload = bool(description.get("reload"))
                if description.get("once"):
                    self._spawn(self._forget_when_over(loop, description["id"]))
            self._loops[description["id"]] = loop
            await loop.loop.adopt(description, self._log.next_records(description["id"]))
            if moved:
                loop.notice(moved)
        return len(descriptions)

    async def attach(
        self, spec: AttachTarget, agent: AgentApi, node: str, *, port: int | None
    ) -> Attachment:
        """Begin to attach to a process (session/handlers/attach.py). Raises DebugError.

        port: as for `start`, else the session's own, or a free one if a loop has that."""
        if port is None:
            port = self._port.port if not self._port.busy else 0
        elif port == self._port.port and self._port.busy:
            raise DebugError(f"a debug loop has port {port}", hint="leave --port out, or another")
        loop = self._make_attachment(self.ports.open(port), agent, node)
        attachment = loop.loop
        assert isinstance(attachment, Attachment)
        try:
            await attachment.begin({**spec, "editor_port": loop.port.port})
        except BaseException:
            await self._close(loop)
            raise
        self._log.begin(attachment.id)
        self._loops[attachment.id] = loop
        self._spawn(self._forget_when_over(loop, attachment.id))
        return attachment

    def attachments(self) -> list[Attachment]:
        """Every attachment, oldest first."""
        return [one.loop for one in self._loops.values() if isinstance(one.loop, Attachment)]

    def for_editor(self, loop_id: int | None = None) -> SessionLoop:
        """Return the loop that F5 is about: at the session's port, else the newest that debugs."""
        if loop_id is None:
            debug = [loop for loop in self.all() if loop.loop.debugs and not _is_attachment(loop)]
            here = [loop for loop in debug if loop.port is self._port and self._port.busy]
            if here or debug:
                return (here or debug)[-1]
        return self.get(loop_id)

    def get(self, loop_id: int | None = None) -> SessionLoop:
        """Return a loop by its id, or the only (else the newest) one; else an attachment.

        Raises DebugError."""
        if loop_id is None and self._loops:
            real = [one for one, loop in self._loops.items() if not _is_attachment(loop)]
            return self._loops[max(real or self._loops)]
        if loop_id is None or loop_id not in self._loops:
            raise DebugError(
                "no debug loop is running",
                hint="start one in a terminal: tk loop python FILE",
            )
        return self._loops[loop_id]

    def files_changed(self, paths: Sequence[str]) -> None:
        """Restart loops with `reload` once: these files, and maybe more, are new on the node.

        A program that nobody has started yet has read none of them."""
        for loop in self.all():
            one = loop.loop
            if loop.reload and (one.state == "attached" or one.has_editor or not one.debugs):
                self._spawn(_restart(one, f"files changed: {name_paths(paths, limit=3)}"))

    def notice(self, text: str) -> None:
        """Send a message to the terminals of all loops."""
        for loop in self.all():
            loop.notice(text)

    def has(self, loop_id: int) -> bool:
        """True while the loop is this session's."""
        return loop_id in self._loops

    def all(self) -> list[SessionLoop]:
        """Every loop, oldest first."""
        return list(self._loops.values())

    def debuggee(self, channel: Channel, header: Mapping[str, object]) -> None:
        """Take a process that dialled in from the agent."""
        loop_id = whole(header.get("loop")) or 0
        loop = self._loops.get(self._part_of.get(loop_id, loop_id))
        if loop is None:
            channel.abort({"error": "no such loop"})
        else:
            loop.loop.debuggee(channel, header)

    async def stop(self, loop_id: int) -> None:
        """End a loop in the agent and drop it.

        It continues if the caller is cancelled: the terminal may close while the node is silent."""
        loop = self._loops.pop(loop_id, None)
        if loop is not None:
            stopping = self._spawn(self._stop(loop))
            stopping.add_done_callback(lambda task: task.cancelled() or task.exception())
            await asyncio.shield(stopping)

    async def _stop(self, loop: SessionLoop) -> None:
        try:
            await loop.loop.stop()
        finally:
            await self._close(loop)

    async def stop_all(self) -> None:
        """End all loops in the agent, as far as possible."""

        async def stop(loop_id: int) -> None:
            with contextlib.suppress(TunnelkitError):
                await self.stop(loop_id)

        await asyncio.gather(*(stop(loop.loop.id) for loop in self.all()))

    def time_is_near(self, left_s: int, text: str) -> None:
        """Warn terminals and editors that the job's time is nearly over."""
        for loop in self.all():
            self._tell(loop, "time-limit", left_s=left_s, text=text)
            generation = loop.loop.first()
            if generation is not None:
                self._spawn(generation.tell(text))

    def _tell(self, loop: SessionLoop, event: str, **fields: object) -> None:
        """Send an event of the session to the log and the loop's terminals."""
        record = LoopRecord(EVENT, 0, event_payload(event, time=time.time(), **fields))
        self._log.write(record)
        loop.record(record)

    async def close(self, lost: str = "", *, starts_again: bool = False) -> None:
        """Close all loops here; in the agent they go on. lost: the reason if they don't.

        starts_again: there will be another node, and the loops' terminals start them there."""
        loops, self._loops = list(self._loops.values()), {}
        for loop in loops if lost else ():
            self._tell(loop, "lost", why=lost, again=starts_again)
        await asyncio.gather(*(self._close(loop, lost) for loop in loops))
        await cancel_all(*self._tasks, *self._adopting)
        await self._adapters.close()

    def _several(self, parts: Sequence[NodePart], keeps: bool, name: str = "") -> SeveralAgents:
        name = name or secrets.token_hex(8)
        return SeveralAgents(parts, name=name, lost=self._part_lost, keeps=keeps)

    def _add(self, loop: SessionLoop, loop_id: int, agents: LoopAgents) -> None:
        self._loops[loop_id] = loop
        if isinstance(agents, SeveralAgents):
            loop.nodes, loop.given = agents.nodes, agents.given
            self._part_of.update((part, loop_id) for part in agents.ids[1:])

    async def adopted(self) -> None:
        """Wait until loops on several nodes are taken over, or have proved to be gone."""
        await asyncio.gather(*self._adopting, return_exceptions=True)

    async def _adopt_parts(self, first: LoopInfo) -> None:
        """Take over a loop that a killed session had on several nodes; end it if one is gone."""
        together, keeps = first.get("together"), bool(first.get("post_mortem"))
        assert together is not None
        found: list[tuple[NodePart, LoopInfo]] = []
        try:
            async with asyncio.timeout(_ADOPT_S):
                for part in await self._parts():
                    theirs = await LOOP_LIST.ask(part.agent, {})
                    found += [(part, one) for one in theirs if one.get("together") == together]
        except (TunnelkitError, TimeoutError) as error:
            log.warning("a loop on %d nodes is not taken over: %s", together["nodes"], error)
            return
        agents = self._several([part for part, _ in found], keeps, together["name"])
        description = agents.adopt([one for _, one in found])
        if len(found) < together["nodes"]:
            await agents.stop()
            return
        port, moved = self.ports.again(first)
        loop = self._make(agents, port, keeps)
        loop.reload = bool(first.get("reload"))
        self._add(loop, description["id"], agents)
        await loop.loop.adopt(description, self._log.next_records(description["id"]))
        if moved:
            loop.notice(moved)

    def _part_lost(self, loop_id: int, node: str, why: str) -> None:
        """End a loop that has lost a node: its terminal starts it again once all are there."""
        loop = self._loops.get(loop_id)
        if loop is not None:
            reason = self.lost_nodes.get(node, why)
            self._tell(loop, "lost", why=f"what ran on {node} is gone: {reason}", again=True)
            self._spawn(self.stop(loop_id))

    def _make(self, agents: LoopAgents, port: EditorPort, keeps: bool = False) -> SessionLoop:
        recorder = Recorder(self._log)
        loop = DebugLoop(
            agents,
            port,
            self._adapters,
            # A debuggee that ends with its editor can't be kept.
            on_disconnect="continue" if keeps else self._settings.on_disconnect,
            place=self._place,
            on_record=recorder.record,
            read_ahead=self._settings.read_ahead,
        )
        recorder.loop = SessionLoop(loop, port, port is not self._port)
        return recorder.loop

    def _make_attachment(self, port: EditorPort, agent: AgentApi, node: str) -> SessionLoop:
        recorder = Recorder(self._log)
        loop = Attachment(
            agent,
            port,
            self._adapters,
            place=self._place,
            on_record=recorder.record,
            read_ahead=self._settings.read_ahead,
        )
        loop.node = node
        recorder.loop = SessionLoop(loop, port, port is not self._port)
        return recorder.loop

    def _other_ports(self) -> list[int]:
        """Return the ports of loops that have one of their own."""
        return [loop.port.port for loop in self.all() if loop.own_port and loop.port.busy]

    async def _let_go_unused(self) -> None:
        """Drop an attachment without an editor, to make room for a loop on the session's port."""
        for loop_id, loop in list(self._loops.items()):
            if loop.port is self._port and _is_attachment(loop) and not loop.loop.has_editor:
                await self.stop(loop_id)

    async def _forget_when_over(self, loop: SessionLoop, loop_id: int) -> None:
        """Drop an attachment, or a loop of one run, at its end."""
        await loop.loop.wait_over()
        if self._loops.get(loop_id) is loop:
            with contextlib.suppress(TunnelkitError):
                await self.stop(loop_id)

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _close(self, loop: SessionLoop, lost: str = "") -> None:
        await loop.loop.close(lost)
        if loop.own_port:
            await loop.port.close()
