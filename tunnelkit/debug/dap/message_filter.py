"""A DAP byte stream passed on piece by piece, of which single messages can be taken or changed.

Sans-IO. Messages that nobody asks for are passed on before they are whole, so a long one costs no
memory. Of these the first and last bytes may be looked at.
"""

from __future__ import annotations

from collections.abc import Callable

from tunnelkit.mux.dap_framing import MAX_HEADER_BYTES, SEPARATOR, DapError, frame, length_of

#: Of a message that is not held.
_LOOK_BYTES = 4_096


def _none(size_bytes: int) -> bool:
    return False


def _same(body: bytes) -> bytes:
    return body


def _all(head: bytes, size_bytes: int) -> bool:
    return True


def _unseen(head: bytes, tail: bytes) -> None:
    pass


class MessageFilter:
    """One direction of a connection.

    holds: called with the length of each message; True: hold it until it is whole. changed: called
    with each message that was held; returns what to pass on instead, None for nothing.
    passes: called with the first bytes and the length of any other; False: nothing of it is passed
    on. passed: called at its end with its first and last bytes, 4 KiB of each.
    """

    def __init__(
        self,
        holds: Callable[[int], bool] = _none,
        changed: Callable[[bytes], bytes | None] = _same,
        passes: Callable[[bytes, int], bool] = _all,
        passed: Callable[[bytes, bytes], None] = _unseen,
    ) -> None:
        self._holds = holds
        self._changed = changed
        self._passes = passes
        self._passed = passed
        #: Of a message that is not held: its first bytes, whether it is passed on, its last bytes.
        self._first = b""
        self._goes: bool | None = None
        self._last = b""
        self._size_bytes = 0
        #: The beginning of a header.
        self._head = b""
        #: Bytes that are missing of the message under way.
        self._left = 0
        self._held: bytearray | None = None
        self._held_header = b""

    @property
    def between_messages(self) -> bool:
        """True if what was fed last ended a message."""
        return not self._left and not self._head

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes; return those to pass on.

        Raises ConnectionAbortedError if they are no DAP, or a message is too long.
        """
        out: list[bytes] = []
        position = 0
        while position < len(data):
            if self._left:
                position += self._body(data[position : position + self._left], out)
                continue
            begun = len(self._head)
            head = self._head + data[position : position + MAX_HEADER_BYTES + len(SEPARATOR)]
            end = head.find(SEPARATOR)
            if end < 0:
                if len(head) > MAX_HEADER_BYTES:
                    raise ConnectionAbortedError("no Content-Length header")
                self._head = head
                break
            self._begin(head[:end], out)
            self._head = b""
            position += end + len(SEPARATOR) - begun
        return b"".join(out)

    def _begin(self, header: bytes, out: list[bytes]) -> None:
        try:
            self._left = length_of(header)
        except DapError as error:
            raise ConnectionAbortedError(str(error)) from None
        if not self._left:
            out.append(header + SEPARATOR)
            return
        self._held_header, self._size_bytes = header + SEPARATOR, self._left
        self._held = bytearray() if self._holds(self._left) else None
        self._first, self._goes, self._last = b"", None, b""

    def _unheld(self, piece: bytes, out: list[bytes]) -> None:
        """Pass on a piece of a message that is not held, once its first bytes are there."""
        self._last = (self._last + piece[-_LOOK_BYTES:])[-_LOOK_BYTES:]
        if self._goes is None:
            self._first += piece
            if self._passes is not _all and len(self._first) < _LOOK_BYTES and self._left:
                return
            piece, self._first = self._first, self._first[:_LOOK_BYTES]
            self._goes = self._passes(self._first, self._size_bytes)
            piece = self._held_header + piece
        if self._goes:
            out.append(piece)
        if not self._left:
            self._passed(self._first, self._last)

    def _body(self, piece: bytes, out: list[bytes]) -> int:
        """Take bytes of the message under way; return their number."""
        self._left -= len(piece)
        if self._held is None:
            self._unheld(piece, out)
            return len(piece)
        self._held += piece
        if not self._left:
            body, self._held = bytes(self._held), None
            after = self._changed(body)
            if after is body:
                out += (self._held_header, body)
            elif after is not None:
                out.append(frame(after))
        return len(piece)
