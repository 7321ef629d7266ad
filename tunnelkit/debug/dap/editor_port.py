"""The port that editors connect to: held by the session for as long as it lives.

A connection goes to the loop of the moment; without one, the editor is sent the reason. Nothing
here ever refuses a connection, and a connect-and-close probe is harmless.
"""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from collections.abc import Awaitable, Callable

from tunnelkit.debug.dap.messages import Message, dump, refused, section
from tunnelkit.debug.dap.session import DapSession
from tunnelkit.errors import DebugError
from tunnelkit.mux.dap_framing import DapError, DapReader, frame
from tunnelkit.mux.listener import Listener
from tunnelkit.mux.splice import quick_ack
from tunnelkit.mux.tasks import cancel_all, start

_READ_BYTES = 64 * 1024


class Editor:
    """One editor's connection, and its DAP session.

    Its bytes are cut into messages here, once; only the first message is parsed, for its name.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.name = "an editor"
        self.session = DapSession()
        self._frames = DapReader()
        #: What it sent and nobody has taken.
        self._early: list[bytes] = []
        self._first: Message | None = None

    @property
    def port(self) -> int:
        """The port that it came to."""
        return int(self.sock.getsockname()[1])

    async def receive(self) -> list[bytes]:
        """Return the next messages; [] at the end, after a reset, and for bytes that are no DAP."""
        bodies, self._early = self._early, []
        while not bodies:
            data = await self._receive_bytes()
            if not data:
                return []
            try:
                bodies = self._frames.feed(data)
            except DapError:
                return []
        return bodies

    async def receive_first(self) -> bool:
        """Take bytes until the first message is whole.

        False if it is not the one that every editor begins with, or the connection has ended: a web
        page or a port scan.
        """
        while self._first is None:
            if not await self.receive_early():
                return False
        return self._first.get("command") == "initialize"

    async def receive_early(self) -> bool:
        """Take bytes for later; False at the end, and for bytes that are no DAP."""
        data = await self._receive_bytes()
        try:
            self._early += self._frames.feed(data)
            if self._first is None and self._early:
                first = json.loads(self._early[0])
                if not isinstance(first, dict):
                    return False
                self._first = first
                arguments = section(first, "arguments")
                name = arguments.get("clientName") or arguments.get("clientID")
                self.name = str(name or self.name)
        except (DapError, ValueError, RecursionError):
            return False
        return bool(data)

    async def _receive_bytes(self) -> bytes:
        try:
            data = await asyncio.get_running_loop().sock_recv(self.sock, _READ_BYTES)
        except OSError:
            return b""
        quick_ack(self.sock)
        return data

    async def send(self, data: bytes) -> None:
        """Send bytes. Raises OSError if the editor is gone."""
        await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def refuse(self, text: str, request: Message | None = None) -> None:
        """Answer the first request (or this one) with an error that editors show; hang up."""
        while request is None:
            if self._first is None and not await self.receive_early():
                return
            request = self._first
        try:
            await self.send(frame(dump(refused(request, 1, text))))
            self.sock.shutdown(socket.SHUT_WR)
            # Wait for the editor to hang up: closing first could discard the answer.
            async with asyncio.timeout(2.0):
                while await self._receive_bytes():
                    pass
        except (OSError, TimeoutError):
            pass


OnEditor = Callable[[Editor], Awaitable[None]]


class EditorPort:
    """127.0.0.1:`port` and the connections that came in there. `open`, then `close`."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._listener = Listener(self._connected)
        self._tasks: set[asyncio.Task[None]] = set()
        self._handler: OnEditor | None = None
        #: Returns other ports where a loop is, for an editor that comes while this one has none.
        self.others: Callable[[], list[int]] = list

    def open(self) -> None:
        """Bind and listen. Raises DebugError if the port is taken."""
        try:
            self._listener.open(self.port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise DebugError(
                f"debug port {self.port} on this machine is taken by another program",
                hint="end that program, or set another port: [debug] port in tunnelkit.toml, "
                "then `tk vscode`",
            ) from None
        self.port = self._listener.port

    def serve(self, handler: OnEditor) -> None:
        """Hand editors that come from now on to `handler`."""
        self._handler = handler

    def release(self, handler: OnEditor) -> None:
        """Hand no editor to `handler` any more: its loop is over. Another's keeps the port."""
        if self._handler == handler:
            self._handler = None

    @property
    def busy(self) -> bool:
        """True while a loop serves this port."""
        return self._handler is not None

    async def close(self) -> None:
        """Give up the port and hang up on all editors."""
        self._listener.close()
        await cancel_all(*self._tasks)

    def _nothing_here(self) -> str:
        others = sorted(self.others())
        if others:
            where = " and ".join(map(str, others))
            return (
                f"The debug loop is on port {where}, and this is {self.port}: correct launch.json"
            )
        return "No debug loop is running. Start one: tk loop python FILE"

    def _connected(self, sock: socket.socket) -> None:
        start(self._tasks, self._serve(Editor(sock)))

    async def _serve(self, editor: Editor) -> None:
        try:
            # Until an editor has introduced itself it may be a probe: nothing is spent on it.
            if not await editor.receive_first():
                return
            if self._handler is None:
                await editor.refuse(self._nothing_here())
            else:
                await self._handler(editor)
        except OSError:
            pass
        finally:
            editor.sock.close()
