"""The session's loops: started by a `tk loop`, streamed to it, written to the log."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path

from tunnelkit.config.schema import DebugSettings
from tunnelkit.debug.adapter.adapter import Adapters
from tunnelkit.debug.agent_api import AgentApi
from tunnelkit.debug.attachment import Attachment
from tunnelkit.debug.dap.editor_port import EditorPort
from tunnelkit.debug.dap.messages import whole
from tunnelkit.debug.dap.proxy import SourceFiles
from tunnelkit.debug.loop import DebugLoop
from tunnelkit.debug.loop_command import LoopCommand, loop_spec
from tunnelkit.errors import DebugError, TunnelkitError
from tunnelkit.messages.agent_calls import LOOP_LIST, AttachTarget
from tunnelkit.mirror.api import name_paths
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.loop_records import EVENT, LoopRecord, event_payload
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.session.debugging.loop_log_file import LoopLogFile
from tunnelkit.session.debugging.loop_watcher import LoopWatcher

_HISTORY = 200
_HISTORY_BYTES = 16 * 1024 * 1024


class SessionLoop:
    """One loop with the terminals that watch it."""

    def __init__(self, loop: DebugLoop, port: EditorPort, own_port: bool) -> None:
        self.loop = loop
        self.port = port
        self.own_port = own_port
        #: True if the loop restarts when files have changed on the node
        self.reload = False
        #: Recent records, for a terminal that connects later.
        self.history: deque[LoopRecord] = deque()
        self._history_bytes = 0
        self._watchers: list[LoopWatcher] = []

    def record(self, record: LoopRecord) -> None:
        """Send a record to all terminals."""
        self._remember(record)
        self._send(record)

    def notice(self, text: str) -> None:
        """Send a message to the user at the loop's terminals; it is not logged."""
        self._send(LoopRecord(EVENT, 0, event_payload("notice", text=text)))

    def watch(self, channel: Channel) -> None:
        """Show the loop on `channel`, beginning with its recent records."""
        watcher = LoopWatcher(channel)
        watcher.begin()
        for record in self.history:
            watcher.send(record)
        self._watchers.append(watcher)

    def end_watch(self, channel: Channel) -> None:
        """Send the rest to a terminal whose channel is closed next."""
        for watcher in self._watchers:
            if watcher.channel is channel:
                watcher.end()
        self._watchers = [one for one in self._watchers if one.channel is not channel]

    def _send(self, record: LoopRecord) -> None:
        self._watchers = [one for one in self._watchers if not one.channel.is_over]
        for watcher in self._watchers:
            watcher.send(record)

    def _remember(self, record: LoopRecord) -> None:
        self.history.append(record)
        self._history_bytes += len(record.payload)
        while len(self.history) > _HISTORY or self._history_bytes > _HISTORY_BYTES:
            self._history_bytes -= len(self.history.popleft().payload)


class _Recorder:
    """Takes a loop's records to the log and to the terminals that watch it."""

    def __init__(self, log: LoopLogFile) -> None:
        self._log = log
        self.loop: SessionLoop | None = None

    def record(self, record: LoopRecord) -> None:
        """Take a record."""
        self._log.write(record)
        if self.loop is not None:
            self.loop.record(record)


async def _restart(loop: DebugLoop, reason: str) -> None:
    with contextlib.suppress(TunnelkitError):
        await loop.restart(reason)


def _is_attachment(loop: SessionLoop) -> bool:
    return isinstance(loop.loop, Attachment)


