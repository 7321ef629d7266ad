"""Answers to an editor's requests from what was asked ahead of it.

It lies between a debuggee's shared connection and the wire, and sees what all clients ask. The
agent (agent/debug/read_ahead.py) asks the debuggee at each stop what the plan says. Rules of this
file:

- A request is answered once, by what the debuggee has said to just this request at this stop; what
  is not there travels on.
- A request of any client that may change something ends what was read ahead. The agent counts such
  requests as they pass it: what it asked before one of them is not used after.
- Plain names are answered from the locals, if values of their types run no code to be shown.
"""

from __future__ import annotations

from tunnelkit.debug.ahead.answers import Answers
from tunnelkit.debug.ahead.first_flight import FLIGHT_SEQ, FirstFlight, is_breakpoints, note
from tunnelkit.debug.ahead.habits import EditorHabits, Habits, StopRequests
from tunnelkit.debug.dap.message_filter import MessageFilter
from tunnelkit.debug.dap.messages import (
    EVENT,
    REQUEST,
    RESPONSE,
    Message,
    dump,
    objects,
    parse,
    section,
    text,
    whole,
)
from tunnelkit.debug.dap.peek import peek
from tunnelkit.debug.dap.shared_connection import FIRST_SEQ
from tunnelkit.mux import dap_ahead
from tunnelkit.mux.dap_ahead import Path, Places
from tunnelkit.mux.dap_framing import DapError, DapReader, frame

_LONGEST_READ_BYTES = 1 << 20
_MOST_PENDING = 64
_PLAIN = frozenset({"int", "float", "complex", "bool", "str", "bytes", "NoneType"})
_LOCALS: Path = ("scope", 0)


