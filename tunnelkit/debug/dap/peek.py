"""The kind of a DAP message, read from its first bytes.

A session of thousands of steps must not pay a JSON parse a message. Every sender has a habit:
debugpy's adapter writes seq, type, then the name (messaging.py, `_prettify`); pydevd writes seq
last; VS Code writes the command first; most others do as debugpy. Messages of another order are
parsed, which costs microseconds and nothing else.
"""

from __future__ import annotations

import re

from tunnelkit.debug.dap.messages import EVENT, REQUEST, RESPONSE, Message, parse, text, whole

#: Of an exception's text in a longer one.
LONGEST_TEXT = 2_000
#: Not a DAP message: somebody else's to judge.
OTHER = ""

#: (type, command or event, request_seq of a response else 0)
Envelope = tuple[str, bytes, int]

_HEAD = re.compile(
    rb'\{\s*(?:"seq"\s*:\s*-?\d+\s*,\s*)?"type"\s*:\s*"'
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


#: The beginning of a message of pydevd's.
_LONG = re.compile(
    rb'\{\s*(?:"seq"\s*:\s*\d+\s*,\s*)?"type"\s*:\s*"'
    rb'(?:response"\s*,\s*"request_seq"\s*:\s*(\d{1,19})\s*,|event"\s*,\s*"event"\s*:\s*"(stopped)")'
)
#: No text has a quotation mark without a backslash.
_THREAD = re.compile(rb'(?<!\\)"threadId"\s*:\s*(\d{1,18})')
_REASON = re.compile(rb'(?<!\\)"reason"\s*:\s*"([ \w]{1,40})"')
_DESCRIPTION = re.compile(rb'(?<!\\)"description"\s*:\s*"((?:[^"\\]|\\u[0-9a-f]{4}|\\[^u])*)')
_TYPE = re.compile(rb'(?<!\\)"text"\s*:\s*"((?:[^"\\]|\\.){1,400})"')


def long_response(head: bytes) -> int | None:
    """Return the request_seq of a response of pydevd by its first bytes; None if it is none."""
    found = _LONG.match(head)
    return int(found[1]) if found and found[1] else None


def long_stop(head: bytes, tail: bytes) -> Message | None:
    """Return a `stopped` of pydevd by its first and last bytes, its texts cut.

    None if it is none."""
    found = _LONG.match(head)
    thread = (_THREAD.search(tail) or _THREAD.search(head)) if found and found[2] else None
    if thread is None:
        return None
    return stop_event(
        {
            "reason": _text_of(_REASON, head) or _text_of(_REASON, tail),
            "description": _text_of(_DESCRIPTION, head),
            "text": _text_of(_TYPE, tail) or _text_of(_TYPE, head),
            "threadId": int(thread[1]),
        }
    )


def stop_event(body: Message) -> Message:
    """Return a `stopped` with this body."""
    return {"seq": 0, "type": EVENT, "event": "stopped", "body": body}


def short(value: object) -> str:
    """Return a text of an exception, cut; "" if it is none."""
    return text(value)[:LONGEST_TEXT]


def _text_of(pattern: re.Pattern[bytes], part: bytes) -> str:
    """The text that a pattern finds in a part of a message, cut; "" for none."""
    found = pattern.search(part)
    return short(parse(b'{"text": "%s"}' % found[1]).get("text")) if found else ""
