"""Debug Adapter Protocol frames: `Content-Length: N`, empty line, N bytes of JSON.

Source: https://microsoft.github.io/debug-adapter-protocol/overview#base-protocol
"""

import json
import re
from typing import Dict, List, Mapping, Optional

SEPARATOR = b"\r\n\r\n"
MAX_HEADER_BYTES = 4096
#: Far above every message of an editor or of debugpy.
MAX_BODY_BYTES = 64 << 20
_LENGTH = re.compile(rb"[0-9]{1,10}")


class DapError(Exception):
    """The bytes are no DAP."""


class DapReader:
    """Cuts a byte stream, split anywhere, into message bodies.

    Strict about headers: any web page can send an HTTP request, which has a Content-Length, too.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._length: Optional[int] = None

    def feed(self, data: bytes) -> List[bytes]:
        """Take the next bytes and return the bodies they complete. Raises DapError."""
        self._buffer += data
        bodies: List[bytes] = []
        while True:
            if self._length is None and not self._take_header():
                return bodies
            assert self._length is not None
            if len(self._buffer) < self._length:
                return bodies
            bodies.append(bytes(self._buffer[: self._length]))
            del self._buffer[: self._length]
            self._length = None

    def _take_header(self) -> bool:
        end = self._buffer.find(SEPARATOR)
        if end < 0:
            if len(self._buffer) > MAX_HEADER_BYTES:
                raise DapError("no Content-Length header")
            return False
        self._length = length_of(bytes(self._buffer[:end]))
        del self._buffer[: end + len(SEPARATOR)]
        return True


def length_of(header: bytes) -> int:
    """Return the Content-Length of a header. Raises DapError."""
    length = None
    for line in header.split(b"\r\n"):
        name, _, value = line.partition(b":")
        name = name.strip().lower()
        if name == b"content-length" and length is None and _LENGTH.fullmatch(value.strip()):
            length = int(value)
        elif name != b"content-type":
            raise DapError(f"bad header {line[:80]!r}")
    if length is None:
        raise DapError("no Content-Length header")
    if length > MAX_BODY_BYTES:
        raise DapError(f"a message of {length} bytes is too long")
    return length


def frame(body: bytes) -> bytes:
    """Return a body with its header as one piece: two writes would meet Nagle's delay."""
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def encode(message: Mapping[str, object]) -> bytes:
    """Return a message as bytes."""
    return frame(json.dumps(message).encode("utf-8"))


def response(request: Mapping[str, object]) -> Dict[str, object]:
    """Return a response that grants `request`, with an empty body."""
    return {
        "seq": 1,
        "type": "response",
        "request_seq": request.get("seq", 0),
        "command": request.get("command", ""),
        "success": True,
    }
