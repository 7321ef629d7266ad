"""A debuggee's connection in the agent."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any, cast

from tests.unit.agent.loop_rig import DEADLINE_S
from tunnelkit.agent.debug.debuggee_connections import Debuggee
from tunnelkit.mux.dap_framing import MAX_BODY_BYTES, DapReader, encode
from tunnelkit.mux.tasks import cancel_all


class Session:
    """A session's channel: what goes up is kept, nothing comes down. has_room: it takes more."""

    def __init__(self) -> None:
        self.up: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.has_room = asyncio.Event()
        self.has_room.set()
        self.is_over = False
        self._frames = DapReader()

    def write_soon(self, data: bytes) -> None:
        for body in self._frames.feed(data):
            self.up.put_nowait(json.loads(body))

    def is_full(self) -> bool:
        return not self.has_room.is_set()

    async def room(self) -> None:
        await self.has_room.wait()

    async def read(self) -> bytes:
        await asyncio.Event().wait()
        return b""

    def close(self) -> None:
        self.is_over = True


def joined() -> tuple[Debuggee, Session, socket.socket]:
    """A debuggee's connection, the session that has it, and the debuggee's end."""
    listener = socket.create_server(("127.0.0.1", 0))
    theirs = socket.create_connection(listener.getsockname())
    ours, _ = listener.accept()
    listener.close()
    for sock in (ours, theirs):
        sock.setblocking(False)
    debuggee, session = Debuggee(ours, 1, 1, cast(Any, None)), Session()
    debuggee.offer(cast(Any, session))
    return debuggee, session, theirs


async def test_a_session_that_is_behind_is_sent_no_more() -> None:
    """The debuggee's socket fills instead: it must not fill the agent's memory."""
    debuggee, session, theirs = joined()
    session.has_room.clear()
    running = asyncio.create_task(debuggee.run())
    loop, output = asyncio.get_running_loop(), encode({"type": "event", "event": "output"})
    try:
        async with asyncio.timeout(DEADLINE_S):
            await loop.sock_sendall(theirs, output)
            await session.up.get()
            sending = asyncio.create_task(loop.sock_sendall(theirs, output * 100_000))
            for _ in range(100):
                await asyncio.sleep(0)
            # What one read brings, and no more of it in later rounds.
            assert session.up.qsize() < 3_000
            assert not sending.done()
            session.has_room.set()
            for _ in range(100_000):
                await session.up.get()
            await sending
    finally:
        await cancel_all(running)
        theirs.close()


async def test_what_is_no_message_ends_the_connection() -> None:
    debuggee, session, theirs = joined()
    running = asyncio.create_task(debuggee.run())
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.get_running_loop().sock_sendall(theirs, b"GET / HTTP/1.1\r\n\r\n")
        await running
    assert session.is_over
    theirs.close()


async def test_a_value_that_is_too_long_does_not_end_the_connection() -> None:
    """pydevd would let the program go, and the session would end it."""
    debuggee, session, theirs = joined()
    running = asyncio.create_task(debuggee.run())
    send = asyncio.get_running_loop().sock_sendall
    head = b'{"type": "response", "request_seq": 7, "success": true, "command": "evaluate", '
    try:
        async with asyncio.timeout(DEADLINE_S):
            await send(theirs, b"Content-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1))
            await send(theirs, head + bytes(MAX_BODY_BYTES + 1 - len(head)))
            await send(theirs, encode({"type": "event", "event": "thread"}))
            refused, event = await session.up.get(), await session.up.get()
        assert (refused["request_seq"], refused["success"]) == (7, False)
        assert event["event"] == "thread"
        assert not running.done()
    finally:
        await cancel_all(running)
        theirs.close()
