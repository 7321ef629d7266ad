"""An editor, both ends of the read-ahead, and a debuggee, with time between all of them."""

from __future__ import annotations

import json
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from tunnelkit.agent.debug.read_ahead import ReadAhead as AgentsReadAhead
from tunnelkit.debug.ahead.habits import Habits
from tunnelkit.debug.ahead.read_ahead import ReadAhead
from tunnelkit.debug.dap.shared_connection import SharedConnection
from tunnelkit.mux.dap_framing import DapReader, frame

Message = dict[str, Any]
PATHS = ("/a.py", "/b.py")
_PER_STOP = 1000


def frame_id(stop: int) -> int:
    """The top frame of a stop; its locals have the same number, as pydevd's."""
    return stop * _PER_STOP + 1


def self_id(stop: int) -> int:
    return stop * _PER_STOP + 50


@dataclass
class Debuggee:
    """Answers as pydevd. Each answer depends on all that clients have changed before."""

    stop: int = 0
    changes: list[str] = field(default_factory=list)
    breakpoints: dict[str, list[int]] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    padding: int = 0
    threads: int = 1
    seq: int = 0

    def takes(self, body: bytes) -> list[bytes]:
        request = json.loads(body)
        command, arguments = request["command"], request.get("arguments") or {}
        self.asked[command] += 1
        found, after = self._answer(command, arguments), list[bytes]()
        if command in ("next", "continue", "configurationDone"):
            after = self.stops()
        answer = {"type": "response", "request_seq": request["seq"], "success": True}
        return [self.says({**answer, "command": command, "body": found}), *after]

    def stops(self) -> list[bytes]:
        out = [self.event("continued", threadId=1, allThreadsContinued=True)]
        self.stop += 1
        if self.stop % 3 == 0:
            self.threads += 1
            out.append(self.event("thread", reason="started", threadId=self.threads))
        return [*out, self.event("stopped", threadId=1, reason="step", allThreadsStopped=True)]

    def _answer(self, command: str, arguments: Message) -> Message:
        if command == "threads":
            return {"threads": [{"id": one + 1} for one in range(self.threads)]}
        if command == "stackTrace":
            first = arguments.get("startFrame") or 0
            found = [{"id": frame_id(self.stop) + at} for at in range(first, 3)]
            return {"stackFrames": found[: arguments.get("levels") or None], "totalFrames": 3}
        if command == "scopes":
            number = arguments["frameId"]
            one, other = {"name": "Locals"}, {"name": "Globals"}
            return {
                "scopes": [
                    {**one, "variablesReference": number},
                    {**other, "variablesReference": number + 20},
                ]
            }
        if command == "variables":
            return {"variables": self._variables(arguments["variablesReference"])}
        if command == "evaluate":
            if arguments["expression"] == "x":
                return self._x()
            if arguments["context"] == "repl":
                self.changes.append(arguments["expression"])
            return {"result": f"{arguments['expression']} {self.changes}", "variablesReference": 0}
        if command == "setVariable":
            self.changes.append(arguments["value"])
        elif command == "setBreakpoints":
            path = arguments["source"]["path"]
            lines = [one["line"] for one in arguments["breakpoints"]]
            self.breakpoints[path] = lines
            told = [{"id": line, "line": line, "verified": True} for line in lines]
            return {"breakpoints": told}
        return {"of": command}

    def _x(self) -> Message:
        value = {"result": f"{self.stop}{self.changes}", "variablesReference": 0}
        return {**value, "type": "int", "presentationHint": {}}

    def _variables(self, reference: int) -> list[Message]:
        if reference != frame_id(self.stop):
            name = f"of {reference} {self.changes}"
            return [{"name": name, "variablesReference": 0, "type": "int", "value": ""}]
        x = {"name": "x", "value": self._x()["result"], "type": "int", "variablesReference": 0}
        me = {"name": "self", "type": "Model", "variablesReference": self_id(self.stop)}
        return [x, {**me, "value": "." * self.padding}]

    def event(self, name: str, **body: object) -> bytes:
        return self.says({"type": "event", "event": name, "body": body})

    def says(self, message: Message) -> bytes:
        self.seq += 1
        return json.dumps({"seq": self.seq, **message}).encode()


