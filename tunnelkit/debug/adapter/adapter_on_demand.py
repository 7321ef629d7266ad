"""The adapter of one debuggee, made when an editor asks for the debuggee.

Until then the session keeps the debuggee's connection: consoles and `tk ranks` need no adapter, of
which each costs 4 MB and 4 threads of the laptop.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from tunnelkit.debug.adapter.adapter import Adapter
from tunnelkit.errors import DebugError
from tunnelkit.mux.splice import no_delay, quick_ack


class AdapterOnDemand:
    """One adapter. `want` it, once or often; `close` it at the end.

    make: starts an adapter.
    """

    def __init__(self, make: Callable[[], asyncio.Task[Adapter]]) -> None:
        self._make = make
        self._adapter: asyncio.Task[Adapter] | None = None
        self._wanted = asyncio.Event()
        self._closed = False

    @property
    def is_wanted(self) -> bool:
        """True if it is there, or is starting."""
        return self._wanted.is_set()

    def want(self) -> None:
        """Have it started; again, if it could not be."""
        if not self._closed and (self._adapter is None or _has_failed(self._adapter)):
            self._adapter = self._make()
        self._wanted.set()

    async def connect_editor(self) -> socket.socket:
        """Return a connection for an editor; the adapter is wanted now.

        Raises DebugError if it can't be started, OSError if it is gone.
        """
        self.want()
        return await _connect((await self._started()).client_port)

    async def connect_debuggee(self) -> socket.socket | None:
        """Return a connection for a debuggee; None if the adapter is not wanted, or can't start.

        Raises OSError if it is gone.
        """
        if not self._wanted.is_set():
            return None
        tried = self._adapter
        try:
            started = await self._started()
        except DebugError:
            # The editor that wants it is sent the reason; the next one wants it again.
            if tried is self._adapter:
                self._wanted.clear()
            return None
        return await _connect(started.server_port)

    async def wait_for_debuggee(self) -> socket.socket:
        """Wait until it is wanted and there; as `connect_debuggee`."""
        while True:
            await self._wanted.wait()
            connected = await self.connect_debuggee()
            if connected is not None:
                return connected

    async def _started(self) -> Adapter:
        adapter = self._adapter
        if adapter is not None and not self._closed:
            await asyncio.wait([adapter])
        if adapter is None or self._closed or adapter.cancelled():
            raise ConnectionAbortedError("the run is over")
        try:
            return adapter.result()
        except OSError as error:
            raise DebugError(
                "debugpy's adapter did not start on this machine",
                cause=str(error),
                hint="debug fewer ranks at once: tk loop --rank 0-7 ...",
            ) from None

    async def close(self) -> None:
        """End the adapter, started or not."""
        self._closed = True
        self._wanted.set()
        adapter = self._adapter
        if adapter is not None:
            adapter.cancel()
            result = (await asyncio.gather(adapter, return_exceptions=True))[0]
            if isinstance(result, Adapter):
                result.close()


def _has_failed(adapter: asyncio.Task[Adapter]) -> bool:
    return adapter.done() and (adapter.cancelled() or adapter.exception() is not None)


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
