"""Frames: the unit that is numbered, acknowledged and sent again. See PROTOCOL.md.

kind u8 | channel u32 | seq u64 | length u32 | payload (length bytes)
"""

import struct
from enum import IntEnum
from typing import List, NamedTuple

from tunnelkit.wire.errors import ProtocolError

HEADER = struct.Struct("!BIQI")
CREDIT = struct.Struct("!I")

#: Largest DATA payload. Small enough that one bulk frame does not hold up a
#: debugger's message for long on a slow line, large enough to keep frames cheap.
MAX_DATA_BYTES = 64 * 1024
#: Largest payload of any kind; what a receiver must be ready to hold.
MAX_PAYLOAD_BYTES = 256 * 1024


class Kind(IntEnum):
    """Frame kinds. Those below 16 are numbered and sent again after a cut."""

    OPEN = 1
    DATA = 2
    EOF = 3
    CLOSE = 4
    CREDIT = 5
    ACK = 16
    PING = 17
    PONG = 18
    BYE = 19


FIRST_UNNUMBERED = 16
_KINDS = {int(kind): kind for kind in Kind}


class Frame(NamedTuple):
    """One decoded frame. `seq` is the frame's number, or for ACK the number acknowledged."""

    kind: Kind
    channel: int
    seq: int
    payload: bytes


def header(kind: int, channel: int, seq: int, length: int) -> bytes:
    """The 17 bytes that go before a payload."""
    return HEADER.pack(kind, channel, seq, length)


class FrameDecoder:
    """Cuts a byte stream, split anywhere, into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> List[Frame]:
        """Take the next bytes and return the frames they complete."""
        buffer = self._buffer
        buffer += data
        frames = []
        position = 0
        size = HEADER.size
        available = len(buffer)
        view = memoryview(buffer)
        try:
            while available - position >= size:
                kind, channel, seq, length = HEADER.unpack_from(buffer, position)
                if kind not in _KINDS or length > MAX_PAYLOAD_BYTES:
                    raise ProtocolError(f"bad frame: kind {kind}, length {length}")
                end = position + size + length
                if end > available:
                    break
                payload = bytes(view[position + size : end])
                frames.append(Frame(_KINDS[kind], channel, seq, payload))
                position = end
        finally:
            view.release()
        if position:
            del buffer[:position]
        return frames
