"""pdb's plain text at 127.0.0.1:PORT of the laptop, for one client at a time, such as nc.

The program's stdin and stdout are on a channel. Rules of this file:

- Only processes of our own user may connect (mux/listener.py).
- A client is one once it has sent a line of text (client_text.py). A web page, a port scan, or a
  client that leaves without a line takes nothing with it: the next one sees all output again.
- The end of the client's text is the end of pdb's stdin: the program ends where it next stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable

from tunnelkit.debug.pdb.client_text import ClientText, NotPdbClient
from tunnelkit.errors import UsageError
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.listener import Listener
from tunnelkit.mux.tasks import cancel_all, first_of, start

_READ_BYTES = 64 * 1024
#: Output that no client has taken; then the program waits.
_MOST_KEPT_BYTES = 1 << 20
#: Limit of the wait for a refused client to hang up.
_REFUSED_S = 2.0
#: Limit of the wait for a client to take the last output.
_LAST_S = 5.0
_BUSY = b"[tk] another client is at this pdb\n"
_NO_CLIENT = b"[tk] this port speaks pdb's plain text: nc 127.0.0.1 PORT\n"


class _Client:
    """A client's connection. taken: the number of kept bytes that it was sent."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.text = ClientText()
        self.taken = 0


class PdbPort:
    """The port, and the client at it. `open`, `serve`, then `close`.

    say: shows the user what happens.
    """

    def __init__(self, channel: Channel, say: Callable[[str], None]) -> None:
        self._channel = channel
        self._say = say
        self._listener = Listener(self._connected)
        self._tasks: set[asyncio.Task[None]] = set()
        self._client: _Client | None = None
        #: A client has sent a line; it is the only one.
        self._taken = False
        #: It has hung up.
        self._left = False
        self._over = False
        self._output = bytearray()
        self._changed = asyncio.Event()

    def open(self, port: int) -> int:
        """Listen; return the port, which the kernel chooses for 0. Raises UsageError."""
        try:
            self._listener.open(port)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            raise UsageError(
                f"port {port} of this machine can't be opened",
                cause="another program has it" if taken else error.strerror,
                hint="choose another: tk pdb --port N ...",
            ) from None
        return self._listener.port

    async def serve(self, timeout_s: float) -> bool:
        """Carry text until the program ends (True), or no client came in time (False)."""
        output = start(self._tasks, self._take_output())
        start(self._tasks, self._send_output())
        unused = start(self._tasks, self._no_client_for(timeout_s))
        await first_of(output, unused)
        if not output.done():
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_S):
                while self._pending():
                    await self._changed.wait()
        return True

    async def close(self) -> None:
        """Give up the port, and hang up."""
        self._over = True
        self._listener.close()
        await cancel_all(*self._tasks)

    # -- clients ------------------------------------------------------------------

    def _connected(self, sock: socket.socket) -> None:
        start(self._tasks, self._serve(_Client(sock)))

    async def _serve(self, client: _Client) -> None:
        with contextlib.closing(client.sock):
            if self._client is not None or self._taken:
                await _refuse(client.sock, _BUSY)
                return
            self._client = client
            self._wake()
            try:
                await self._read(client)
                # It may have closed one direction only: it gets the output until the end.
                while self._client is client and self._taken:
                    await self._changed.wait()
            except NotPdbClient:
                self._drop(client, "a web page, or another program than nc, was refused")
                await _refuse(client.sock, _NO_CLIENT)
            except OSError:
                pass
            finally:
                self._drop(client, "a client left without a line; waiting for another one")

    async def _read(self, client: _Client) -> None:
        loop = asyncio.get_running_loop()
        while data := await loop.sock_recv(client.sock, _READ_BYTES):
            text = client.text.feed(data)
            if client.text.begun and not self._taken:
                self._taken = True
                self._wake()
            if text:
                await self._channel.write(text)
        if self._taken:
            self._end_input()

    def _drop(self, client: _Client, why: str) -> None:
        """Forget a client. why: for the user, if it was not yet one of pdb."""
        if self._client is client:
            self._client = None
            if self._taken:
                self._end_input()
            elif not self._over:
                self._say(why)
            self._wake()

    def _end_input(self) -> None:
        if not self._left and not self._over:
            self._left = True
            self._channel.write_eof()
            self._say("the client has left: the program ends where it next stops (Ctrl-C: now)")

    async def _no_client_for(self, timeout_s: float) -> None:
        """Return once no client was there for so long."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    while self._client is None and not self._taken:
                        await self._changed.wait()
            if self._client is None and not self._taken:
                return
            while self._client is not None or self._taken:
                await self._changed.wait()

    # -- output ---------------------------------------------------------------------

    async def _take_output(self) -> None:
        while data := await self._channel.read():
            self._output += data
            self._forget_sent()
            while len(self._output) > _MOST_KEPT_BYTES:
                await self._changed.wait()

    async def _send_output(self) -> None:
        while True:
            client = self._client
            if client is None or client.taken == len(self._output):
                await self._changed.wait()
                continue
            data = bytes(self._output[client.taken :])
            try:
                await asyncio.get_running_loop().sock_sendall(client.sock, data)
            except OSError:
                self._drop(client, "a client left without a line; waiting for another one")
            client.taken += len(data)
            self._forget_sent()

    def _pending(self) -> bool:
        """True if the client has not been sent all output."""
        return self._client is not None and self._client.taken < len(self._output)

    def _forget_sent(self) -> None:
        """Forget output that no other client will ask for."""
        if self._taken and self._client is None:
            self._output.clear()
        elif self._taken and self._client is not None:
            del self._output[: self._client.taken]
            self._client.taken = 0
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


async def _refuse(sock: socket.socket, line: bytes) -> None:
    """Send the reason. The other side hangs up: closing first could discard the line."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError, TimeoutError):
        await loop.sock_sendall(sock, line)
        sock.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(_REFUSED_S):
            while await loop.sock_recv(sock, _READ_BYTES):
                pass
