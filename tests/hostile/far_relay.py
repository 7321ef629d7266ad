"""The program of a hostile relay: it speaks the wire, and tells the agent what a test wants.

    far_relay.py ANSWERS COUNT HEADER...

ANSWERS: JSON, what each call is answered, by its name. Once it was asked for a port it opens a
channel with each HEADER (JSON) COUNT times over.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tunnelkit.mux import rpc
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.fd_io import read_fd, write_fd
from tunnelkit.mux.mux import Mux
from tunnelkit.wire.endpoint import Endpoint
from tunnelkit.wire.handshake import Hello, HelloReader, Status


class Liar:
    """One conversation with an agent."""

    def __init__(self, answers: dict[str, Any], count: int, headers: list[Any]) -> None:
        self.mux = Mux(Endpoint(client=False), self._opened)
        self._answers = answers
        self._headers = headers * count
        self._tasks: list[asyncio.Task[None]] = []

    def _opened(self, channel: Channel, header: dict[str, Any]) -> None:
        handlers = {name: self._answer(name) for name in self._answers}
        self._tasks.append(asyncio.ensure_future(rpc.RpcPeer(channel, handlers).serve()))

    def _answer(self, name: str) -> rpc.Handler:
        async def answer(params: dict[str, Any]) -> Any:
            if name == "dialin.open":
                asyncio.get_running_loop().call_later(0.0, self._visit)
            return self._answers[name]

        return answer

    def _visit(self) -> None:
        for header in self._headers:
            self.mux.open(header).write_nowait(b"hello")


async def main(answers: str, count: str, *headers: str) -> None:
    """Serve until the agent hangs up."""
    liar = Liar(json.loads(answers), int(count), [json.loads(one) for one in headers])
    for fd in (0, 1):
        os.set_blocking(fd, False)
    reader = HelloReader()
    while (hello := reader.feed(await read_fd(0))) is None:
        pass
    answer = Hello(Status.FRESH, hello.client_id, b"r" * 16, 0, liar.mux.endpoint.window_bytes)
    await write_fd(1, answer.encode())
    await liar.mux.attach(0, 1, hello, reader.rest)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
