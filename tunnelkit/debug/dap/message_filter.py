"""A DAP byte stream passed on piece by piece, of which single messages can be taken or changed.

Sans-IO. Messages that nobody asks for are passed on before they are whole, so a long one costs no
memory.
"""

from __future__ import annotations

from collections.abc import Callable

from tunnelkit.mux.dap_framing import MAX_HEADER_BYTES, SEPARATOR, DapError, frame, length_of


def _none(size_bytes: int) -> bool:
    return False


def _same(body: bytes) -> bytes:
    return body


def _always() -> bool:
    return True


class MessageFilter:
    """One direction of a connection.

    holds: called with the length of each message; True: hold it until it is whole. changed: called
    with each message that was held; returns what to pass on instead, None for nothing. passes:
    called as a message begins that is not held; False: nothing of it is passed on.
    """

    def __init__(
        self,
        holds: Callable[[int], bool] = _none,
        changed: Callable[[bytes], bytes | None] = _same,
        passes: Callable[[], bool] = _always,
    ) -> None:
        self._holds = holds
        self._changed = changed
        self._passes = passes
        #: The message under way is not passed on.
        self._dropping = False
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
        if self._left and self._holds(self._left):
            self._held, self._held_header = bytearray(), header + SEPARATOR
            return
        self._dropping = not self._passes()
        if not self._dropping:
            out.append(header + SEPARATOR)

    def _body(self, piece: bytes, out: list[bytes]) -> int:
        """Take bytes of the message under way; return their number."""
        self._left -= len(piece)
        if self._held is None:
            if not self._dropping:
                out.append(piece)
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
