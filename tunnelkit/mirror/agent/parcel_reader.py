"""Whole parcels from a channel."""

from __future__ import annotations

from tunnelkit.mux.channel import Channel
from tunnelkit.mux.parcels import Parcel, ParcelCutter


class ParcelReader:
    """Reads the parcels of one channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._cutter = ParcelCutter()
        self._ready: list[Parcel] = []

    async def read(self) -> Parcel | None:
        """Return the next parcel, or None at the end of the stream, whatever was begun last.

        Raises ParcelError.
        """
        while not self._ready:
            data = await self._channel.read()
            if not data:
                return None
            self._ready = self._cutter.feed(data)
            self._ready.reverse()
        return self._ready.pop()
