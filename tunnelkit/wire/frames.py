"""Frames: the unit that is numbered, acknowledged and sent again. See PROTOCOL.md.

kind u8 | channel u32 | seq u64 | length u32 | payload (length bytes)
"""

import struct
from enum import IntEnum
from typing import List, NamedTuple, Union

from tunnelkit.wire.errors import ProtocolError

#: What goes to a link: a header, or a payload that is not copied.
Buffer = Union[bytes, memoryview]

HEADER = struct.Struct("!BIQI")
CREDIT = struct.Struct("!I")

#: Largest DATA payload. Small enough that one bulk frame does not hold up a
#: debugger's message for long on a slow line, large enough to keep frames cheap.
MAX_DATA_BYTES = 64 * 1024
#: Largest payload of any kind; what a receiver must be ready to hold.
MAX_PAYLOAD_BYTES = 256 * 1024
#: Largest payload of PING, echoed in PONG.
MAX_PING_BYTES = 64
#: Largest payload of BYE, UTF-8.
MAX_BYE_BYTES = 1024


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

#: The lengths a payload may have, by kind. PROTOCOL.md's table says the same.
PAYLOAD_LENGTHS = {
    Kind.OPEN: range(2, MAX_PAYLOAD_BYTES + 1),
    Kind.DATA: range(1, MAX_DATA_BYTES + 1),
    Kind.EOF: range(1),
    Kind.CLOSE: range(2, MAX_PAYLOAD_BYTES + 1),
    Kind.CREDIT: range(CREDIT.size, CREDIT.size + 1),
    Kind.ACK: range(1),
    Kind.PING: range(MAX_PING_BYTES + 1),
    Kind.PONG: range(MAX_PING_BYTES + 1),
    Kind.BYE: range(MAX_BYE_BYTES + 1),
}
_LENGTHS = {int(kind): lengths for kind, lengths in PAYLOAD_LENGTHS.items()}


class Frame(NamedTuple):
    """One decoded frame. `seq` is the frame's number, or for ACK the number acknowledged."""

    kind: Kind
    channel: int
    seq: int
    payload: bytes


def header(kind: int, channel: int, seq: int, length: int) -> bytes:
    """The 17 bytes that go before a payload."""
    return HEADER.pack(kind, channel, seq, length)


def _payload_length(source: "Union[bytes, bytearray]", position: int) -> int:
    """The checked payload length of the header at `position`. Raises ProtocolError."""
    kind, _, _, length = HEADER.unpack_from(source, position)
    if kind not in _LENGTHS:
        raise ProtocolError(f"bad frame: kind {kind}")
    if length not in _LENGTHS[kind]:
        raise ProtocolError(f"bad frame: {_KINDS[kind].name} with a payload of {length} bytes")
    return int(length)


def _frame(source: "Union[bytes, bytearray]", position: int, end: int) -> Frame:
    kind, channel, seq, _ = HEADER.unpack_from(source, position)
    return Frame(_KINDS[kind], channel, seq, bytes(source[position + HEADER.size : end]))


class FrameDecoder:
    """Cuts a byte stream, split anywhere, into frames. Keeps less than one frame."""

    def __init__(self) -> None:
        self._partial = bytearray()

    def feed(self, data: bytes) -> List[Frame]:
        """Take the next bytes and return the frames they complete.

        Raises ProtocolError as soon as a header can't be one; frames completed before it
        in the same `data` are lost with it, as is the conversation.
        """
        frames: List[Frame] = []
        position = 0
        if self._partial:
            # Only the frame begun earlier is put together; the rest is cut in place.
            position = self._complete(data, frames)
        available = len(data)
        while available - position >= HEADER.size:
            end = position + HEADER.size + _payload_length(data, position)
            if end > available:
                break
            frames.append(_frame(data, position, end))
            position = end
        if position < available:
            self._partial += data[position:]
        return frames

    def _complete(self, data: bytes, frames: List[Frame]) -> int:
        """Move bytes to the partial frame until it is whole; returns how many were taken."""
        partial = self._partial
        taken = 0
        if len(partial) < HEADER.size:
            taken = min(HEADER.size - len(partial), len(data))
            partial += data[:taken]
            if len(partial) < HEADER.size:
                return taken
        end = HEADER.size + _payload_length(partial, 0)
        more = min(end - len(partial), len(data) - taken)
        partial += data[taken : taken + more]
        if len(partial) == end:
            frames.append(_frame(partial, 0, end))
            partial.clear()
        return taken + more
