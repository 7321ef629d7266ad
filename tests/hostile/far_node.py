"""The program of a hostile node: it stands between the session and the real agent, and lies.

    far_node.py DIRECTORY PYTHON -I -S ZIP attach NAME

What runs on the node stays as it is, so that a session comes up, until an order comes at the
socket in DIRECTORY: a line of JSON that names an attack. The answer is a line, once all is out.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tunnelkit.mux.channel import Channel
from tunnelkit.mux.fd_io import read_fd, write_fd
from tunnelkit.mux.loop_records import EVENT, LoopRecord, event_payload
from tunnelkit.mux.mux import Mux
from tunnelkit.session.agent.exec_relay import pump
from tunnelkit.wire.endpoint import Endpoint
from tunnelkit.wire.frames import FIRST_UNNUMBERED
from tunnelkit.wire.frames import header as frame_header
from tunnelkit.wire.handshake import NO_ID, Hello, HelloReader, Status

SOCKET = "orders.sock"
#: Its presence has the agent's introduction replaced.
LIES = "lies"
EVIL = "\x1b]0;OWNED\x07\x1b[2J\rtk: ready, press F5\x1b[8m\u202e\x9b2J"
_BIG = b"x" * 60_000


class Liar:
    """Two conversations: with the session, as if we were the agent, and with the agent."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.near = Mux(Endpoint(client=False), self._opened)
        self.far = Mux(Endpoint(client=True), self._far_opened, lambda why: self.near.end(why))
        self.channels: dict[str, Channel] = {}
        self.raw_fd = -1
        self._tasks: list[asyncio.Task[None]] = []
        self._to_agent: dict[str, asyncio.Task[None]] = {}

    def _opened(self, channel: Channel, header: dict[str, Any]) -> None:
        kind = str(header.get("type"))
        self.channels[kind] = channel
        agents = self.far.open(header)
        self._to_agent[kind] = self._spawn(_carry(channel, agents))
        lies = kind == "rpc" and (self.directory / LIES).exists()
        self._spawn(_carry_lies(agents, channel) if lies else _carry(agents, channel))

    def _far_opened(self, channel: Channel, header: dict[str, Any]) -> None:
        if header.get("type") == "info" and (self.directory / LIES).exists():
            header = {**header, "info": _replaced(header["info"])}
        ours = self.near.open(header)
        self._spawn(_carry(channel, ours))
        self._spawn(_carry(ours, channel))

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.append(task)
        return task

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry out one order."""
        order = json.loads(await reader.readline())
        await getattr(self, f"attack_{order.pop('attack')}")(**order)
        writer.write(b"done\n")
        await writer.drain()
        writer.close()

    # -- the attacks

    async def attack_calls(self, count: int, size: int) -> None:
        """Calls whose answers are never taken, with ids and names of that size."""
        self._to_agent["rpc"].cancel()
        channel = self.channels["rpc"]
        for _ in range(count):
            await channel.write(_message({"id": "i" * size, "call": "n" * size}))
            if channel.is_over:
                return

    async def attack_answers(self, count: int) -> None:
        """Answers never asked for, notices of no meaning, the agent's end again and again."""
        for number in range(count):
            self.channels["rpc"].write_nowait(_message({"id": 10_000 + number, "result": EVIL}))
            for notice in ("ending", "time-limit", "none"):
                told = {"notice": notice, "params": {"reason": f"{EVIL}{number}", "left_s": EVIL}}
                await self.channels["rpc"].write(_message(told))

    async def attack_streams(self, header: dict[str, Any], count: int, size: int) -> None:
        """Channels that nobody asked for, each full of bytes, closed where the session lets us."""
        for number in range(count):
            channel = self.near.open({**header, "number": number})
            for _ in range(size // len(_BIG)):
                channel.write_nowait(_BIG)
            await asyncio.sleep(0)
            if number % 500 == 499:
                await asyncio.wait_for(channel.closed(), 60)

    async def attack_same_time(self, headers: list[dict[str, Any]], data: str, size: int) -> None:
        """Channels that stay, with these bytes, then more of them."""
        for number, header in enumerate(headers):
            channel = self.near.open(header)
            channel.write_nowait(data.encode())
            for _ in range(size // len(_BIG)):
                if channel.is_over:
                    break
                await channel.write(_BIG)
            if number % 100 == 99:
                await asyncio.sleep(0.01)

    async def attack_events(self, events: list[Any]) -> None:
        """Events of a loop; what is no object goes as the bytes of an event."""
        for event in events:
            fields = {key: value for key, value in event.items() if key != "event"}
            payload = event_payload(event["event"], **fields)
            await self.channels["loop-log"].write(LoopRecord(EVENT, 10**6, payload).encode())

    async def attack_history(self, size: int, count: int) -> None:
        """Records as large as they may be."""
        for number in range(count):
            record = LoopRecord(EVENT, number, event_payload("none", text="x" * size))
            await self.channels["loop-log"].write(record.encode())

    async def attack_length(self) -> None:
        """A record of 4 GiB."""
        await self.channels["loop-log"].write(struct.pack("!BQI", 1, 0, 2**32 - 1))

    async def attack_bye(self) -> None:
        """The end of the conversation, for a reason that a terminal would obey."""
        self.near.end(EVIL)

    async def attack_frames(self, frames: list[tuple[int, str, int, str]], count: int) -> None:
        """Frames of another time: kind, type of the channel, number beside the last that was
        sent (0 and below: it was sent already), payload."""
        last = self.near.endpoint._outbound.sent_seq
        ids = {kind: channel.id for kind, channel in self.channels.items()}
        block = b""
        for kind, channel, offset, payload in frames:
            seq = max(1, last + offset) if kind < FIRST_UNNUMBERED else max(0, offset)
            data = payload.encode()
            block += frame_header(kind, ids.get(channel, 2**32 - 2), seq, len(data)) + data
        for _ in range(count):
            await write_fd(self.raw_fd, block)

    async def attack_noise(self) -> None:
        """Bytes that are no frame."""
        os.write(self.raw_fd, os.urandom(60_000))


async def _carry(source: Channel, sink: Channel) -> None:
    await pump(source, sink)
    sink.close(await source.closed())


def _replaced(said: dict[str, Any]) -> dict[str, Any]:
    return {key: EVIL if isinstance(value, str) else value for key, value in said.items()}


async def _carry_lies(source: Channel, sink: Channel) -> None:
    """The agent's answers, each text in them replaced."""
    buffer = b""
    while data := await source.read():
        buffer += data
        while len(buffer) >= 4 and len(buffer) >= (end := 4 + struct.unpack("!I", buffer[:4])[0]):
            message = json.loads(buffer[4:end])
            if isinstance(message.get("result"), dict):
                message["result"] = _replaced(message["result"])
            await sink.write(_message(message))
            buffer = buffer[end:]


def _message(value: Any) -> bytes:
    payload = json.dumps(value).encode()
    return struct.pack("!I", len(payload)) + payload


async def _hello(fd: int) -> tuple[Hello, bytes]:
    reader = HelloReader()
    while True:
        data = await read_fd(fd)
        assert data, "no hello"
        hello = reader.feed(data)
        if hello is not None:
            return hello, reader.rest


async def main(directory: Path, argv: list[str]) -> None:
    """Attach to the agent as `argv` would, and stand between."""
    liar = Liar(directory)
    ours, theirs = socket.socketpair()
    agent = await asyncio.create_subprocess_exec(*argv, stdin=theirs, stdout=theirs)
    theirs.close()
    ours.setblocking(False)
    for fd in (0, 1):
        os.set_blocking(fd, False)
    window = liar.far.endpoint.window_bytes
    hello = Hello(Status.FRESH, os.urandom(16), NO_ID, 0, window)
    await write_fd(ours.fileno(), hello.encode())
    agents, rest = await _hello(ours.fileno())
    far_lost = liar.far.attach(ours.fileno(), ours.fileno(), agents, rest)
    sessions, rest = await _hello(0)
    known = Status.FRESH if sessions.status is Status.FRESH else Status.UNKNOWN
    answer = Hello(known, sessions.client_id, os.urandom(16), 0, window)
    await write_fd(1, answer.encode())
    if known is Status.UNKNOWN:
        return
    liar.raw_fd = 1
    near_lost = liar.near.attach(0, 1, sessions, rest)
    path = directory / SOCKET
    path.unlink(missing_ok=True)
    async with await asyncio.start_unix_server(liar.serve, path, limit=64 << 20):
        await asyncio.wait([near_lost, far_lost], return_when=asyncio.FIRST_COMPLETED)
    agent.kill()
    await agent.wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2:]))
