"""The bytes of a client at pdb's port: text, or the request of a web page.

Sans-IO. pdb runs each line as Python, and any web page may send lines to a port of 127.0.0.1. What
it sends begins with an HTTP request line, or with a TLS handshake, which is no text. So the first
line is checked before anything is passed on.
"""

from __future__ import annotations

import re

_LONGEST_FIRST_BYTES = 64 * 1024
_HTTP = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ \S+ HTTP/[0-9]", re.IGNORECASE)
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")


class NotPdbClient(Exception):
    """The client is none of pdb: a web page, or another protocol."""


class ClientText:
    """The bytes of one client. `feed` returns those for pdb.

    begun: its first line was text. The line ends of telnet (CR LF, CR NUL) become those of pdb.
    """

    def __init__(self) -> None:
        self.begun = False
        self._first = bytearray()
        self._after_return = False

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes; return text to pass on. Raises NotPdbClient for the first line."""
        if not self.begun:
            # Only new bytes are checked: the line may come a byte at a time.
            piece, end, _ = data.partition(b"\n")
            if _CONTROL.search(piece) or len(self._first) + len(piece) > _LONGEST_FIRST_BYTES:
                raise NotPdbClient
            self._first += data
            if not end:
                return b""
            if _HTTP.match(self._first):
                raise NotPdbClient
            data, self._first, self.begun = bytes(self._first), bytearray(), True
        return self._line_ends(data)

    def _line_ends(self, data: bytes) -> bytes:
        if self._after_return:
            data = b"\r" + data
        self._after_return = data.endswith(b"\r")
        if self._after_return:
            data = data[:-1]
        return data.replace(b"\r\n", b"\n").replace(b"\r\0", b"\n")
