"""The kind of a DAP message, read from its first bytes.

A session of thousands of steps must not pay a JSON parse a message. Every sender has a habit:
debugpy's adapter writes seq, type, then the name (messaging.py, `_prettify`); VS Code writes the
command first; most others do as debugpy. Messages of another order are parsed, which costs
microseconds and nothing else.
"""

from __future__ import annotations

import re

from tunnelkit.debug.dap.messages import EVENT, REQUEST, RESPONSE, parse, whole

#: Not a DAP message: somebody else's to judge.
OTHER = ""

#: (type, command or event, request_seq of a response else 0)
Envelope = tuple[str, bytes, int]

_HEAD = re.compile(
    rb'\{\s*"seq"\s*:\s*-?\d+\s*,\s*"type"\s*:\s*"'
    rb'(?:event"\s*,\s*"event"\s*:\s*"(\w+)"'
    rb'|response"\s*,\s*"request_seq"\s*:\s*(\d+)\s*,\s*"success"\s*:\s*\w+\s*,'
    rb'\s*"command"\s*:\s*"(\w+)"'
    rb'|request"\s*,\s*"command"\s*:\s*"(\w+)")'
)
#: VS Code. Its responses begin otherwise, and a response with this head has a request_seq.
_COMMAND_FIRST = re.compile(rb'\{"command":"(\w+)"')
_EVENT_GROUP, _RESPONSE_GROUP, _REQUEST_GROUP = 1, 3, 4


def peek(body: bytes) -> Envelope:
    """Return the envelope of a message; (OTHER, b"", 0) if it is none."""
    head = _HEAD.match(body)
    if head is None:
        return _slow(body)
    if head.lastindex == _EVENT_GROUP:
        return EVENT, head[_EVENT_GROUP], 0
    if head.lastindex == _RESPONSE_GROUP:
        return RESPONSE, head[_RESPONSE_GROUP], int(head[2])
    return REQUEST, head[_REQUEST_GROUP], 0


def peek_editor(body: bytes) -> Envelope:
    """Return the envelope of a message of an editor."""
    head = _COMMAND_FIRST.match(body)
    if head is None or b'"request_seq"' in body:
        return peek(body)
    return REQUEST, head[1], 0


def _slow(body: bytes) -> Envelope:
    message = parse(body)
    kind = message.get("type")
    if kind == EVENT:
        return EVENT, _name(message.get("event")), 0
    if kind == REQUEST:
        return REQUEST, _name(message.get("command")), 0
    if kind == RESPONSE:
        return RESPONSE, _name(message.get("command")), whole(message.get("request_seq")) or 0
    return OTHER, b"", 0


def _name(value: object) -> bytes:
    return value.encode("utf-8", "replace") if isinstance(value, str) else b""
