"""A debuggee's connection while it has no adapter: tk's own clients alone talk to it."""

from __future__ import annotations

import asyncio
import socket

from tunnelkit.debug.adapter.adapter_on_demand import AdapterOnDemand
from tunnelkit.debug.dap.shared_connection import SharedConnection
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.tasks import cancel_all


async def keep(
    channel: Channel, connection: SharedConnection, adapter: AdapterOnDemand | None = None
) -> socket.socket | None:
    """Take the debuggee's messages until an adapter is there; return its socket.

    Messages after that are the caller's to carry. None: the debuggee has ended first, and the
    channel is closed. adapter: None if it never gets one. Raises OSError if the adapter is gone, or
    the debuggee sends other bytes than DAP.
    """
    kept = _Kept(channel, connection, adapter)
    connection.has_adapter = False
    try:
        return await kept.run()
    finally:
        await kept.close()


class _Kept:
    """A debuggee's messages are taken within the event that brings them."""

    def __init__(
        self, channel: Channel, connection: SharedConnection, adapter: AdapterOnDemand | None
    ) -> None:
        self._channel = channel
        self._connection = connection
        self._adapter = adapter
        self._joining: asyncio.Task[socket.socket] | None = None
        self._over = asyncio.Event()
        self._error: OSError | None = None
        self._handed_over = False

    async def run(self) -> socket.socket | None:
        if self._adapter is not None:
            self._joining = asyncio.create_task(self._adapter.wait_for_debuggee())
            self._joining.add_done_callback(lambda _: self._take())
        self._channel.watch(self._take, None)
        self._take()
        await self._over.wait()
        if self._error is not None:
            raise self._error
        if self._joining is None or not self._joining.done():
            return None
        joined = self._joining.result()
        self._connection.has_adapter = self._handed_over = True
        return joined

    def _take(self) -> None:
        try:
            while not self._ends and (piece := self._channel.take()):
                self._connection.from_debuggee(piece)
        except OSError as error:
            self._error = error
        if self._ends:
            self._over.set()

    @property
    def _ends(self) -> bool:
        joined = self._joining is not None and self._joining.done()
        ended = self._connection.terminated or self._channel.at_eof
        return joined or ended or self._error is not None

    async def close(self) -> None:
        """Stop taking. The channel stays if an adapter has it now."""
        self._channel.watch(None, None)
        if self._handed_over:
            return
        if self._joining is not None:
            await cancel_all(self._joining)
            if not self._joining.cancelled() and self._joining.exception() is None:
                self._joining.result().close()
        if not self._channel.is_over:
            self._channel.close()
