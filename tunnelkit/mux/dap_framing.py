"""Debug Adapter Protocol frames: `Content-Length: N`, empty line, N bytes of JSON.

Source: https://microsoft.github.io/debug-adapter-protocol/overview#base-protocol
"""

import json
import re
from typing import Callable, Dict, List, Mapping, Optional

SEPARATOR = b"\r\n\r\n"
MAX_HEADER_BYTES = 4096
#: Far above every message but a value that is copied whole (VS Code's Copy Value).
MAX_BODY_BYTES = 64 << 20
_LENGTH = re.compile(rb"[0-9]{1,10}")
_ANY_BYTES = 10**10
#: Kept of a body that is too long.
_HEAD_BYTES = 4096
_RESPONSE = re.compile(rb'\{[^{}]{0,200}?"request_seq"\s*:\s*(\d{1,18})\b')
_COMMAND = re.compile(rb'"command"\s*:\s*"(\w+)"')
_TOO_LONG = "the value is too long (over 16 MB): ask for a part of it, such as [:1000]"


class DapError(Exception):
    """The bytes are no DAP."""


class DapReader:
    """Cuts a byte stream, split anywhere, into message bodies.

    Strict about headers: any web page can send an HTTP request, which has a Content-Length, too.
    instead: returns what takes the place of a body that is too long, by its first bytes.
    """

    def __init__(self, instead: Optional[Callable[[bytes], bytes]] = None) -> None:
        self._buffer = bytearray()
        self._length: Optional[int] = None
        self._instead = instead
        self._is_cut = False

    def feed(self, data: bytes) -> List[bytes]:
        """Take the next bytes and return the bodies they complete. Raises DapError."""
        self._buffer += data
        bodies: List[bytes] = []
        while True:
            if self._length is None and not self._take_header():
                return bodies
            assert self._length is not None
            if self._is_cut:
                more = min(len(self._buffer), self._length) - _HEAD_BYTES
                del self._buffer[_HEAD_BYTES : _HEAD_BYTES + max(more, 0)]
                self._length -= max(more, 0)
            if len(self._buffer) < self._length:
                return bodies
            body = bytes(self._buffer[: self._length])
            bodies.append(self._instead(body) if self._is_cut and self._instead else body)
            del self._buffer[: self._length]
            self._length = None

    def _take_header(self) -> bool:
        end = self._buffer.find(SEPARATOR)
        if end < 0:
            if len(self._buffer) > MAX_HEADER_BYTES:
                raise DapError("no Content-Length header")
            return False
        most = MAX_BODY_BYTES if self._instead is None else _ANY_BYTES
        self._length = length_of(bytes(self._buffer[:end]), most)
        self._is_cut = self._length > MAX_BODY_BYTES
        del self._buffer[: end + len(SEPARATOR)]
        return True


def length_of(header: bytes, most_bytes: int = MAX_BODY_BYTES) -> int:
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
    if length > most_bytes:
        raise DapError(f"a message of {length} bytes is too long")
    return length


def refusal(head: bytes) -> bytes:
    """Return an error in place of a response that is too long, by its first bytes.

    Raises DapError for what is no response."""
    found, command = _RESPONSE.match(head), _COMMAND.search(head)
    if found is None:
        raise DapError("a message that is too long")
    answer = response(
        {"seq": int(found[1]), "command": command[1].decode("ascii", "replace") if command else ""}
    )
    return json.dumps({**answer, "success": False, "message": _TOO_LONG}).encode()


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
