"""Messages between the session and a console over the ranks of a loop.

Each is a JSON object in a DAP frame, on a stream of the control socket. A console is one of several
clients of each rank: an editor may be another.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from tunnelkit.debug.dap.messages import Message

#: No command of DAP: the session opens the rank in the editor that is there. The answer's body is
#: an EditorOfRank.
OPEN_EDITOR = "tkOpenEditor"
#: Commands that a console may send. The session merges the breakpoints and exception filters of all
#: clients; no console may end the connection that it shares.
COMMANDS = frozenset(
    {
        "completions",
        "continue",
        "evaluate",
        "exceptionInfo",
        "goto",
        "gotoTargets",
        "next",
        "pause",
        "scopes",
        "setBreakpoints",
        "setExceptionBreakpoints",
        "setVariable",
        "source",
        "stackTrace",
        "stepIn",
        "stepOut",
        "threads",
        "variables",
        OPEN_EDITOR,
    }
)

#: "waiting": its program has not begun, and waits for an editor or a console.
State = Literal["waiting", "running", "stopped", "ended"]


class EditorOfRank(TypedDict):
    """The way of a rank into an editor. has, opens: names; "" if no editor has it, or opens it now.

    port: where an editor attaches to it; None if it has no port.
    """

    has: str
    opens: str
    port: int | None


class Ask(TypedDict):
    """One request of DAP to one rank. id: chosen by the console; the answer has it."""

    id: int
    rank: int
    command: str
    arguments: Message


class AskAll(TypedDict):
    """Requests of the console: all are sent before any answer is awaited, as a collective needs."""

    type: Literal["ask"]
    asks: list[Ask]


class Release(TypedDict):
    """Let the programs of waiting ranks begin. id: each of these ranks answers with it."""

    type: Literal["release"]
    id: int
    ranks: list[int]


class RaisedInfo(TypedDict):
    """An exception that a rank is stopped at.

    kind: the name of its class. uncaught: it ends the program. file, line: where it was raised, on
    the node. at_s: when, on the laptop's monotonic clock.
    """

    kind: str
    text: str
    uncaught: bool
    file: str
    line: int
    at_s: float


class RankEntry(TypedDict):
    """One rank. stops: the `stopped` events (their bodies) of its threads that stand. raised: the
    exception that it is stopped at, once it is known."""

    rank: int
    node: str
    local: int
    pid: int
    state: State
    stops: list[Message]
    raised: NotRequired[RaisedInfo]


class RosterMessage(TypedDict):
    """All ranks of the run, sent first and with each change.

    A new generation has other processes. expected: the number of ranks that dial in, sooner or
    later; 0 if unknown. absent: those of them that have not yet.
    """

    type: Literal["roster"]
    loop: int
    command: str
    generation: int
    world_size: int
    expected: int
    absent: list[int]
    ranked: bool
    ranks: list[RankEntry]


class AnswerMessage(TypedDict):
    """A rank's answer. message: the reason if `success` is False. lost: it hung up instead."""

    type: Literal["answer"]
    id: int
    rank: int
    success: bool
    message: str
    body: Message
    lost: NotRequired[bool]


class EventMessage(TypedDict):
    """`stopped`, `continued`, `terminated` or `exited` of a rank; `output` only while it owes this
    console an answer."""

    type: Literal["event"]
    rank: int
    event: str
    body: Message


class LinkMessage(TypedDict):
    """The link to the cluster is cut, or back; what ranks are asked meanwhile waits for it."""

    type: Literal["link"]
    up: bool


class RaisedMessage(TypedDict):
    """The exception that a rank has stopped at; it follows the `stopped`."""

    type: Literal["raised"]
    rank: int
    raised: RaisedInfo


FromConsole = AskAll | Release
ToConsole = RosterMessage | AnswerMessage | EventMessage | RaisedMessage | LinkMessage
