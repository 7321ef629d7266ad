"""One process that an editor can debug: its adapter, the editors on it, what happened so far."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from dataclasses import dataclass, field
from typing import Protocol

from tunnelkit.debug.adapter.adapter_on_demand import AdapterOnDemand
from tunnelkit.debug.adapter.kept_connection import keep
from tunnelkit.debug.ahead.compared_files import ComparedAhead
from tunnelkit.debug.ahead.habits import Habits
from tunnelkit.debug.dap.editor_port import Editor
from tunnelkit.debug.dap.exit_report import RunEnd
from tunnelkit.debug.dap.proxy import DapProxy, SourceFiles
from tunnelkit.debug.shared_debuggee import RaisedException, SharedDebuggee
from tunnelkit.debug.target_identity import TargetIdentity
from tunnelkit.errors import DebugError
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.splice import splice
from tunnelkit.mux.tasks import cancel_all

#: One adapter serves a program with all that it starts; each costs it threads.
_MOST_PROCESSES = 256
#: An editor opens the session of a child process within this time.
_CHILD_S = 10.0
#: A console's pause that has stopped nothing after this long: the program is in native code.
_PAUSE_S = 3.0


class AdapterGone(DebugError):
    """The adapter of a target died before an editor used it."""


class TargetRun(Protocol):
    """The run that a target belongs to (generation.py), as the target sees it.

    `attached`, `heard`, `terminated`: before the other side can know it. `leaving`: the main editor
    is leaving; awaited before its adapter hears of it. `editor_gone`: it has hung up.
    """

    @property
    def ending(self) -> asyncio.Future[RunEnd]:
        """The end of the run, once the agent has reported it."""
        ...

    @property
    def primary(self) -> DebugTarget | None:
        """The target that F5 is on; None: it has not come yet."""
        ...

    @property
    def keeps_failures(self) -> bool:
        """True: it stops at uncaught exceptions, with or without an editor (--post-mortem)."""
        ...

    @property
    def habits(self) -> Habits | None:
        """The habits of its editors; None: nothing is read ahead for them."""
        ...

    def target_armed(self, target: DebugTarget) -> None:
        """A process of the target has dialled in."""
        ...

    def target_gone(self, target: DebugTarget) -> None:
        """The process has hung up, with or without a goodbye."""
        ...

    def target_attached(self, target: DebugTarget) -> None:
        """The main editor has asked for `attach`."""
        ...

    def target_heard(self, target: DebugTarget) -> None:
        """The main editor has sent messages."""
        ...

    def target_terminated(self, target: DebugTarget) -> None:
        """The adapter has sent `terminated`."""
        ...

    def target_raised(self, target: DebugTarget, raised: RaisedException) -> None:
        """The target is stopped at an exception."""
        ...

    def target_left_out(self, text: str) -> None:
        """An editor was not given this text of log points."""
        ...

    async def target_left(self, target: DebugTarget) -> None:
        """The main editor says goodbye; its adapter waits for the return."""
        ...

    def editor_gone(self, target: DebugTarget) -> None:
        """The main editor has hung up."""
        ...

    def give_up(self, why: str) -> None:
        """End the run: its adapter is gone."""
        ...


@dataclass(eq=False)
class DebugTarget:
    """One process under debugpy, with the adapter that an editor talks to.

    Rules of this file: a target is over (`terminated`, `left`) before its editor can know it, so an
    editor that comes right after is never given the old one.
    """

    adapter: AdapterOnDemand
    run: TargetRun
    who: TargetIdentity = field(default_factory=TargetIdentity)
    armed: bool = False
    attached: bool = False
    terminated: bool = False
    left: bool = False
    #: The main editor; others may be there for its child processes.
    editor: Editor | None = None
    children_expected: int = 0
    _child_at: float = -math.inf
    #: The editor on another rank was sent it.
    announced_as_child: bool = False
    #: Answers tk's own questions to the process, beside its adapter.
    asked: SharedDebuggee | None = None
    _children_seen: dict[Editor, int] = field(default_factory=dict)
    _proxy: DapProxy | None = None
    _carried: int = 0

    @property
    def over(self) -> bool:
        """Nobody can debug it any more."""
        return self.terminated or self.left

    @property
    def in_use(self) -> bool:
        """True while an editor, or a process of it, is connected."""
        return self.editor is not None or self._carried > 0

    @property
    def restarts(self) -> bool:
        """True if its editor says goodbye to come back to a new run."""
        goodbye = self.editor.session.facts.goodbye if self.editor is not None else None
        return goodbye is not None and goodbye.restart

    @property
    def has_new_child(self) -> bool:
        """True if its adapter has just sent its editor a child process, for which none came yet."""
        return self.children_expected > 0 and time.monotonic() - self._child_at < _CHILD_S

    def announced(self, pid: int | None) -> bool:
        """True if its adapter sent an editor this child process."""
        return any(
            child.pid == pid
            for editor in self._children_seen
            for child in editor.session.facts.children
        )

    async def carry_debuggee(self, channel: Channel, *, free: bool = False) -> None:
        """Carry the bytes of a debuggee that dialled in until it ends.

        free: let it run, without an editor; as if too many have come. Raises OSError if its adapter
        is gone.
        """
        if free or self._carried >= _MOST_PROCESSES:
            await carry_free(channel)
            return
        self._carried += 1
        try:
            await self._carry(channel)
        finally:
            self._carried -= 1

    async def _carry(self, channel: Channel) -> None:
        sock = await self.adapter.connect_debuggee()
        shared = self._share(channel)
        shared.connection.keeps = self.run.keeps_failures
        # The first one is the rank itself, not a process that it has started.
        self.asked = self.asked or shared
        self.armed = True
        self.run.target_armed(self)
        try:
            if sock is None and self.asked is shared:
                sock = await keep(channel, shared.connection, self.adapter)
                if sock is None and self.adapter.is_wanted:
                    # It waits for a debuggee that is gone, and an editor for it.
                    await self.adapter.close()
            elif sock is None:
                await _let_run(channel, shared)
            if sock is not None:
                await splice(
                    sock,
                    channel,
                    quickack=True,
                    inbound=shared.connection.from_debuggee,
                    outbound=shared.connection.from_adapter,
                    replies=lambda: shared.connection.from_debuggee(b""),
                )
        finally:
            shared.close()
            if self.asked is shared:
                self.asked = None
                self.run.target_gone(self)

    def _share(self, channel: Channel) -> SharedDebuggee:
        def raised(what: RaisedException) -> None:
            self.run.target_raised(self, what)

        return SharedDebuggee(channel, self._console_end, raised, self.run.habits)

    async def carry_editor(
        self, editor: Editor, place: SourceFiles | None, opening: list[bytes] | None = None
    ) -> None:
        """Carry one editor's messages to the adapter and back until either hangs up.

        opening: the editor's messages that were taken (and answered) already. Raises AdapterGone if
        the adapter is or goes away before the editor attached: the editor has lost nothing
        then and can be given to another. Raises DebugError if there can't be an adapter, or a
        rank has ended while others may live.
        """
        try:
            self._check_alive()
            adapter = await self.adapter.connect_editor()
        except OSError as error:
            self._check_alive()
            raise AdapterGone(str(error)) from None
        session = editor.session
        # A rank's end is not the run's. The launch configuration does not name the rank.
        ranked = self.who.rank is not None and session.facts.rank is None
        session.join(self.who.name if ranked else "", hold_end=self is self.run.primary)
        ahead = ComparedAhead(place, self.run.habits) if place and self.run.habits else None
        proxy = DapProxy(
            editor,
            adapter,
            place=ahead.place if ahead else place,
            ending=self.run.ending,
            opening=opening,
            on_request=lambda: self._heard_editor(editor, ahead),
            on_answer=lambda: self._heard_adapter(editor),
            on_gone=lambda: self._gone(editor),
        )
        if editor is self.editor:
            self._proxy = proxy
        try:
            if opening:
                # Before the adapter can answer it.
                await self._heard_editor(editor, ahead)
            adapter_first = await proxy.run()
            if adapter_first and not session.facts.attached and not session.facts.over:
                raise AdapterGone("the debug adapter ended")
        finally:
            if self._proxy is proxy:
                self._proxy = None
                if self.asked is not None:
                    self.asked.editor_left()
            adapter.close()
            if ahead is not None:
                await ahead.close()

    def _check_alive(self) -> None:
        if self.armed and self.asked is None and self is not self.run.primary:
            raise DebugError(f"{self.who.name} has ended", hint="`tk ranks` shows who is there")

    async def send_to_editor(self, bodies: list[bytes]) -> None:
        """Send messages of tk's own to the main editor, if it is there."""
        if self._proxy is not None:
            with contextlib.suppress(OSError):
                await self._proxy.send(bodies)

    @property
    def is_debugged(self) -> bool:
        """True while an editor is on it that could pause it."""
        ready = self.editor is not None and self.editor.session.facts.configuration_done
        return ready and self._proxy is not None and not self.over

    @property
    def debugged_pid(self) -> int:
        """Its pid as the debugger reports it, else as it dialled in."""
        return (self.editor.session.pid if self.editor is not None else None) or self.who.pid

    async def interrupt(self) -> bool:
        """Pause the program, as its editor or its console would.

        False: it has not stopped after a few seconds, or nobody debugs it.
        """
        if self.is_debugged and self._proxy is not None:
            return await self._proxy.pause()
        return self.asked is not None and self.watched and await self.asked.pause(_PAUSE_S)

    @property
    def is_stopped(self) -> bool:
        """True while one of its threads stands in the debugger."""
        return self.asked is not None and self.asked.connection.is_stopped

    @property
    def watched(self) -> bool:
        """True while a console is on it."""
        return self.asked is not None and self.asked.watched

    def begun_by_console(self) -> None:
        """Note that a console has let the program begin, without an editor."""
        if not self.attached:
            self.attached = True
            self.run.target_attached(self)

    def _console_end(self) -> None:
        """Note the end of a program that no editor has: its console got `terminated`."""
        if self.editor is None and self.attached and not self.terminated:
            self.terminated = True
            self.run.target_terminated(self)

    async def close(self) -> None:
        """End the adapter, started or not."""
        await self.adapter.close()

    async def _heard_editor(self, editor: Editor, ahead: ComparedAhead | None) -> None:
        """Note the editor's messages, before the adapter gets them."""
        if ahead is not None and editor.session.facts.attached:
            ahead.begin()
        if editor is self.editor:
            if editor.session.facts.has_program and not self.attached:
                self.attached = True
                self.run.target_attached(self)
            self.run.target_heard(self)
        if editor.session.facts.goodbye is not None:
            await self._gone(editor)

    def _heard_adapter(self, editor: Editor) -> None:
        """Note the adapter's messages, before the editor gets them."""
        session = editor.session
        if left_out := session.output.take_unlogged():
            self.run.target_left_out(left_out)
        children = len(session.facts.children)
        if children > self._children_seen.get(editor, 0):
            self._child_at = time.monotonic()
        self.children_expected += children - self._children_seen.get(editor, 0)
        self._children_seen[editor] = children
        # Of an editor that never attached, or that has let the program go, it is the adapter's
        # goodbye, not the program's.
        if session.facts.lets_go or self.terminated or not self.attached:
            return
        if session.terminated and editor is self.editor:
            self.terminated = True
            self.run.target_terminated(self)

    async def _gone(self, editor: Editor) -> None:
        """Note that the editor leaves.

        The adapter must not know it yet: at a disconnect it lets the program run on.
        """
        # One that never attached (or debugs a child) takes nothing with it.
        if editor is self.editor and self.attached:
            # One that has ended is not left: with ranks, the others may go on.
            self.left = not self.terminated
            await self.run.target_left(self)


async def carry_free(channel: Channel) -> None:
    """Let a process that dialled in run without an editor; carry its bytes until it ends."""
    shared = SharedDebuggee(channel)
    try:  # one that is hung up on ends, or waits for its debugger without end
        await _let_run(channel, shared)
    finally:
        shared.close()


async def _let_run(channel: Channel, shared: SharedDebuggee) -> None:
    """Let a process run that a rank without an editor has started, to its end."""
    letting_run = asyncio.ensure_future(shared.let_run())
    try:
        await keep(channel, shared.connection)
    finally:
        await cancel_all(letting_run)
