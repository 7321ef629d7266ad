"""One process that an editor can debug: its adapter, the editors on it, what happened so far."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tunnelkit.debug.adapter.adapter import Adapter
from tunnelkit.debug.dap.editor_port import Editor
from tunnelkit.debug.dap.proxy import DapProxy, SourceFiles
from tunnelkit.debug.dap.session import DapSession
from tunnelkit.errors import DebugError
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.dap_framing import DapGauge
from tunnelkit.mux.splice import no_delay, quick_ack, splice

#: One adapter serves a program with all that it starts; each costs it threads.
_MOST_PROCESSES = 256


class AdapterGone(DebugError):
    """The adapter of a target died before an editor used it."""


@dataclass(frozen=True)
class TargetIdentity:
    """The process of a target. rank: None if it is none; world_size: 0 if unknown."""

    pid: int = 0
    node: str = ""
    rank: int | None = None
    world_size: int = 0
    ancestors: tuple[int, ...] = ()

    @staticmethod
    def from_header(header: dict[str, Any]) -> TargetIdentity:
        """From the agent's `debuggee` header (wire/PROTOCOL.md). Raises DebugError."""
        rank = header.get("rank")
        try:
            return TargetIdentity(
                pid=int(header.get("pid") or 0),
                node=str(header.get("node") or ""),
                rank=int(rank[0]) if rank else None,
                world_size=int(rank[2]) if rank else 0,
                ancestors=tuple(int(pid) for pid in header.get("ancestors") or ()),
            )
        except (TypeError, ValueError, LookupError, ArithmeticError):
            raise DebugError(
                "the agent did not tell which process has dialled in",
                hint="is it of another version? tk down, then tk up",
            ) from None

    @property
    def name(self) -> str:
        """As an editor shows it: `rank 3 · node2`."""
        return f"rank {self.rank} · {self.node}" if self.rank is not None else self.node


@dataclass
class TargetEvents:
    """Events of a target, for its owner."""

    armed: Callable[[DebugTarget], None] = lambda target: None
    attached: Callable[[DebugTarget], None] = lambda target: None
    terminated: Callable[[DebugTarget], None] = lambda target: None
    #: The main editor is leaving; awaited before its adapter hears of it.
    leaving: Callable[[DebugTarget], Awaitable[None]] | None = None
    #: After each thing that the main editor said.
    heard: Callable[[DebugTarget], Awaitable[None]] | None = None