class World:
    """All four, and what is under way between them. habits None: nothing is read ahead."""

    def __init__(self, habits: Habits | None, padding: int = 0) -> None:
        self.now_s = 0.0
        #: Showing variables takes this long.
        self.slow_s = 0.0
        self.debuggee = Debuggee(padding=padding)
        self.agent = AgentsReadAhead(lambda: self.now_s)
        self.shared = SharedConnection(below=None if habits is None else ReadAhead(habits))
        self.heard: list[Message] = []
        self.sent = 0
        #: Bodies that have crossed the wire to the node.
        self.crossed: list[Message] = []
        self.seen_up = 0
        self._down, self._up = DapReader(), DapReader()
        self._to_node: deque[bytes] = deque()
        self._to_debuggee: deque[bytes] = deque()
        self._to_agent: deque[bytes] = deque()
        self._to_laptop: deque[bytes] = deque()
        self._queues = (self._to_node, self._to_debuggee, self._to_agent, self._to_laptop)

    # -- clients ------------------------------------------------------------

    def editor(self, command: str, **arguments: Any) -> int:
        """Send a request of the editor; return its number."""
        self.sent += 1
        request = {"seq": self.sent, "type": "request", "command": command, "arguments": arguments}
        self._to_wire(self.shared.from_adapter(frame(json.dumps(request).encode())))
        self._hear(self.shared.from_debuggee(b""))
        return self.sent

    def console(self, command: str, **arguments: Any) -> None:
        self.shared.watched = True
        self._to_wire(self.shared.ask(command, arguments, lambda answer: None))

    def configures(self, lines: dict[str, list[int]], client: str = "vscode") -> None:
        """An F5 to the first stop."""
        for command in (("initialize", {"clientID": client}), ("attach", {})):
            self.until(self.editor(command[0], **command[1]))
        for path, one in lines.items():
            breakpoints = [{"line": line} for line in one]
            self.until(
                self.editor("setBreakpoints", source={"path": path}, breakpoints=breakpoints)
            )
        self.until(self.editor("setFunctionBreakpoints", breakpoints=[]))
        self.resume("configurationDone")

    def resume(self, command: str) -> None:
        before = self.stops
        self.editor(command, threadId=1)
        while self.stops == before:
            assert self.advance(0), "no stop"

    @property
    def stops(self) -> int:
        return sum(one.get("event") == "stopped" for one in self.heard)

    def answer(self, seq: int) -> Message | None:
        return next((one for one in self.heard if one.get("request_seq") == seq), None)

    def until(self, seq: int) -> Message:
        while (found := self.answer(seq)) is None:
            assert self.advance(0), f"no answer to {seq}"
        return found

    # -- time ---------------------------------------------------------------

    def advance(self, choice: int) -> bool:
        """Move one message on; False if none is under way."""
        ready = [queue for queue in self._queues if queue]
        if not ready:
            return False
        queue = ready[choice % len(ready)]
        body = queue.popleft()
        if queue is self._to_node:
            self.crossed.append(json.loads(body))
            moved = self.agent.down(body)
        elif queue is self._to_debuggee:
            self._to_agent.extend(self.debuggee.takes(body))
            self.now_s += self.slow_s * (b'"variables"' in body)
            return True
        elif queue is self._to_agent:
            moved = self.agent.up(body)
        else:
            self.seen_up += len(body)
            self._hear(self.shared.from_debuggee(frame(body)))
            return True
        self._to_debuggee.extend(moved.to_debuggee)
        self._to_laptop.extend(moved.to_session)
        return True

    def stops_by_itself(self) -> None:
        """Another thread stops."""
        self.says(self.debuggee.event("stopped", threadId=1, reason="breakpoint"))

    def says(self, body: bytes) -> None:
        """The debuggee sends an event."""
        self._to_agent.append(body)

    def settle_node(self) -> None:
        """All between agent and debuggee; nothing crosses the wire."""
        while self._to_debuggee or self._to_agent:
            if self._to_debuggee:
                self._to_agent.extend(self.debuggee.takes(self._to_debuggee.popleft()))
            else:
                moved = self.agent.up(self._to_agent.popleft())
                self._to_debuggee.extend(moved.to_debuggee)
                self._to_laptop.extend(moved.to_session)

    def settle(self) -> None:
        while self.advance(0):
            pass

    def _to_wire(self, data: bytes) -> None:
        self._to_node.extend(self._down.feed(data))

    def _hear(self, data: bytes) -> None:
        self.heard += [json.loads(body) for body in self._up.feed(data)]


def vscode(stop: int) -> list[tuple[str, Message]]:
    """What VS Code asks after a stop (tests/support/data/vscode-session.jsonl)."""
    return [
        ("threads", {}),
        ("stackTrace", {"threadId": 1, "startFrame": 0, "levels": 1}),
        ("scopes", {"frameId": frame_id(stop)}),
        ("variables", {"variablesReference": frame_id(stop)}),
        ("stackTrace", {"threadId": 1, "startFrame": 1, "levels": 19}),
    ]


def nvim_dap(stop: int) -> list[tuple[str, Message]]:
    """What nvim-dap asks: the whole stack, and the variables of each scope."""
    return [
        ("threads", {}),
        ("stackTrace", {"threadId": 1}),
        ("scopes", {"frameId": frame_id(stop)}),
        ("variables", {"variablesReference": frame_id(stop)}),
        ("variables", {"variablesReference": frame_id(stop) + 20}),
    ]
