"""Two clients on one debuggee: whatever a console does, an editor hears what it hears alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.debug.dap.breakpoint_union import BreakpointUnion
from tunnelkit.debug.dap.shared_connection import SharedConnection
from tunnelkit.mux.dap_framing import DapReader, frame

Message = dict[str, Any]
PATHS = ("/a.py", "/b.py")
#: The lines that the program runs, over and over; a console's own are others.
RUNS = (("/a.py", 2), ("/a.py", 3), ("/b.py", 2), ("/a.py", 5))


@dataclass
class Debuggee:
    """Answers as pydevd: each request gives breakpoints other numbers, and stops name them."""

    at: int = -1
    stopped: bool = False
    seq: int = 0
    numbers: int = 0
    breakpoints: dict[str, dict[int, int]] = field(default_factory=dict)
    frames: DapReader = field(default_factory=DapReader)

    def takes(self, data: bytes) -> bytes:
        return b"".join(self._answer(json.loads(body)) for body in self.frames.feed(data))

    def _answer(self, request: Message) -> bytes:
        command, arguments = request["command"], request.get("arguments") or {}
        body: Message = {"of": command}
        after = b""
        if command == "setBreakpoints":
            body = self._set(arguments)
        elif command == "evaluate":
            body = {"result": f"{arguments['expression']} at {self.at}"}
        elif command in ("next", "continue", "configurationDone"):
            after = self._moves(step=command == "next")
        answer = {
            "type": "response",
            "request_seq": request["seq"],
            "success": True,
            "command": command,
            "body": body,
        }
        return self._says(answer) + after

    def _set(self, arguments: Message) -> Message:
        path, answered = arguments["source"]["path"], []
        self.breakpoints[path] = {}
        for one in arguments["breakpoints"]:
            self.breakpoints[path][one["line"]] = self.numbers
            answered.append({"id": self.numbers, "line": one["line"], "verified": True})
            self.numbers += 1
        return {"breakpoints": answered}

    def _moves(self, *, step: bool) -> bytes:
        out = self._says({"type": "event", "event": "continued", "body": {"threadId": 1}})
        for _ in RUNS:
            self.at = (self.at + 1) % len(RUNS)
            path, line = RUNS[self.at]
            number = self.breakpoints.get(path, {}).get(line)
            if number is not None or step:
                body: Message = {"reason": "breakpoint" if number is not None else "step"}
                body |= {"threadId": 1, "hitBreakpointIds": [number]} if number is not None else {}
                return out + self._says({"type": "event", "event": "stopped", "body": body})
        return out

    def changes(self, path: str, line: int) -> bytes:
        """Say that a breakpoint is elsewhere now."""
        number = self.breakpoints.get(path, {}).get(line)
        if number is None:
            return b""
        body = {"reason": "changed", "breakpoint": {"id": number, "line": line}}
        return self._says({"type": "event", "event": "breakpoint", "body": body})

    def _says(self, message: Message) -> bytes:
        self.seq += 1
        return frame(json.dumps({"seq": self.seq, **message}).encode())


LINES = st.sampled_from([2, 3, 5])
#: What an editor sends between its handshake and its goodbye, and what a debuggee says by itself.
STEPS = st.one_of(
    st.tuples(st.just("setBreakpoints"), st.sampled_from(PATHS), st.lists(LINES, unique=True)),
    st.tuples(st.sampled_from(["threads", "next", "continue", "evaluate"])),
    st.tuples(st.just("changed"), st.sampled_from(PATHS), LINES),
)
#: What a console does meanwhile. Where it has breakpoints of its own, the program does not come by;
#: it may name the editor's lines, too.
CONSOLE = st.one_of(
    st.tuples(st.just("b"), st.integers(0, 1), st.sampled_from(PATHS), st.lists(st.integers(7, 9))),
    st.tuples(st.just("same"), st.integers(0, 1), st.sampled_from(PATHS)),
    st.tuples(st.just("p")),
    st.tuples(st.just("leaves"), st.integers(0, 1)),
)


@dataclass
class Rig:
    """An editor at one end, a debuggee at the other, and consoles beside."""

    piece: int
    debuggee: Debuggee = field(default_factory=Debuggee)
    shared: SharedConnection = field(default_factory=SharedConnection)
    heard: list[bytes] = field(default_factory=list)
    asked: int = 0
    answers: int = 0
    seq: int = 0
    #: The editor's lines, and the consoles that may have named the same, by file.
    own: dict[str, list[int]] = field(default_factory=dict)
    same: dict[str, set[int]] = field(default_factory=dict)
    _frames: DapReader = field(default_factory=DapReader)

    def editor(self, command: str, **arguments: Any) -> None:
        self.seq += 1
        request = {"command": command, "arguments": arguments, "type": "request", "seq": self.seq}
        data = frame(json.dumps(request).encode())
        for start in range(0, len(data), self.piece):
            self._send(self.shared.from_adapter(data[start : start + self.piece]))

    def does(self, step: Sequence[Any]) -> None:
        if step[0] == "setBreakpoints":
            # Where only a console has a breakpoint, the program would stop for it alone.
            for client in self.same.pop(step[1], set()):
                self.console(("b", client, step[1], []))
            self.own[step[1]] = step[2]
            breakpoints = [{"line": line} for line in step[2]]
            self.editor("setBreakpoints", source={"path": step[1]}, breakpoints=breakpoints)
        elif step[0] == "changed":
            # The debuggee may say so of anybody's.
            for line in (step[2], 7):
                self._hears(self.debuggee.changes(step[1], line))
        elif step[0] == "evaluate":
            self.editor("evaluate", expression="x")
        else:
            self.editor(step[0], threadId=1)

    def console(self, action: Sequence[Any]) -> None:
        self.shared.watched = True
        self.asked += action[0] != "leaves"
        if action[0] in ("b", "same"):
            lines = action[3] if action[0] == "b" else self.own.get(action[2], [])
            self.same.setdefault(action[2], set()).add(action[1])
            breakpoints: list[Message] = [{"line": line} for line in lines]
            out = self.shared.set_breakpoints(action[1], action[2], breakpoints, self._answered)
        elif action[0] == "p":
            out = self.shared.ask("evaluate", {"expression": "y"}, self._answered)
        else:
            out = self.shared.drop_client(action[1])
        self._send(out)

    def _answered(self, message: object) -> None:
        self.answers += 1

    def _send(self, data: bytes) -> None:
        if data:
            self._hears(self.debuggee.takes(data))

    def _hears(self, data: bytes) -> None:
        for start in range(0, len(data), self.piece):
            out = self.shared.from_debuggee(data[start : start + self.piece])
            self.heard += self._frames.feed(out)


def normal(bodies: list[bytes]) -> list[str]:
    """Messages without their numbers; those of breakpoints stay."""
    return [json.dumps({**json.loads(body), "seq": 0}) for body in bodies]


def session(
    steps: list[tuple[Any, ...]], meanwhile: list[tuple[int, tuple[Any, ...]]], piece: int
) -> Rig:
    """Run an editor's session; actions of consoles come before the step of that index."""
    rig = Rig(piece)
    whole = [("initialize",), ("setBreakpoints", "/a.py", [3]), ("configurationDone",), *steps]
    for index, step in enumerate(whole):
        for at, action in meanwhile:
            if at == index:
                rig.console(action)
        rig.does(step)
    return rig


