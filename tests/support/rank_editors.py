"""How editors open, answer and leave sessions of ranks: what they send, in their own order.

Written after what VS Code, nvim-dap and dape (0.27) were seen to do with ranks; not recordings.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from tunnelkit.debug.dap.messages import parse
from tunnelkit.demo.dap_client import Message
from tunnelkit.mux.dap_framing import DapReader, encode
from tunnelkit.mux.tasks import cancel_all


def _as_it_came(configuration: Message) -> Message:
    return configuration


def _by_emacs(configuration: Message) -> Message:
    """Emacs has one value for null and {}, which goes back as null."""
    return {key: None if value in ({}, None) else value for key, value in configuration.items()}


@dataclass(frozen=True)
class Manner:
    """One editor's habits.

    tells_connect: its configuration has the address; others keep that beside it. answers_late:
    `startDebugging` is answered once the child session is up. leaves: at `terminated`, by a
    `disconnect` and its answer, or by closing.
    """

    client_id: str
    tells_connect: bool
    answers_late: bool
    leaves: Literal["disconnect", "closes"]
    gives_back: Callable[[Message], Message] = _as_it_came


VSCODE = Manner("vscode", tells_connect=True, answers_late=True, leaves="disconnect")
NVIM_DAP = Manner("neovim", tells_connect=False, answers_late=False, leaves="closes")
DAPE = Manner(
    "dape", tells_connect=False, answers_late=False, leaves="disconnect", gives_back=_by_emacs
)


@dataclass
class Session:
    """A session of that editor with all child sessions that it was asked for. `open`, `close`."""

    manner: Manner
    port: int
    breakpoints: dict[str, list[int]]
    configuration: Message
    children: list[Session] = field(default_factory=list)
    #: Events by name, as they come.
    events: list[Message] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _answers: dict[int, Message] = field(default_factory=dict)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _seq: Any = field(default_factory=lambda: itertools.count(1))
    _writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        """Connect, and get the program going."""
        reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._tasks.append(asyncio.create_task(self._read(reader)))
        await self.request(
            "initialize",
            clientID=self.manner.client_id,
            adapterID="debugpy",
            pathFormat="path",
            linesStartAt1=True,
            columnsStartAt1=True,
            supportsStartDebuggingRequest=True,
        )
        attached = self._say("attach", self.configuration)
        await self.event("initialized")
        for path, lines in self.breakpoints.items():
            wanted = [{"line": line} for line in lines]
            await self.request("setBreakpoints", source={"path": path}, breakpoints=wanted)
        await self.request("setExceptionBreakpoints", filters=[])
        await self.request("configurationDone")
        await self._answer(attached)
        await self.request("threads")

    async def event(self, name: str) -> Message:
        """Take the next event of that name; its body."""
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(lambda: any(e["event"] == name for e in self.events))
        found = next(one for one in self.events if one["event"] == name)
        self.events.remove(found)
        return dict(found.get("body") or {})

    async def child(self) -> Session:
        """The first child session, once its program has stopped or run on."""
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(lambda: self.children)
        return self.children[0]

    async def request(self, command: str, **arguments: Any) -> Message:
        """Send a request; the answer's body. Fails if it is refused."""
        answer = await self._answer(self._say(command, arguments))
        assert answer["success"], answer
        return dict(answer.get("body") or {})

    async def go_on(self) -> None:
        """To the end of its program, without further stops."""
        for path in self.breakpoints:
            await self.request("setBreakpoints", source={"path": path}, breakpoints=[])
        await self.request("continue", threadId=1)

    async def close(self) -> None:
        for one in self.children:
            await one.close()
        await cancel_all(*self._tasks)
        if self._writer is not None:
            self._writer.close()

    def _say(self, command: str, arguments: Message) -> int:
        seq = next(self._seq)
        self._send({"seq": seq, "type": "request", "command": command, "arguments": arguments})
        return int(seq)

    def _send(self, message: Message) -> None:
        assert self._writer is not None
        self._writer.write(encode(message))

    async def _answer(self, seq: int) -> Message:
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(lambda: seq in self._answers or self.over.is_set())
        assert seq in self._answers, "the connection ended before the answer"
        return self._answers.pop(seq)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        frames = DapReader()
        while data := await reader.read(65536):
            for body in frames.feed(data):
                await self._take(body)
        self.over.set()
        await self._wake()

    async def _take(self, body: bytes) -> None:
        message = parse(body)
        if message["type"] == "response":
            self._answers[message["request_seq"]] = message
        elif message["type"] == "event":
            self.events.append(message)
            if message["event"] == "terminated":
                self._tasks.append(asyncio.create_task(self._leave()))
        elif message["command"] == "startDebugging":
            self._tasks.append(asyncio.create_task(self._start(message)))
        await self._wake()

    async def _leave(self) -> None:
        if self.manner.leaves == "disconnect":
            await self.request("disconnect", restart=False)
        assert self._writer is not None
        self._writer.close()
        self.over.set()
        await self._wake()

    async def _start(self, message: Message) -> None:
        answer = {"type": "response", "request_seq": message["seq"], "success": True}
        answer.update(seq=next(self._seq), command="startDebugging")
        if not self.manner.answers_late:
            self._send(answer)
        configuration = self.manner.gives_back(message["arguments"]["configuration"])
        one = Session(self.manner, self.port, self.breakpoints, configuration)
        await one.open()
        self.children.append(one)
        if self.manner.answers_late and not self.over.is_set():
            self._send(answer)
        await self._wake()

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()
