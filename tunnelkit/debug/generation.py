"""One debuggee's time: its adapter, the editor on it, and what happened so far."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from enum import Enum

from tunnelkit.debug.adapter import Adapter
from tunnelkit.debug.port import Editor
from tunnelkit.errors import DebugError
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.dap import DapReader, encode, frame, response
from tunnelkit.mux.splice import no_delay, quick_ack, splice
from tunnelkit.mux.waiting import cancel_all

_READ_BYTES = 64 * 1024


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

    async def carry_editor(self, editor: Editor) -> None:
        """Carry one editor's bytes to the adapter and back until either hangs up.

        Raises AdapterGone if the adapter is or goes away before the editor attached: the
        editor has lost nothing then and can be given to another.
        """
        try:
            adapter = await _connect((await self.adapter).client_port)
        except (OSError, DebugError) as error:
            raise AdapterGone(str(error)) from None
        try:
            up = asyncio.create_task(self._up(editor, adapter))
            down = asyncio.create_task(self._down(editor, adapter))
            try:
                await asyncio.wait([up, down], return_when=asyncio.FIRST_COMPLETED)
                if down.done() and not up.done() and not self.attached:
                    raise AdapterGone("the debug adapter ended")
                if not down.done():
                    # The editor hung up; what the adapter does of it is its own affair.
                    adapter.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            finally:
                await cancel_all(up, down)
        except AdapterGone:
            editor.early, editor.said = editor.said + editor.early, b""
            raise
        finally:
            adapter.close()

    async def _up(self, editor: Editor, adapter: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        reader = DapReader()
        data, editor.early = editor.early, b""
        while data:
            for body in reader.feed(data):
                if self._note_request(body, editor) and not self.attached:
                    # debugpy's adapter dies of a `disconnect` before an `attach`.
                    await editor.send(encode(response(json.loads(body))))
                    return
            await self._left_by(editor)
            if not self.attached:
                editor.said += data
            await loop.sock_sendall(adapter, data)
            data = await editor.receive()
        self._leave(editor)
        await self._left_by(editor)

    async def _down(self, editor: Editor, adapter: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        reader = DapReader()
        known = frozenset(editor.answered)
        while data := await loop.sock_recv(adapter, _READ_BYTES):
            quick_ack(adapter)
            bodies = reader.feed(data)
            for body in bodies:
                self._note_answer(body, editor)
            if known:
                # This adapter was told again what an earlier one has answered already.
                data = b"".join(frame(body) for body in bodies if _request_of(body) not in known)
            await editor.send(data)

    def _leave(self, editor: Editor) -> None:
        # One that never attached (or debugs a child) takes nothing with it.
        if editor is self.editor and self.attached:
            self.left = True

    async def _left_by(self, editor: Editor) -> None:
        """Tell of the editor's leaving before the adapter hears of it: the adapter's way
        to disconnect is to let the program run on."""
        if self.left and editor is self.editor and self._on_leaving is not None:
            await self._on_leaving(self)

    def _note_request(self, body: bytes, editor: Editor) -> bool:
        """Take note of what changes our state; True for a goodbye."""
        if b'"attach"' in body or b'"disconnect"' in body or b'"terminate"' in body:
            message = json.loads(body)
            command = message.get("command")
            if command == "attach" and "subProcessId" not in message.get("arguments", {}):
                self.attached = True
                self._on_attached(self)
            elif command in ("disconnect", "terminate"):
                self._leave(editor)
                return True
        return False

    def _note_answer(self, body: bytes, editor: Editor) -> None:
        if not self.attached and (request := _request_of(body)) is not None:
            editor.answered.add(request)
        if b'"terminated"' in body[:200]:
            message = json.loads(body)
            # Of an editor that never attached it is the adapter's goodbye, not the program's.
            if message.get("event") == "terminated" and self.attached:
                self.terminated = True
                self._on_terminated(self)
        elif b'"debugpyAttach"' in body[:200] or b'"startDebugging"' in body[:200]:
            self.children_expected += 1

    async def close(self) -> None:
        """End the adapter, started or not."""
        if not self.adapter.done():
            self.adapter.cancel()
        result = (await asyncio.gather(self.adapter, return_exceptions=True))[0]
        if isinstance(result, Adapter):
            result.close()


def _request_of(body: bytes) -> int | None:
    """The request that a response answers; None for anything else."""
    if b'"request_seq"' not in body:
        return None
    answered = json.loads(body).get("request_seq")
    return int(answered) if answered is not None else None


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