@given(
    st.lists(STEPS, max_size=12),
    st.lists(st.tuples(st.integers(0, 14), CONSOLE), max_size=10),
    st.integers(5, 200),
)
def test_an_editor_hears_the_same_as_alone(
    steps: list[tuple[Any, ...]], meanwhile: list[tuple[int, tuple[Any, ...]]], piece: int
) -> None:
    alone = session(steps, [], 1000)
    shared = session(steps, meanwhile, piece)
    assert shared.answers == shared.asked
    assert normal(shared.heard) == normal(alone.heard)


def test_a_line_of_two_clients_stops_where_either_wants_it_to() -> None:
    def merged(one: Message, other: Message) -> Message:
        union = BreakpointUnion("editor")
        union.set("editor", "/a.py", [{"line": 3, **one}])
        [sent] = union.set("console", "/a.py", [{"line": 3, **other}]).breakpoints
        return sent

    plain: Message = {}
    some, more = {"condition": "x > 1"}, {"condition": "y"}
    assert merged(plain, some) == merged(some, plain) == {"line": 3}
    assert merged(some, more) == {"line": 3, "condition": "(y) or (x > 1)"}
    assert merged(some, some) == {"line": 3, "condition": "x > 1"}
    log = {"logMessage": "here"}
    assert merged(log, plain) == merged(plain, log) == {"line": 3}
    assert merged({"hitCondition": "5"}, some) == {"line": 3, "condition": "x > 1"}


def test_function_breakpoints_are_counted_with_those_of_files() -> None:
    union = BreakpointUnion("editor")
    sent = union.set("editor", "/a.py", [{"line": 3}])
    assert union.answered("editor", "/a.py", sent, [{"id": 0}]) == [{"id": 0}]
    assert union.functions_answered([{"id": 1}]) == [{"id": 1}]
    sent = union.set("editor", "/b.py", [{"line": 4}])
    assert union.answered("editor", "/b.py", sent, [{"id": 2}]) == [{"id": 2}]
    assert not union.renumbered
    # A console's requests take numbers of the debuggee's.
    union.answered("console", "/a.py", union.set("console", "/a.py", [{"line": 9}]), [{"id": 3}])
    assert union.functions_answered([{"id": 5}]) == [{"id": 3}]
    event: Message = {"body": {"hitBreakpointIds": [5, 2]}}
    assert union.for_editor(event) == {"body": {"hitBreakpointIds": [3, 2]}}


def test_pydevds_warning_of_a_slow_evaluation_goes_to_the_client_that_asked() -> None:
    seen: list[Message] = []
    shared = SharedConnection(on_event=seen.append)
    shared.watched = True
    [request] = DapReader().feed(shared.ask("evaluate", {"expression": "slow()"}, seen.append))

    def warning(expression: str) -> bytes:
        said = f"Evaluating: {expression} did not finish after 3.00 seconds.\nThis may mean"
        body = {"category": "important", "output": said}
        return frame(json.dumps({"type": "event", "event": "output", "body": body}).encode())

    assert shared.from_debuggee(warning("slow()")) == b"" and not seen
    assert shared.from_debuggee(warning("theirs()")) == warning("theirs()")
    answer = {"type": "response", "request_seq": json.loads(request)["seq"], "command": "evaluate"}
    shared.from_debuggee(frame(json.dumps(answer).encode()))
    assert shared.from_debuggee(warning("slow()")) == warning("slow()")