class ReadAhead:
    """One debuggee's. `down` and `up` take the bytes of both directions and return what goes on.

    They raise ConnectionAbortedError if the bytes are no DAP.
    """

    def __init__(self, habits: Habits) -> None:
        self._habits = habits
        self._habit: EditorHabits = habits.of("")
        self._answers = Answers()
        self._flight = FirstFlight(self._answers)
        self._requests = DapReader()
        self._debuggee = MessageFilter(lambda size: size <= _LONGEST_READ_BYTES, self._up)
        self._began = False
        #: The plan that the agent has; None: it has had none.
        self._plan: list[Message] | None = None
        self._passed = 0
        #: The stop that the answers are of.
        self._places: Places | None = None
        self._since = StopRequests()
        self._locals: dict[str, Message] = {}
        #: The editor's requests that have travelled on.
        self._pending: dict[int, tuple[str, Message]] = {}
        #: For the connection, once the debuggee's message is complete.
        self._replies = b""

    def down(self, data: bytes) -> bytes:
        """Take bytes for the debuggee."""
        try:
            bodies = self._requests.feed(data)
        except DapError as error:
            raise ConnectionAbortedError(str(error)) from None
        return b"".join(frame(out) for body in bodies for out in self._down(body))

    def up(self, data: bytes) -> bytes:
        """Take bytes of the debuggee; with b"", return what else is there."""
        out = self._debuggee.feed(data)
        if self._replies and self._debuggee.between_messages:
            out, self._replies = out + self._replies, b""
        return out

    def editor_left(self) -> bytes:
        """Return what the agent must hear: nothing is read ahead for nobody."""
        self._end_stop()
        return b"".join(map(frame, self._tell([]))) if self._plan else b""

    # -- requests -----------------------------------------------------------

    def _down(self, body: bytes) -> list[bytes]:
        kind, name, _ = peek(body)
        if kind != REQUEST:
            return [body]
        message = parse(body)
        command, arguments = name.decode("utf-8", "replace"), section(message, "arguments")
        seq = whole(message.get("seq")) or 0
        of_editor = seq < FIRST_SEQ
        if of_editor and command == "initialize":
            self._habit = self._habits.of(text(arguments.get("clientID")))
        if is_breakpoints(command):
            return self._breakpoints(seq, command, arguments, body)
        if command == "configurationDone":
            return [*self._begin(of_editor), body]
        if command == "attach" and of_editor and not self._began:
            first = [] if "subProcessId" in arguments else self._flight.begin(self._habit)
            return [body, *first]
        answered = self._claim(seq, command, arguments) if of_editor else None
        if answered is not None:
            return answered
        if dap_ahead.is_harmless(command, arguments):
            return [body]
        out = [*self._learn(), body]
        if command == "disconnect" and not self._began:
            # The program begins without its editor.
            out = [*self._flight.end(), *out]
            self._began = True
        self._end_stop()
        self._passed += self._plan is not None
        return out

    def _begin(self, of_editor: bool) -> list[bytes]:
        out = [] if self._began else self._flight.end()
        self._began = True
        if of_editor:
            out += self._tell(self._habit.plan)
        self._end_stop()
        self._passed += self._plan is not None
        return out

    def _breakpoints(self, seq: int, command: str, arguments: Message, body: bytes) -> list[bytes]:
        claimed = None
        if seq < FIRST_SEQ:
            note(self._habit, command, arguments)
            claimed = None if self._began else self._answers.claim(seq, command, arguments)
        self._flight.replaced(command, arguments, of_editor=seq < FIRST_SEQ)
        if claimed is None:
            return [body]
        self._reply(claimed[1])
        return []

    def _claim(self, seq: int, command: str, arguments: Message) -> list[bytes] | None:
        """Answer a request of the editor; None: it must travel on."""
        if self._places is None or command not in (*dap_ahead.NUMBERED, "evaluate"):
            return None
        if command == "evaluate":
            if (value := self._plain_name(arguments)) is None:
                return None
            head = {"type": RESPONSE, "request_seq": seq, "success": True, "command": command}
            self._reply(dump({"seq": 0, **head, "body": value}))
            return []
        path = self._places.path(command, arguments)
        if path is not None:
            self._since.add(command, arguments, path)
        claimed = self._answers.claim(seq, command, arguments)
        number, answer = claimed or (0, None)
        if answer is not None:
            self._reply(answer)
            return []
        if len(self._pending) < _MOST_PENDING:
            self._pending[seq] = (command, arguments)
        if claimed is None:
            return None
        return [self._to_agent(dap_ahead.WANT, {"number": number, "wanted": seq})]

    def _plain_name(self, arguments: Message) -> Message | None:
        """Return what an evaluation of a name says, if that is known."""
        assert self._places is not None
        name = text(arguments.get("expression"))
        known = self._locals.get(name)
        plain = arguments.get("context") in ("hover", "watch") and not arguments.get("format")
        if known is None or not plain:
            return None
        if arguments.get("frameId") != self._places.number(("frame", 0)):
            return None
        return {
            "result": known.get("value"),
            "variablesReference": 0,
            "type": known.get("type"),
            "presentationHint": known.get("presentationHint") or {},
        }

    def _learn(self) -> list[bytes]:
        """The editor is done with this stop: what it has asked is the plan for the next."""
        if self._places is None or self._plan is None:
            return []
        self._habit.plan = self._since.plan()
        return self._tell(self._habit.plan)

    def _tell(self, plan: list[Message]) -> list[bytes]:
        if plan == self._plan:
            return []
        self._plan = plan
        return [self._to_agent(dap_ahead.PLAN, {"plan": plan})]

    @staticmethod
    def _to_agent(command: str, arguments: Message) -> bytes:
        return dap_ahead.request(0, command, arguments)

    def _end_stop(self) -> None:
        self._places = None
        self._locals = {}
        self._pending = {}
        self._answers.drop()

    # -- the debuggee's messages ----------------------------------------------

    def _up(self, body: bytes) -> bytes | None:
        kind, name, request = peek(body)
        if kind == EVENT:
            if name == dap_ahead.ASKED.encode():
                self._expect(section(parse(body), "body"))
                return None
            if name == b"stopped":
                self._end_stop()
                self._since = StopRequests()
                self._places = Places(section(parse(body), "body").get("threadId"))
            elif name == b"continued":
                self._end_stop()
            elif name == b"thread":
                self._answers.drop("threads")
            return body
        if kind != RESPONSE:
            return body
        if request >= FLIGHT_SEQ:
            self._arrived(request, body)
            return None
        self._answers.delivered(request)
        asked = self._pending.pop(request, None)
        if asked is not None:
            self._note_places(*asked, parse(body))
        return body

    def _expect(self, report: Message) -> None:
        asked = report.get("asked")
        if self._places is None or report.get("passed") != self._passed:
            return
        for one in asked if isinstance(asked, list) else ():
            if isinstance(one, list) and len(one) == 3:
                number, command, arguments = one
                known = command in ("threads", "stackTrace", "scopes", "variables")
                if known and isinstance(number, int) and isinstance(arguments, dict):
                    self._answers.expect(number, command, arguments)

    def _arrived(self, number: int, body: bytes) -> None:
        answer = parse(body)
        asked = self._answers.request_of(number)
        awaited = self._answers.arrived(number, answer, len(body))
        if awaited is not None:
            asked = self._pending.pop(awaited[0], None)
            self._reply(awaited[1])
        if asked is not None:
            self._note_places(*asked, answer)

    def _note_places(self, command: str, arguments: Message, answer: Message) -> None:
        if self._places is None or answer.get("success") is not True:
            return
        path = self._places.path(command, arguments)
        if path is None:
            return
        self._places.learn(command, path, arguments, answer)
        if path == _LOCALS and len(arguments) == 1:
            self._locals = {
                text(one.get("name")): one
                for one in objects(section(answer, "body").get("variables"))
                if one.get("type") in _PLAIN and one.get("variablesReference") == 0
            }

    def _reply(self, body: bytes | None) -> None:
        if body is not None:
            self._replies += frame(body)
