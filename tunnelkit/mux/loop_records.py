"""Records: a loop's events and output as one ordered stream, agent to session to terminal.

kind u8 | number u64 | length u32 | payload
"""

import json
import struct
from typing import Dict, List, NamedTuple

EVENT, STDOUT, STDERR = 0, 1, 2

#: The agent sends none of more than 64 KiB.
MAX_PAYLOAD_BYTES = 16 << 20
_HEAD = struct.Struct("!BQI")


class RecordError(Exception):
    """The bytes are no records."""


class LoopRecord(NamedTuple):
    """One event (JSON) or piece of output. `number` counts all records of a log from 0.

    part: of a loop on several nodes; it is not sent.
    """

    kind: int
    number: int
    payload: bytes
    part: int = 0

    def encode(self) -> bytes:
        """The record as bytes."""
        return _HEAD.pack(self.kind, self.number, len(self.payload)) + self.payload

    def event(self) -> Dict[str, object]:
        """The object of an EVENT record. Raises RecordError."""
        try:
            value = json.loads(self.payload.decode("utf-8"))
        except (ValueError, RecursionError):
            raise RecordError("an event that is no JSON") from None
        return value if isinstance(value, dict) else {}


def event_payload(name: str, **fields: object) -> bytes:
    """The payload of an EVENT record."""
    return json.dumps(dict(fields, event=name)).encode("utf-8")


class RecordReader:
    """Cuts a byte stream, split anywhere, into records."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> List[LoopRecord]:
        """Take the next bytes and return the records they complete. Raises RecordError."""
        self._buffer += data
        records = []
        while len(self._buffer) >= _HEAD.size:
            kind, number, length = _HEAD.unpack_from(self._buffer)
            if kind not in (EVENT, STDOUT, STDERR) or length > MAX_PAYLOAD_BYTES:
                raise RecordError(f"a record of kind {kind} and {length} bytes")
            end = _HEAD.size + length
            if len(self._buffer) < end:
                break
            records.append(LoopRecord(kind, number, bytes(self._buffer[_HEAD.size : end])))
            del self._buffer[:end]
        return records
