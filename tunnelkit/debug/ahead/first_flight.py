"""The breakpoints of the last F5, sent right behind `attach`.

An editor sends its breakpoints once `attach` is answered, and waits for their answers before it
lets the program begin. Most often they are those of its last F5: so they travel with `attach`, and
the debuggee's answers are there when the editor asks. Rules of this file:

- Only before a program begins; what the editor then does not set is removed before it does.
- The editor's own request, if it is another, goes to the debuggee, and replaces what was sent.
"""

from __future__ import annotations

import secrets

from tunnelkit.debug.ahead.answers import Answers
from tunnelkit.debug.ahead.habits import EditorHabits
from tunnelkit.debug.dap.messages import Message, section, text
from tunnelkit.mux import dap_ahead

#: Above the numbers of sessions' other requests, below those of agents.
FLIGHT_SEQ = 1 << 47
_FUNCTIONS = "setFunctionBreakpoints"


class FirstFlight:
    """One program's. Methods return requests for the debuggee."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        # Another one for each session: a debuggee may yet answer the one before.
        self._seq = FLIGHT_SEQ + secrets.randbelow(2**20) * 2**20
        #: What nobody has claimed: the number of the request for a file; "" for functions.
        self._sent: dict[str, int] = {}
        #: Where another client, a console, has set breakpoints: the editor will set them all.
        self._others: set[str] = set()

    def begin(self, habits: EditorHabits) -> list[bytes]:
        """The editor attaches."""
        if self._sent:
            return []
        out = [
            self._send(path, "setBreakpoints", arguments)
            for path, arguments in habits.breakpoints.items()
            if path not in self._others
        ]
        if habits.functions is not None and "" not in self._others:
            out.append(self._send("", _FUNCTIONS, habits.functions))
        return out

    def replaced(self, command: str, arguments: Message, *, of_editor: bool) -> None:
        """A client's own request is on its way, or has claimed what was sent."""
        place = "" if command == _FUNCTIONS else _file(arguments)
        self._sent.pop(place, None)
        if not of_editor:
            self._others.add(place)

    def end(self) -> list[bytes]:
        """The program is about to begin: remove what nobody has claimed."""
        left, self._sent = self._sent, {}
        self._answers.drop()
        return [
            self._request("setBreakpoints", {"source": {"path": path}, "breakpoints": []})
            if path
            else self._request(_FUNCTIONS, {"breakpoints": []})
            for path in left
        ]

    def _send(self, path: str, command: str, arguments: Message) -> bytes:
        request = self._request(command, arguments)
        self._sent[path] = self._seq
        self._answers.expect(self._seq, command, arguments)
        return request

    def _request(self, command: str, arguments: Message) -> bytes:
        self._seq += 1
        return dap_ahead.request(self._seq, command, arguments)


def is_breakpoints(command: str) -> bool:
    """True for a request that the first flight may have sent."""
    return command in ("setBreakpoints", _FUNCTIONS)


def note(habits: EditorHabits, command: str, arguments: Message) -> None:
    """Note the breakpoints of an editor for its next F5."""
    if command == _FUNCTIONS:
        habits.functions = arguments
    elif path := _file(arguments):
        habits.set_breakpoints(path, arguments)


def _file(arguments: Message) -> str:
    return text(section(arguments, "source").get("path"))