@dataclass(eq=False)
class DebugTarget:
    """One process under debugpy, with the adapter that talks to it.

    Rules of this file: a target is over (`terminated`, `left`) before its editor can know it, so an
    editor that comes right after is never given the old one.

    ending: done once the exit status of the run is known. hold_end: the run's end is this process's
    own, so its exit code is sent as such.
    """

    adapter: asyncio.Task[Adapter]
    ending: asyncio.Future[dict[str, Any]]
    events: TargetEvents = field(default_factory=TargetEvents)
    who: TargetIdentity = field(default_factory=TargetIdentity)
    hold_end: bool = True
    armed: bool = False
    attached: bool = False
    terminated: bool = False
    left: bool = False
    #: The one that has it; others may be there for its child processes.
    editor: Editor | None = None
    children_expected: int = 0
    #: The editor on another rank was sent it.
    announced_as_child: bool = False
    _children_seen: dict[Editor, int] = field(default_factory=dict)
    _conversation: DapProxy | None = None
    _carried: int = 0

    @property
    def over(self) -> bool:
        """Nobody can debug it any more."""
        return self.terminated or self.left

    def announced(self, pid: int | None) -> bool:
        """True if its adapter sent an editor this child process."""
        return any(
            child.pid == pid
            for editor in self._children_seen
            if editor.view is not None
            for child in editor.view.children
        )

    async def carry_debuggee(self, channel: Channel) -> None:
        """Carry the bytes of a debuggee that dialled in until it ends. Raises OSError and
        DebugError if there is no adapter, or too many have come already."""
        if self._carried >= _MOST_PROCESSES:
            raise DebugError(
                "too many processes of one program have dialled in",
                hint="what comes later runs free; does the program start processes without end?",
            )
        self._carried += 1
        try:
            await self._carry(channel)
        finally:
            self._carried -= 1

    async def _carry(self, channel: Channel) -> None:
        sock = await _connect((await self.adapter).server_port)
        self.armed = True
        self.events.armed(self)
        await splice(sock, channel, quickack=True, fits=DapGauge().fits)

    async def carry_editor(
        self, editor: Editor, place: SourceFiles | None, opening: list[bytes] | None = None
    ) -> None:
        """Carry one editor's messages to the adapter and back until either hangs up.

        opening: what the editor has said and been answered already. Raises AdapterGone if
        the adapter is or goes away before the editor attached: the editor has lost nothing
        then and can be given to another.
        """
        try:
            adapter = await _connect((await self.adapter).client_port)
        except (OSError, DebugError) as error:
            raise AdapterGone(str(error)) from None
        view = editor.view = editor.view or DapSession(place.mirror if place is not None else None)
        if not self.hold_end:
            view.hold_end = False
        if self.who.rank is not None and view.rank is None:
            # Its session is called as the launch configuration, which does not tell the rank.
            view.process_name = self.who.name
        conversation = DapProxy(
            editor,
            adapter,
            view,
            place=place,
            ending=self.ending,
            opening=opening,
            on_request=lambda: self._heard_editor(editor, view),
            on_answer=lambda: self._heard_adapter(editor, view),
            on_gone=lambda: self._gone(editor),
        )
        if editor is self.editor:
            self._conversation = conversation
        try:
            if opening:
                # Before the adapter can answer it.
                await self._heard_editor(editor, view)
            adapter_first = await conversation.run()
            if adapter_first and not view.attached and not view.over:
                raise AdapterGone("the debug adapter ended")
        finally:
            if self._conversation is conversation:
                self._conversation = None
            adapter.close()

    async def tell(self, bodies: list[bytes]) -> None:
        """Messages of our own to the main editor, if it is there."""
        if self._conversation is not None:
            with contextlib.suppress(OSError):
                await self._conversation.tell(bodies)

    @property
    def is_debugged(self) -> bool:
        """True while an editor is on it that could pause it."""
        view = self.editor.view if self.editor is not None else None
        talking = self._conversation is not None and view is not None and view.configuration_done
        return talking and not self.over

    @property
    def debugged_pid(self) -> int:
        """Its pid as the debugger tells it, else as who dialled in."""
        view = self.editor.view if self.editor is not None else None
        return (view.pid if view is not None else None) or self.who.pid

    async def interrupt(self) -> bool:
        """Pause the program, as its editor would. False: it has not stopped after a few
        seconds, or nobody debugs it."""
        return self._conversation is not None and await self._conversation.pause()

    async def close(self) -> None:
        """End the adapter, started or not."""
        if not self.adapter.done():
            self.adapter.cancel()
        result = (await asyncio.gather(self.adapter, return_exceptions=True))[0]
        if isinstance(result, Adapter):
            result.close()

    async def _heard_editor(self, editor: Editor, view: DapSession) -> None:
        """Before the adapter hears it."""
        if self._has(editor, view) and not self.attached:
            self.attached = True
            self.events.attached(self)
        if editor is self.editor and self.events.heard is not None:
            await self.events.heard(self)
        if view.goodbye is not None:
            await self._gone(editor)

    def _has(self, editor: Editor, view: DapSession) -> bool:
        return editor is self.editor and view.attached and view.sub_process_id is None

    def _heard_adapter(self, editor: Editor, view: DapSession) -> None:
        """Before the editor hears it."""
        self.children_expected += len(view.children) - self._children_seen.get(editor, 0)
        self._children_seen[editor] = len(view.children)
        # Of an editor that never attached, or that has let the program go, it is the adapter's
        # goodbye, not the program's.
        let_go = view.goodbye is not None and not view.goodbye.ends_debuggee
        if let_go or self.terminated or not self.attached:
            return
        if view.terminated and editor is self.editor:
            self.terminated = True
            self.events.terminated(self)

    async def _gone(self, editor: Editor) -> None:
        """The editor leaves: recorded before the adapter receives it, whose habit at a disconnect
        is to let the program run on.
        """
        # One that never attached (or debugs a child) takes nothing with it.
        if editor is self.editor and self.attached:
            # One that has ended is not left: with ranks, the others may go on.
            self.left = not self.terminated
            if self.events.leaving is not None:
                await self.events.leaving(self)


async def _connect(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        no_delay(sock)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    except BaseException:
        sock.close()
        raise
    quick_ack(sock)
    return sock
