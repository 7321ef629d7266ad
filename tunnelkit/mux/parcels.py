"""Parcels: messages with bytes beside them, on one channel: `!II`, a JSON object, the bytes.

Paths in the header are text with surrogateescape: JSON carries a byte that is no UTF-8 as
its escape (`\\udcXX`), so every name arrives as it was.
"""

import json
import struct
from typing import Any, Dict, List, Mapping, Optional, Tuple

from tunnelkit.mux.channel import Channel

MAX_HEADER_BYTES = 16 * 1024 * 1024
MAX_DATA_BYTES = 1024 * 1024

_HEAD = struct.Struct("!II")
_decode = json.JSONDecoder().decode
_encode = json.JSONEncoder(separators=(",", ":")).encode

Parcel = Tuple[Dict[str, Any], bytes]


class ParcelError(Exception):
    """The bytes are no parcel, or one that is too large."""


def encode(header: Mapping[str, object], data: bytes = b"") -> bytes:
    """A parcel as bytes. Raises ParcelError if it is too large, TypeError or ValueError if
    the header is no JSON object."""
    return head(header, len(data)) + data


def head(header: Mapping[str, object], size: int) -> bytes:
    """A parcel up to its `size` bytes of data. Raises as `encode`."""
    text = _encode(header).encode("ascii")
    if len(text) > MAX_HEADER_BYTES or size > MAX_DATA_BYTES:
        raise ParcelError(f"a parcel of {len(text)} + {size} bytes is too large")
    return _HEAD.pack(len(text), size) + text


class ParcelCutter:
    """Cuts a byte stream, split anywhere, into parcels."""

    def __init__(self) -> None:
        self._pieces: List[bytes] = []
        self._size = 0
        #: how much completes what was begun, as far as that is known
        self._wanted = _HEAD.size

    def feed(self, data: bytes) -> List[Parcel]:
        """Take the next bytes and return the parcels they complete. Raises ParcelError."""
        self._pieces.append(data)
        self._size += len(data)
        if self._size < self._wanted:
            return []
        data, size = b"".join(self._pieces), self._size
        parcels: List[Parcel] = []
        start, self._wanted = 0, _HEAD.size
        while size - start >= _HEAD.size:
            header_len, data_len = _HEAD.unpack_from(data, start)
            if header_len > MAX_HEADER_BYTES or data_len > MAX_DATA_BYTES:
                raise ParcelError(f"a parcel of {header_len} + {data_len} bytes is too large")
            body = start + _HEAD.size
            end = body + header_len + data_len
            if end > size:
                self._wanted = end - start
                break
            header = _object(data[body : body + header_len])
            parcels.append((header, data[body + header_len : end]))
            start = end
        self._pieces, self._size = [data[start:]], size - start
        return parcels


class ParcelReader:
    """Reads whole parcels from a channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._cutter = ParcelCutter()
        self._ready: List[Parcel] = []

    async def read(self) -> Optional[Parcel]:
        """The next parcel; None at the end of the stream, whatever was begun last. Raises
        ParcelError on what is none."""
        while not self._ready:
            data = await self._channel.read()
            if not data:
                return None
            self._ready = self._cutter.feed(data)
            self._ready.reverse()
        return self._ready.pop()


def _object(text: bytes) -> Dict[str, Any]:
    try:
        header = _decode(text.decode("utf-8"))
    except (ValueError, RecursionError) as failure:
        raise ParcelError(f"a parcel's header is no JSON: {failure}") from None
    if not isinstance(header, dict):
        raise ParcelError("a parcel's header is no object")
    return header