class Loops:
    """All loops of a session; each has one EditorPort to itself."""

    def __init__(
        self,
        agent: Callable[[], AgentApi],
        port: EditorPort,
        settings: DebugSettings,
        *,
        place: Callable[[], SourceFiles | None],
        log: Path,
    ) -> None:
        self._agent = agent
        self._port = port
        self._settings = settings
        self._adapters = Adapters()
        self._place = place
        self._log = LoopLogFile(log)
        self._loops: dict[int, SessionLoop] = {}
        #: Loops that terminals have asked for, and that do not run yet.
        self.starting = 0
        self._tasks: set[asyncio.Task[None]] = set()

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
    ) -> SessionLoop:
        """Start a loop.

        port: instead of the session's own, as is a port in the command. None: as in the settings.
        only: the ranks to debug, None for all. reload: restart when files change on the node.
        once: it is over with its first run, and gets a free port if another loop has the session's.

        Raises DebugError if that port is taken or has a loop already.
        """
        own = 0 if once and self._port.busy else self._port.port
        wanted = port or command.port or own
        keeps = self._settings.post_mortem if post_mortem is None else post_mortem
        # Other programs start their Pythons themselves, without the agent.
        keeps = keeps and (bool(command.interpreter) or command.ranks)
        loop = await self._make(wanted, command.debug, keeps)
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
        self._loops[loop.loop.id] = loop
        if once:
            self._spawn(self._forget_when_over(loop, loop.loop.id))
        return loop

    async def adopt(self, agent: AgentApi, node: str) -> int:
        """Take over the loops that a killed session left in a node's agent; return their number."""
        descriptions = await LOOP_LIST.ask(agent, {})
        for description in descriptions:
            wanted = description["editor_port"] or 0
            if description.get("attach"):
                loop = self._make_attachment(self._port_of(wanted), agent, node)
                self._spawn(self._forget_when_over(loop, description["id"]))
            else:
                keeps = bool(description.get("post_mortem"))
                loop = await self._make(wanted, description["debug"], keeps)
                loop.reload = bool(description.get("reload"))
                if description.get("once"):
                    self._spawn(self._forget_when_over(loop, description["id"]))
            self._loops[description["id"]] = loop
            await loop.loop.adopt(description)
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
        loop = self._make_attachment(self._port_of(port), agent, node)
        attachment = loop.loop
        assert isinstance(attachment, Attachment)
        try:
            await attachment.begin({**spec, "editor_port": loop.port.port})
        except BaseException:
            await self._close(loop)
            raise
        self._loops[attachment.id] = loop
        self._spawn(self._forget_when_over(loop, attachment.id))
        return attachment

    def attachments(self) -> list[Attachment]:
        """Every attachment, oldest first."""
        return [one.loop for one in self._loops.values() if isinstance(one.loop, Attachment)]

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

        A program that no editor has started yet has read none of them."""
        for loop in self.all():
            if loop.reload and (loop.loop.has_editor or not loop.loop.debugs):
                reason = f"files changed: {name_paths(paths, limit=3)}"
                self._spawn(_restart(loop.loop, reason))

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
        loop = self._loops.get(whole(header.get("loop")) or 0)
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
        await cancel_all(*self._tasks)
        await self._adapters.close()

    async def _make(self, wanted: int, needs_port: bool, keeps: bool = False) -> SessionLoop:
        port, own = self._port, False
        if needs_port and wanted != self._port.port:
            port, own = EditorPort(wanted), True
            port.open()
        elif needs_port:
            await self._let_go_unused(port)
        if needs_port and port.busy:
            raise DebugError(
                f"a debug loop already has port {port.port}",
                hint="end it (Ctrl-C twice in its terminal), or give this one another: --port",
            )
        recorder = _Recorder(self._log)
        loop = DebugLoop(
            self._agent(),
            port,
            self._adapters,
            # A debuggee that ends with its editor can't be kept.
            on_disconnect="continue" if keeps else self._settings.on_disconnect,
            place=self._place,
            on_record=recorder.record,
            read_ahead=self._settings.read_ahead,
        )
        recorder.loop = SessionLoop(loop, port, own)
        return recorder.loop

    def _make_attachment(self, port: EditorPort, agent: AgentApi, node: str) -> SessionLoop:
        recorder = _Recorder(self._log)
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

    def _port_of(self, wanted: int) -> EditorPort:
        """Return the session's port, or another; 0: any free port. Raises DebugError."""
        if wanted == self._port.port:
            return self._port
        port = EditorPort(wanted)
        port.open()
        return port

    async def _let_go_unused(self, port: EditorPort) -> None:
        """Drop an attachment without an editor, to make room for a loop."""
        for loop_id, loop in list(self._loops.items()):
            if loop.port is port and _is_attachment(loop) and not loop.loop.has_editor:
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
