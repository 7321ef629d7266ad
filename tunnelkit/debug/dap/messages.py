"""DAP messages: the ones that tk builds, and safe reading of those that pass through.

Source: https://microsoft.github.io/debug-adapter-protocol/specification

A message of an editor or an adapter is a `Message`: any JSON object. `section`, `whole` and `text`
read it and never raise. Messages that tk does not change stay bytes (peek.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NotRequired, TypedDict

#: Any JSON object that came from outside.
Message = dict[str, object]

REQUEST = "request"
RESPONSE = "response"
EVENT = "event"


class Request(TypedDict):
    """A request of tk's own to an adapter, or a reverse request to an editor."""

    seq: int
    type: str
    command: str
    arguments: Mapping[str, object]


class Response(TypedDict):
    """tk's answer to a request of an editor. message: the reason of a refusal."""

    seq: int
    type: str
    request_seq: int
    command: str
    success: bool
    message: NotRequired[str]
    body: NotRequired[Mapping[str, object]]


class Event(TypedDict):
    """An event of tk's own to an editor."""

    seq: int
    type: str
    event: str
    body: Mapping[str, object]


class OutputBody(TypedDict):
    """`output`: a line for the debug console. category: console, important, stdout or stderr."""

    category: str
    output: str


class ExitedBody(TypedDict):
    """`exited`: the exit code as shells have it."""

    exitCode: int


class BreakpointBody(TypedDict):
    """`breakpoint`: a changed breakpoint, as its adapter described it."""

    reason: str
    breakpoint: Message


class ExceptionFilters(TypedDict):
    """Arguments of `setExceptionBreakpoints`."""

    filters: list[str]


class PauseArguments(TypedDict):
    """Arguments of `pause`. debugpy takes "*" for all threads."""

    threadId: int | str


class DisconnectArguments(TypedDict):
    """Arguments of `disconnect`."""

    terminateDebuggee: bool


#: DAP's events, the adapter's of its sockets, and pydevd's for input. An editor's extensions act
#: on others of their own.
EDITOR_EVENTS = frozenset(
    (
        *(b"breakpoint", b"capabilities", b"continued", b"debugpyAttach", b"debugpySockets"),
        *(b"debugpyWaitingForServer", b"exited"),
        *(b"initialized", b"invalidated", b"loadedSource", b"memory", b"module", b"output"),
        *(b"process", b"progressEnd", b"progressStart", b"progressUpdate"),
        *(b"pydevdInputRequested", b"stopped", b"terminated", b"thread"),
    )
)


class StartDebuggingArguments(TypedDict):
    """Arguments of the reverse request `startDebugging`."""

    request: str
    configuration: Message


class InitializeArguments(TypedDict):
    """Arguments of `initialize`, as far as debugpy needs them."""

    adapterID: str


def parse(body: bytes) -> Message:
    """Return the message as an object; {} if it is none."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def dump(message: Mapping[str, object]) -> bytes:
    """Return a message as a body. It is ASCII, so that lone surrogates in output survive."""
    return json.dumps(message).encode("ascii")


def section(message: Mapping[str, object], key: str) -> Message:
    """Return `body`, `arguments` or another object of a message; {} if it has none."""
    value = message.get(key)
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[Message]:
    """Return the objects of a list; [] for anything else."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def whole(value: object) -> int | None:
    """Return an integer as JSON has it; None for anything else, true and false included."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text(value: object) -> str:
    """Return a string; "" for anything else."""
    return value if isinstance(value, str) else ""


def granted(request: Message, seq: int, body: Mapping[str, object] | None = None) -> Response:
    """Return the response, numbered `seq`, that grants an editor's request."""
    answer: Response = {
        "seq": seq,
        "type": RESPONSE,
        "request_seq": whole(request.get("seq")) or 0,
        "command": text(request.get("command")),
        "success": True,
    }
    if body is not None:
        answer["body"] = body
    return answer


def refused(request: Message, seq: int, reason: str) -> Response:
    """Return the response, numbered `seq`, that refuses an editor's request; editors show why."""
    error = {"id": 1, "format": reason, "showUser": True}
    answer = granted(request, seq, {"error": error})
    answer["success"], answer["message"] = False, reason
    return answer
