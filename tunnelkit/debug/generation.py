"""One debuggee's time: its adapter, the editor on it, and what happened so far."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any

from tunnelkit.debug.adapter import Adapter
from tunnelkit.debug.conversation import Conversation, Place
from tunnelkit.debug.port import Editor
from tunnelkit.debug.view import View
from tunnelkit.errors import DebugError
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.splice import no_delay, quick_ack, splice


class AdapterGone(DebugError):
    """The adapter of a generation died before an editor used it."""


class Claim(Enum):
    """Who may have a generation now."""

    NOT_YET = "not yet"
    FREE = "free"
    TAKEN = "taken"
    SPENT = "spent"


class Generation:
    """State of one debuggee as the laptop sees it.

    Rules of this file: a generation is `spent` before its editor can know that it
    is over, so an editor that comes right after is never given the old one.
    """

    def __init__(
        self,
        number: int,
        adapter: asyncio.Task[Adapter],
        *,
        on_attached: Callable[[Generation], None] = lambda generation: None,
        on_terminated: Callable[[Generation], None] = lambda generation: None,
        on_leaving: Callable[[Generation], Awaitable[None]] | None = None,
    ) -> None:
        self.number = number
        self.adapter = adapter
        self._on_attached = on_attached
        self._on_terminated = on_terminated
        self._on_leaving = on_leaving
        self.armed = False
        self.ended = False
        self.attached = False
        self.terminated = False
        self.left = False
        self.editor: Editor | None = None
        self.children_expected = 0
        self._children_seen: dict[Editor, int] = {}
        #: How the debuggee ended, once the agent has told.
        self.ending: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    @property
    def claim(self) -> Claim:
        """What an editor that comes now can expect of this generation."""
        if self.ended or self.terminated or self.left:
            return Claim.SPENT
        if not self.armed:
            return Claim.NOT_YET
        return Claim.FREE if self.editor is None else Claim.TAKEN

    async def connect_debuggee(self) -> socket.socket:
        """A connection to the adapter's server side for a debuggee that dialled in."""
        return await _connect((await self.adapter).server_port)

    async def carry_debuggee(self, sock: socket.socket, channel: Channel) -> None:
        """Carry a debuggee's bytes until it ends."""
        await splice(sock, channel, quickack=True)

    async def carry_editor(self, editor: Editor, place: Place | None) -> None:
        """Carry one editor's messages to the adapter and back until either hangs up.

        Raises AdapterGone if the adapter is or goes away before the editor attached: the
        editor has lost nothing then and can be given to another.
        """
        try:
            adapter = await _connect((await self.adapter).client_port)
        except (OSError, DebugError) as error:
            raise AdapterGone(str(error)) from None
        view = editor.view = editor.view or View(place.mirror if place is not None else None)
        conversation = Conversation(
            editor,
            adapter,
            view,
            place=place,
            ending=self.ending,
            on_request=lambda: self._heard_editor(editor, view),
            on_answer=lambda: self._heard_adapter(editor, view),
            on_gone=lambda: self._gone(editor),
        )
        try:
            adapter_first = await conversation.run()
            if adapter_first and not view.attached and not view.over:
                raise AdapterGone("the debug adapter ended")
        finally:
            adapter.close()

    async def _heard_editor(self, editor: Editor, view: View) -> None:
        """Before the adapter hears it."""
        if view.attached and view.sub_process_id is None and not self.attached:
            self.attached = True
            self._on_attached(self)
        if view.goodbye is not None:
            await self._gone(editor)

    def _heard_adapter(self, editor: Editor, view: View) -> None:
        """Before the editor hears it."""
        self.children_expected += len(view.children) - self._children_seen.get(editor, 0)
        self._children_seen[editor] = len(view.children)
        # Of an editor that never attached it is the adapter's goodbye, not the program's.
        if view.terminated and editor is self.editor and self.attached and not self.terminated:
            self.terminated = True
            self._on_terminated(self)

    def _leave(self, editor: Editor) -> None:
        # One that never attached (or debugs a child) takes nothing with it.
        if editor is self.editor and self.attached:
            self.left = True

    async def _gone(self, editor: Editor) -> None:
        """The editor leaves: told before the adapter hears of it, whose way to disconnect is to
        let the program run on."""
        self._leave(editor)
        if self.left and editor is self.editor and self._on_leaving is not None:
            await self._on_leaving(self)

    async def close(self) -> None:
        """End the adapter, started or not."""
        if not self.adapter.done():
            self.adapter.cancel()
        result = (await asyncio.gather(self.adapter, return_exceptions=True))[0]
        if isinstance(result, Adapter):
            result.close()


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
