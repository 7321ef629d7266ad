"""The first bytes of every link: magic, version, identity, and what was received.

    magic 8 bytes | major u16 | minor u16 | status u8 | client_id 16 | server_id 16
    | received u64 | window u32

The magic stands before the version and holds bytes that no login banner prints,
so noise from a shell's start-up files is skipped, not read as protocol.
"""

import struct
from enum import IntEnum
from typing import NamedTuple, Optional

from tunnelkit.wire.errors import ProtocolError

MAGIC = b"\x00\xfftkwire"
VERSION = (1, 0)
NO_ID = bytes(16)
#: Shell noise up to this size is skipped; more means that the far end is no agent.
MAX_NOISE_BYTES = 64 * 1024

_VERSION = struct.Struct("!HH")
_BODY = struct.Struct("!HHB16s16sQI")


class Status(IntEnum):
    """The status in a hello. A client sends FRESH or RESUME; a server answers with any."""

    FRESH = 0
    RESUME = 1
    SUPERSEDED = 2
    UNKNOWN = 3
    VERSION = 4


class Hello(NamedTuple):
    """One side's greeting.

    client_id: names the client's endpoint, for as long as it lives.
    server_id: names the server's; NO_ID in a client's first hello.
    received: highest frame number that arrived here in order; the peer goes on after it.
    window: bytes the peer may send on each new channel before it gets credit.
    """

    status: Status
    client_id: bytes
    server_id: bytes
    received: int
    window: int

    def encode(self) -> bytes:
        """Return the hello as bytes, magic first."""
        return MAGIC + _BODY.pack(
            VERSION[0],
            VERSION[1],
            self.status,
            self.client_id,
            self.server_id,
            self.received,
            self.window,
        )


class HelloReader:
    """Finds the peer's hello in a byte stream that may begin with noise."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._noise = bytearray()
        self.rest = b""

    @property
    def noise(self) -> bytes:
        """Bytes before the magic: an error message or output of a shell's start-up files."""
        return bytes(self._noise if self._buffer.startswith(MAGIC) else self._noise + self._buffer)

    def feed(self, data: bytes) -> Optional[Hello]:
        """Take the next bytes; return the hello once it is whole (what follows is in `rest`).

        Raises ProtocolError after MAX_NOISE_BYTES without magic, or on another major version.
        """
        self._buffer += data
        start = self._buffer.find(MAGIC)
        if start < 0:
            # A magic may be split over two reads: its beginning must stay.
            keep = len(MAGIC) - 1
            cut = max(0, len(self._buffer) - keep)
            self._noise += self._buffer[:cut]
            del self._buffer[:cut]
            self._check_noise()
            return None
        if start:
            self._noise += self._buffer[:start]
            del self._buffer[:start]
            self._check_noise()
        self._check_version()
        end = len(MAGIC) + _BODY.size
        if len(self._buffer) < end:
            return None
        _, _, status, client_id, server_id, received, window = _BODY.unpack_from(
            self._buffer, len(MAGIC)
        )
        try:
            known = Status(status)
        except ValueError:
            raise ProtocolError(f"unknown hello status {status}") from None
        self.rest = bytes(self._buffer[end:])
        self._buffer.clear()
        return Hello(known, client_id, server_id, received, window)

    def _check_noise(self) -> None:
        if len(self._noise) > MAX_NOISE_BYTES:
            raise ProtocolError("no tunnelkit agent at the far end")

    def _check_version(self) -> None:
        # As soon as it is there: another version's hello may be shorter than ours.
        if len(self._buffer) < len(MAGIC) + _VERSION.size:
            return
        major, minor = _VERSION.unpack_from(self._buffer, len(MAGIC))
        if major != VERSION[0]:
            raise ProtocolError(
                f"the far end speaks wire version {major}.{minor}, "
                f"this one {VERSION[0]}.{VERSION[1]}"
            )
