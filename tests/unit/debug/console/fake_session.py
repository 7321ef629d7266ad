"""A session with ranks that answer as debugpy does, driven through a console on a clock by hand."""

from __future__ import annotations

import ast
import contextlib
import io
import traceback
from collections import Counter
from dataclasses import dataclass, field

from tunnelkit.debug.console.console import Console
from tunnelkit.debug.console.line_results import LineResult, Step
from tunnelkit.debug.dap.messages import Message, objects, section, text, whole
from tunnelkit.debug.ranks.console_messages import (
    AnswerMessage,
    Ask,
    FromConsole,
    RaisedInfo,
    RankEntry,
    RosterMessage,
    State,
    ToConsole,
)

TRAIN = """\
import random


def inner_function(rank):
    x = 655
    return rank + x


def to_debug(rank):
    loss = 0.5
    rank = inner_function(rank)
    rank += 1
    loss = loss * 2
    return rank


to_debug(0)
""".splitlines()
PATH = "/home/me/project/train.py"
#: Line of the breakpoint() that ranks stop at.
STOPPED_AT = 11


def local_source(path: str) -> list[str] | None:
    return TRAIN if path == PATH else None


def resolve(path: str) -> str | None:
    return PATH if path in ("train.py", "./train.py", PATH) else None


@dataclass
class FakeRank:
    """One rank. names: of its innermost frame. mute: commands that it does not answer. stays:
    no step or pause stops it. most_frames: an answer with later ones is refused. reference: the
    innermost frame's file is the node's."""

    rank: int
    node: str
    local: int
    state: State = "stopped"
    line: int = STOPPED_AT
    function: str = "to_debug"
    reason: str = "breakpoint"
    names: dict[str, object] = field(default_factory=dict)
    breakpoints: dict[str, list[Message]] = field(default_factory=dict)
    filters: object = ()
    editor: Message = field(default_factory=dict)
    mute: set[str] = field(default_factory=set)
    stays: bool = False
    most_frames: int = 1_000
    pid: int = 0
    epoch: int = 1
    reference: int = 0

    def entry(self) -> RankEntry:
        stops: list[Message] = [self.stop()] if self.state == "stopped" else []
        return {
            "rank": self.rank,
            "node": self.node,
            "local": self.local,
            "pid": self.pid or 1000 + self.rank,
            "state": self.state,
            "stops": stops,
        }

    def stop(self) -> Message:
        return {"threadId": 1, "reason": self.reason, "allThreadsStopped": True}

    def frames(self) -> list[Message]:
        source: Message = {"path": PATH}
        inner = {**source, "sourceReference": self.reference}
        frames: list[Message] = [
            {"id": self.epoch * 100, "name": self.function, "line": self.line, "source": inner}
        ]
        if self.function == "inner_function":
            frames.append(
                {"id": self.epoch * 100 + 1, "name": "to_debug", "line": 11, "source": source}
            )
        frames.append(
            {"id": self.epoch * 100 + 2, "name": "<module>", "line": 17, "source": source}
        )
        return frames


