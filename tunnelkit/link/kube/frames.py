"""WebSocket frames (RFC 6455) as a client sends and receives them. No I/O."""

from __future__ import annotations

import struct
from dataclasses import dataclass

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
#: An API server copies 32 KiB at a time; a larger message than this comes from none.
MOST_BYTES = 32 << 20
_MOST_CONTROL_BYTES = 125
#: Every client masks. The mask protects proxies from a web page's choice of bytes, which no page
#: has here; four zeros are as good, and cost nothing.
_NO_MASK = b"\0\0\0\0"


class FrameError(Exception):
    """The peer has sent bytes that are no frame of a server's."""


@dataclass(frozen=True, slots=True)
class Message:
    """One whole message, or one control frame (CLOSE, PING, PONG)."""

    opcode: int
    data: bytes


def encode(opcode: int, data: bytes) -> bytes:
    """Return one frame that holds the whole message."""
    size = len(data)
    if size < 126:
        head = struct.pack("!BB", 0x80 | opcode, 0x80 | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", 0x80 | opcode, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", 0x80 | opcode, 0x80 | 127, size)
    return head + _NO_MASK + data


class Decoder:
    """Cuts a server's bytes into messages. most_bytes: limit of one message."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._buffer = bytearray()
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        self._opcode = CONTINUATION

    def feed(self, data: bytes) -> list[Message]:
        """Take bytes in any pieces; return the messages that are whole now.

        Raises FrameError at bytes that break the protocol or a limit; feed no more then."""
        self._buffer += data
        found: list[Message] = []
        at = 0
        while (frame := self._frame(at)) is not None:
            first, start, at = frame
            message = self._take(first, bytes(memoryview(self._buffer)[start:at]))
            if message is not None:
                found.append(message)
        del self._buffer[:at]
        return found

    def _frame(self, at: int) -> tuple[int, int, int] | None:
        """Return a frame's first byte, and where its data begins and ends; None if it isn't whole.

        Its head is judged before its data has come: what is too large is never kept."""
        have = len(self._buffer) - at
        if have < 2:
            return None
        first, second = self._buffer[at], self._buffer[at + 1]
        if first & 0x70:
            raise FrameError("a frame with reserved bits")
        if second & 0x80:
            raise FrameError("a masked frame from a server")
        size, start = second, at + 2
        if size >= 126:
            width = 2 if size == 126 else 8
            if have < 2 + width:
                return None
            size = int.from_bytes(self._buffer[start : start + width], "big")
            start += width
        self._check(first, size)
        return (first, start, start + size) if len(self._buffer) >= start + size else None

    def _check(self, first: int, size: int) -> None:
        opcode, is_last = first & 0x0F, first & 0x80
        if opcode in (CLOSE, PING, PONG):
            if not is_last or size > _MOST_CONTROL_BYTES:
                raise FrameError("a control frame that is split or too long")
            return
        if opcode not in (CONTINUATION, TEXT, BINARY):
            raise FrameError(f"a frame of the unknown kind {opcode}")
        if (opcode == CONTINUATION) != bool(self._opcode):
            raise FrameError("a message within another one")
        if self._parts_bytes + size > self._most_bytes:
            raise FrameError(f"a message of over {self._most_bytes} bytes")

    def _take(self, first: int, data: bytes) -> Message | None:
        opcode, is_last = first & 0x0F, first & 0x80
        if opcode in (CLOSE, PING, PONG):
            return Message(opcode, data)
        if is_last and not self._parts:
            opcode, self._opcode = self._opcode or opcode, CONTINUATION
            return Message(opcode, data)
        self._opcode = self._opcode or opcode
        # An empty part would count for nothing against the limit.
        if data:
            self._parts.append(data)
            self._parts_bytes += len(data)
        if not is_last:
            return None
        message = Message(self._opcode, b"".join(self._parts))
        self._parts, self._parts_bytes, self._opcode = [], 0, CONTINUATION
        return message
