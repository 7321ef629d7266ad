"""A recorded session of VS Code, replayed; made by tests/vscode/record_session.py.

Each request is sent once the editor has had what it had then. Frames and variables have other
numbers in each run: a request has those of this run.
"""

from __future__ import annotations

import asyncio
import json
import re
import textwrap
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Any

from tests.support.tkrig import PATIENCE_S, Project, line_of
from tunnelkit.mux.dap_framing import DapReader, encode
from tunnelkit.mux.tasks import cancel_all

PROGRAM = textwrap.dedent(
    """\
    def scale(number):
        doubled = number * 2
        return doubled


    def never():
        return 0


    total = 0
    for number in range(3):
        total += scale(number)
    print("total", total, flush=True)
    """
)
STOP = line_of(PROGRAM, "doubled = number * 2")
NEVER = line_of(PROGRAM, "return 0")
_RECORDING = Path(__file__).parent / "data" / "vscode-session.jsonl"
#: Of an editor's numbers for frames and variables.
_REFERENCES = ("frameId", "variablesReference")

Message = dict[str, Any]
#: Called with each request before it is sent.
Before = Callable[[Message], Awaitable[None]]


async def _nothing(request: Message) -> None:
    pass


def recorded(project: Project) -> list[tuple[str, Message]]:
    """The recording, as if it were of this project: sender and message."""
    text = _RECORDING.read_text()
    text = text.replace("$LOCAL", str(project.dir)).replace("$NAME", project.dir.name)
    text = text.replace("$REMOTE", str(project.remote()).rstrip("/"))
    lines = [json.loads(line) for line in text.splitlines()]
    return [(line["from"], line["message"]) for line in lines]


def _kind(message: Message) -> tuple[str, object]:
    if message["type"] == "response":
        return "response", message["request_seq"]
    return "event", message["event"]


class Replay:
    """The editor's side of the recording at a session's port. heard: bodies as they came."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self._messages: list[Message] = []
        self._more = asyncio.Event()
        #: The numbers of this run, by those of the recording.
        self._numbers: dict[int, int] = {}

    async def run(self, project: Project, before: Before = _nothing) -> None:
        """Send all requests of the recording; return when it has been answered."""
        reader, writer = await asyncio.open_connection("127.0.0.1", project.port)
        reading = asyncio.create_task(self._read(reader))
        had: list[Message] = []
        try:
            for sender, message in recorded(project):
                if sender == "adapter":
                    had.append(message)
                    continue
                await self._until(had)
                await before(message)
                writer.write(encode(self._in_this_run(message)))
            await self._until(had)
        finally:
            writer.close()
            await cancel_all(reading)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        frames = DapReader()
        while data := await reader.read(65536):
            for body in frames.feed(data):
                self.heard.append(body)
                self._messages.append(json.loads(body))
            self._more.set()

    async def _until(self, had: list[Message]) -> None:
        """Wait for as many messages of each kind, and learn the numbers in them."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while missing := Counter(map(_kind, had)) - Counter(map(_kind, self._messages)):
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            raise AssertionError(f"no {missing} among {self._messages}") from None
        answers = {_kind(one): one for one in self._messages if one["type"] == "response"}
        for message in had:
            if (answer := answers.get(_kind(message))) is not None:
                pairs = zip(_numbers(message), _numbers(answer), strict=True)
                self._numbers.update(pairs)

    def _in_this_run(self, request: Message) -> Message:
        arguments = dict(request.get("arguments") or {})
        for key in _REFERENCES:
            if key in arguments:
                arguments[key] = self._numbers[arguments[key]]
        return {**request, "arguments": arguments} if arguments else request


def _numbers(message: Message) -> Iterator[int]:
    """The numbers of frames and variables in a response, in their order."""
    body = message.get("body") or {}
    for one in (*body.get("stackFrames", ()), *body.get("scopes", ()), *body.get("variables", ())):
        yield one.get("variablesReference", one.get("id"))


def differences(bodies: list[bytes], alone: list[bytes]) -> list[str]:
    """The lines of a diff between what an editor has heard alone and now."""
    pairs = zip(comparable(alone), comparable(bodies), strict=True)
    return [
        line for before, after in pairs for line in unified_diff(before, after, n=0, lineterm="")
    ]


def comparable(bodies: list[bytes]) -> tuple[list[str], list[str]]:
    """The responses in the order of their requests, and the events in theirs.

    Without what differs between two runs: numbers of messages, pids, ports; and numbers of frames
    and variables are counted in the order in which they appear.
    """
    known: dict[int, int] = {0: 0}
    responses: dict[int, str] = {}
    events: list[str] = []
    messages = [json.loads(body) for body in bodies]
    # Nobody has written them otherwise than debugpy does.
    assert bodies == [json.dumps(one).encode() for one in messages]
    # An answer and an event may overtake one another.
    messages.sort(key=lambda one: one.get("request_seq", 0))
    for message in messages:
        body = message.get("body") or {}
        if message.get("command") in ("next", "continue"):
            known = {0: 0}  # they are good until the program runs on
        for frame in body.get("stackFrames", ()):
            frame["id"] = known.setdefault(frame["id"], len(known))
        for one in (*body.get("scopes", ()), *body.get("variables", ())):
            number = one["variablesReference"]
            one["variablesReference"] = known.setdefault(number, len(known))
        text = re.sub(r'"(seq|systemProcessId|port)": \d+', r'"\1": 0', json.dumps(message))
        if message["type"] == "response":
            responses[message["request_seq"]] = text
        else:
            events.append(text)
    return list(responses.values()), events