class FakeSession:
    """Ranks, and a console that talks to them. `sent` has all asks, `asked` counts answers."""

    def __init__(self, nodes: int = 4, each: int = 4, **rank: object) -> None:
        self.now_s = 100.0
        self.ranks = {
            node * each + local: FakeRank(node * each + local, f"node{node}", local)
            for node in range(nodes)
            for local in range(each)
        }
        for one in self.ranks.values():
            one.names = {"rank": one.rank, "loss": 0.5}
            for name, value in rank.items():
                setattr(one, name, value)
        self.generation = 1
        self.sent: list[Ask] = []
        self.released: list[int] = []
        self.batches: list[FromConsole] = []
        self.answered: Counter[int] = Counter()
        self.shown: list[str] = []
        self.done: list[LineResult] = []
        self.over = False
        #: Messages that wait for `deliver`.
        self.held: list[ToConsole] = []
        self.holds = False
        self.console = Console(local_source=local_source, resolve=resolve)
        self.deliver(self.roster())

    # -- the console's side -----------------------------------------------------------

    def type(self, line: str) -> str:
        """Type a line; returns what is shown until nothing is waited for at this time."""
        self.shown = []
        self._take(self.console.line(line, self.now_s))
        return "\n".join(self.shown)

    def result(self, line: str) -> LineResult:
        self.done = []
        self.type(line)
        while self.console.busy:
            self.wait(0.5)
        return self.done[-1]

    def wait(self, seconds: float) -> str:
        """Let time pass."""
        self.shown = []
        end = self.now_s + seconds
        while (due := self.console.due_s) is not None and due <= end:
            assert due >= self.now_s
            self.now_s = due
            self._take(self.console.tick(self.now_s))
        self.now_s = end
        return "\n".join(self.shown)

    def deliver(self, message: ToConsole) -> str:
        before = len(self.shown)
        self._take(self.console.message(message, self.now_s))
        return "\n".join(self.shown[before:])

    def let_go(self) -> str:
        """Deliver what was held."""
        self.holds = False
        self.shown = []
        held, self.held = self.held, []
        for message in held:
            self.deliver(message)
        return "\n".join(self.shown)

    def _take(self, step: Step) -> None:
        self.shown += step.show
        self.done += step.done
        self.over = self.over or step.over
        for message in step.send:
            self.batches.append(message)
            for reply in self._replies(message):
                if self.holds:
                    self.held.append(reply)
                else:
                    self._take(self.console.message(reply, self.now_s))

    # -- the ranks' side ----------------------------------------------------------------

    def roster(self) -> RosterMessage:
        return {
            "type": "roster",
            "loop": 1,
            "command": "torchrun train.py",
            "generation": self.generation,
            "world_size": len(self.ranks),
            "expected": len(self.ranks),
            "absent": [],
            "ranked": True,
            "ranks": [one.entry() for one in self.ranks.values()],
        }

    def event(self, rank: int, event: str, **body: object) -> str:
        return self.deliver({"type": "event", "rank": rank, "event": event, "body": {**body}})

    def stops(self, rank: int, line: int, reason: str = "breakpoint", **body: object) -> str:
        one = self.ranks[rank]
        one.state, one.line, one.reason, one.epoch = "stopped", line, reason, one.epoch + 1
        return self.event(rank, "stopped", **{**one.stop(), **body})

    def raises(
        self,
        rank: int,
        text: str,
        *,
        kind: str = "ValueError",
        line: int = 11,
        uncaught: bool = True,
    ) -> str:
        """The session has found out at which exception a rank has stopped."""
        raised: RaisedInfo = {
            "kind": kind,
            "text": text,
            "uncaught": uncaught,
            "file": "/remote/train.py",
            "line": line,
            "at_s": self.now_s,
        }
        return self.deliver({"type": "raised", "rank": rank, "raised": raised})

    def _replies(self, message: FromConsole) -> list[ToConsole]:
        replies: list[ToConsole] = []
        if message["type"] == "release":
            for rank in message["ranks"]:
                self.released.append(rank)
                self.ranks[rank].state = "running"
                replies.append(self._answer(message["id"], rank, {}))
            return replies
        for ask in message["asks"]:
            self.sent.append(ask)
            assert ask["rank"] in self.ranks
            one = self.ranks[ask["rank"]]
            if ask["command"] not in one.mute:
                replies += self._asked(one, ask)
        return replies

    def _answer(self, number: int, rank: int, body: Message, failure: str = "") -> AnswerMessage:
        self.answered[number] += 1
        return {
            "type": "answer",
            "id": number,
            "rank": rank,
            "success": not failure,
            "message": failure,
            "body": body,
        }

    def _stack(self, one: FakeRank, number: int, arguments: Message) -> AnswerMessage:
        first = whole(arguments.get("startFrame")) or 0
        frames = one.frames()[first:][: whole(arguments.get("levels")) or None]
        answer = self._answer(number, one.rank, {"stackFrames": frames})
        if first + len(frames) > one.most_frames:
            answer["success"], answer["body"] = False, {}
        return answer

    def _asked(self, one: FakeRank, ask: Ask) -> list[ToConsole]:
        number, arguments = ask["id"], ask["arguments"]
        match ask["command"]:
            case "stackTrace":
                return [self._stack(one, number, arguments)]
            case "setBreakpoints":
                path = text(section(arguments, "source").get("path"))
                one.breakpoints[path] = objects(arguments.get("breakpoints"))
                body: Message = {"breakpoints": [{"verified": True} for _ in one.breakpoints[path]]}
                return [self._answer(number, one.rank, body)]
            case "setExceptionBreakpoints":
                one.filters = arguments.get("filters")
                return [self._answer(number, one.rank, {})]
            case "tkOpenEditor":
                return [self._answer(number, one.rank, one.editor)]
            case "next" | "stepIn" | "stepOut" as command:
                return self._moves(one, number, command)
            case "continue":
                one.state = "running"
                return [self._answer(number, one.rank, {})]
            case "pause":
                answer = self._answer(number, one.rank, {})
                if one.stays:
                    return [answer]
                one.state, one.reason, one.epoch = "stopped", "pause", one.epoch + 1
                return [answer, self._event(one, "stopped", one.stop())]
            case "evaluate":
                return self._evaluates(one, number, arguments)
        return [self._answer(number, one.rank, {}, "not known here")]

    def _moves(self, one: FakeRank, number: int, command: str) -> list[ToConsole]:
        if command == "stepIn" and one.line == STOPPED_AT:
            one.function, one.line = "inner_function", 5
        elif command == "stepOut":
            one.function, one.line = "to_debug", STOPPED_AT + 1
        else:
            one.line += 1
        if one.stays:
            one.state = "running"
            return [self._answer(number, one.rank, {})]
        one.epoch, one.reason = one.epoch + 1, "step"
        if one.function == "inner_function" and one.line == 6:
            one.names["x"] = 655
        return [
            self._answer(number, one.rank, {}),
            self._event(one, "continued", {"threadId": 1, "allThreadsContinued": True}),
            self._event(one, "stopped", one.stop()),
        ]

    @staticmethod
    def _event(one: FakeRank, event: str, body: Message) -> ToConsole:
        return {"type": "event", "rank": one.rank, "event": event, "body": body}

    def _evaluates(self, one: FakeRank, number: int, arguments: Message) -> list[ToConsole]:
        """As pydevd: all names of the frame are globals; `repl` takes statements."""
        code, frame = text(arguments.get("expression")), whole(arguments.get("frameId"))
        if frame is not None and frame // 100 != one.epoch:
            return [self._answer(number, one.rank, {}, "Unable to find thread for evaluation.")]
        names = {**one.names} if frame is not None else {}
        output, replies = io.StringIO(), list[ToConsole]()
        failure, result = "", ""
        with contextlib.redirect_stdout(output):
            try:
                if arguments.get("context") == "repl":
                    before = dict(names)
                    exec(ast.unparse(ast.parse(code)), names)
                    names.pop("__builtins__", None)
                    if frame is not None:
                        one.names.update({k: v for k, v in names.items() if before.get(k) is not v})
                else:
                    result = str(eval(code, names))
            except BaseException:
                failure = traceback.format_exc()
        for part in filter(None, output.getvalue().splitlines(keepends=True)):
            replies.append(self._event(one, "output", {"category": "stdout", "output": part}))
        return [*replies, self._answer(number, one.rank, {"result": result}, failure)]


def asked(session: FakeSession, command: str) -> list[int]:
    return [ask["rank"] for ask in session.sent if ask["command"] == command]


def sent_together(session: FakeSession, command: str) -> list[list[int]]:
    """The ranks of each message that has such a request."""
    batches = []
    for message in session.batches:
        if message["type"] == "ask":
            ranks = [ask["rank"] for ask in message["asks"] if ask["command"] == command]
            if ranks:
                batches.append(ranks)
    return batches


def values_sent(session: FakeSession) -> list[list[int]]:
    """The ranks of each message that evaluates in a frame."""
    return [
        ranks
        for message in session.batches
        if message["type"] == "ask"
        and (ranks := [ask["rank"] for ask in message["asks"] if "frameId" in ask["arguments"]])
    ]
