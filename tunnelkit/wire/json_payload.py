"""JSON objects as payloads: a channel's header and its closing detail."""

import json
from typing import Dict, Mapping

from tunnelkit.wire.errors import ProtocolError
from tunnelkit.wire.frames import MAX_PAYLOAD_BYTES


def encode_object(value: Mapping[str, object]) -> bytes:
    """Return a JSON object as UTF-8. Raises TypeError or ValueError for other values."""
    return json.dumps(value).encode("utf-8")


def parse_object(payload: bytes) -> Dict[str, object]:
    """Parse a payload that must be a JSON object. Raises ProtocolError."""
    try:
        value = json.loads(payload.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"bad JSON in a frame: {error}") from None
    if not isinstance(value, dict):
        raise ProtocolError("a frame's JSON is no object")
    return value


def encode_detail(detail: Mapping[str, object]) -> bytes:
    """Return a closing detail as JSON; one that is too long (a whole output) is cut."""
    payload = encode_object(detail)
    if len(payload) <= MAX_PAYLOAD_BYTES:
        return payload
    texts = {key: text[:1000] for key, text in detail.items() if isinstance(text, str)}
    payload = encode_object(dict(texts, truncated=True))
    return payload if len(payload) <= MAX_PAYLOAD_BYTES else b'{"truncated": true}'
