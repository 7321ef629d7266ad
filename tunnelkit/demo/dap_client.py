"""A small Debug Adapter Protocol client: the editor of the demo, the benchmarks and the tests."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any

from tunnelkit.errors import DebugError
from tunnelkit.mux.dap_framing import DapReader, encode
from tunnelkit.mux.splice import no_delay
from tunnelkit.mux.tasks import cancel_all, first_of

Message = dict[str, Any]


class DapClient:
    """One editor session over TCP. `connect`, then requests and awaited events, then `close`."""

    def __init__(self, name: str = "tunnelkit") -> None:
        self.name = name
        self.events: list[Message] = []
        self._seq = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._arrived = asyncio.Event()
        self._over = False
        self._reader_task: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def connect(self, port: int, host: str = "127.0.0.1") -> None:
        """Connect to a session port. Raises OSError, for example if it is refused."""
        reader, self._writer = await asyncio.open_connection(host, port)
        no_delay(self._writer.get_extra_info("socket"))
        self._reader_task = asyncio.create_task(self._read(reader))

    async def attach(
        self,
        breakpoints: dict[str, list[int]],
        *,
        path_mappings: list[dict[str, str]] | None = None,
        timeout_s: float = 30.0,
        **arguments: object,
    ) -> None:
        """The whole handshake: initialize, attach, breakpoints (local path: lines), go."""
        async with asyncio.timeout(timeout_s):
            await self.request(
                "initialize",
                clientID="tunnelkit",
                clientName=self.name,
                adapterID="debugpy",
                pathFormat="path",
                linesStartAt1=True,
                columnsStartAt1=True,
            )
            attached = asyncio.create_task(
                self.request(
                    "attach",
                    **{
                        "justMyCode": True,
                        "pathMappings": path_mappings or [],
                        "connect": {"host": "127.0.0.1", "port": 0},
                        **arguments,
                    },
                )
            )
            initialized = asyncio.create_task(self.wait_event("initialized"))
            try:
                await first_of(attached, initialized)
                if attached.done():
                    # Refused: the adapter's answer comes after the configuration.
                    await attached
                await initialized
                for path, lines in breakpoints.items():
                    await self.request(
                        "setBreakpoints",
                        source={"path": path},
                        breakpoints=[{"line": line} for line in lines],
                    )
                await self.request("setExceptionBreakpoints", filters=[])
                await self.request("configurationDone")
                await attached
            finally:
                await cancel_all(attached, initialized)

    async def request(self, command: str, **arguments: object) -> Message:
        """Send a request and return the response's body. Raises DebugError if refused."""
        seq = next(self._seq)
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        if self._over:
            raise DebugError(f"{command}: the debug session is over")
        self._waiting[seq] = future
        assert self._writer is not None
        self._writer.write(
            encode({"seq": seq, "type": "request", "command": command, "arguments": arguments})
        )
        try:
            answer = await future
        finally:
            self._waiting.pop(seq, None)
        if not answer.get("success"):
            raise DebugError(f"{command}: {answer.get('message')}")
        body = answer.get("body")
        return body if isinstance(body, dict) else {}

    async def wait_event(
        self,
        name: str,
        predicate: Callable[[Message], bool] = lambda body: True,
        timeout_s: float = 30.0,
    ) -> Message:
        """Take the next (or an already arrived) event of that name; return its body.

        Raises DebugError if the session ends first, TimeoutError after `timeout_s`.
        """
        async with asyncio.timeout(timeout_s):
            while True:
                self._arrived.clear()
                for position, event in enumerate(self.events):
                    body = event.get("body") or {}
                    if event.get("event") == name and predicate(body):
                        del self.events[position]
                        return body
                if self._over:
                    raise DebugError(f"the debug session ended before {name!r}")
                await self._arrived.wait()

    async def stopped(self, timeout_s: float = 30.0) -> tuple[int, Message]:
        """Wait for a stop; return the thread's id and its top frame."""
        event = await self.wait_event("stopped", timeout_s=timeout_s)
        thread = int(event["threadId"])
        stack = await self.request("stackTrace", threadId=thread, startFrame=0, levels=1)
        return thread, stack["stackFrames"][0]

    async def evaluate(self, expression: str, frame: Message) -> str:
        """The text of an expression's value in a frame."""
        body = await self.request(
            "evaluate", expression=expression, frameId=frame["id"], context="watch"
        )
        return str(body["result"])

    async def finish(self, thread: int, timeout_s: float = 30.0) -> None:
        """Continue to the end of the program and hang up."""
        await self.request("continue", threadId=thread)
        await self.wait_event("terminated", timeout_s=timeout_s)
        await self.close()

    async def close(self) -> None:
        """Disconnect and close."""
        if self._writer is not None and not self._over:
            self._writer.write(
                encode(
                    {
                        "seq": next(self._seq),
                        "type": "request",
                        "command": "disconnect",
                        "arguments": {},
                    }
                )
            )
        await self.drop()

    async def drop(self) -> None:
        """Close without a goodbye, as a killed editor does."""
        if self._writer is not None:
            self._writer.close()
            try:
                await self._writer.wait_closed()
            except OSError:
                pass
        if self._reader_task is not None:
            await cancel_all(self._reader_task)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        frames = DapReader()
        try:
            while data := await reader.read(65536):
                for body in frames.feed(data):
                    self._take(json.loads(body))
        except OSError:
            pass
        finally:
            self._over = True
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(DebugError("the debug session ended"))
            self._arrived.set()

    def _take(self, message: Message) -> None:
        if message.get("type") == "response":
            future = self._waiting.get(int(message.get("request_seq", 0)))
            if future is not None and not future.done():
                future.set_result(message)
        elif message.get("type") == "event":
            self.events.append(message)
            self._arrived.set()
