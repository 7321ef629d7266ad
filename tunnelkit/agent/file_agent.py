"""`agent files`: the mirror's end on a host without an allocation, for one ssh stream.

It speaks the wire over its stdin and stdout, serves the mirror and nothing else, and ends
with the stream: no daemon, and nothing to resume.
"""

import asyncio
import contextlib
import os
import platform
import signal
import socket
import sys
from typing import TYPE_CHECKING, Dict, Set

from tunnelkit import __version__
from tunnelkit.agent import zip_lease
from tunnelkit.agent.mirror.service import MirrorService
from tunnelkit.mux import rpc
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.fd_io import take_stdio, write_fd
from tunnelkit.mux.hello import NoHello, take_hello
from tunnelkit.mux.mux import Mux
from tunnelkit.mux.tasks import cancel_all, first_of, start
from tunnelkit.wire.endpoint import Endpoint
from tunnelkit.wire.errors import ProtocolError
from tunnelkit.wire.handshake import Hello, Status

if TYPE_CHECKING:
    from tunnelkit.messages.agent_calls import AgentInfo, Nothing

_HELLO_TIMEOUT_S = 20.0
#: A laptop that sleeps must not leave us on the login host.
_PING_S = 15.0
_SILENCE_S = 60.0
#: What was written last may still be in the stream's buffer.
_LINGER_S = 0.05


def main() -> int:
    """Serve until stdin ends; the exit status."""
    return asyncio.run(FileServer(*take_stdio()).run())


class FileServer:
    """One client on a pair of descriptors. `run` to its end."""

    def __init__(self, read_end: int, write_end: int) -> None:
        self._read_end = read_end
        self._write_end = write_end
        self._server_id = os.urandom(16)
        self._files = MirrorService()
        self._mux = Mux(Endpoint(client=False), self._opened, self._over)
        self._tasks: Set[asyncio.Task[None]] = set()
        self._ending = asyncio.Event()

    async def run(self) -> int:
        """Serve until the stream, or the conversation, ends."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._ending.set)
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)
        try:
            hello, rest = await take_hello(
                self._read_end, self._write_end, self._server_id, _HELLO_TIMEOUT_S
            )
            known = hello.status is Status.FRESH
            status = Status.FRESH if known else Status.UNKNOWN
            answer = self._mux.hello(status, hello.client_id, self._server_id)
            await write_fd(self._write_end, answer.encode())
            if not known:
                return 1
            zip_path = os.path.abspath(sys.argv[0])
            self._tasks.add(asyncio.ensure_future(zip_lease.keep(zip_path)))
            await self._converse(hello, rest)
            return 0
        except NoHello:
            return 1
        except (OSError, ProtocolError, asyncio.TimeoutError) as error:
            print(f"tunnelkit: {type(error).__name__}: {error}", file=sys.stderr)
            return 1
        finally:
            await self._files.close()
            await cancel_all(*self._tasks)

    async def _converse(self, hello: Hello, rest: bytes) -> None:
        lost = self._mux.attach(self._read_end, self._write_end, hello, rest)
        ending = asyncio.ensure_future(self._ending.wait())
        pinging = asyncio.ensure_future(self._mux.keepalive(_PING_S, _SILENCE_S))
        try:
            await first_of(lost, ending)
            await self._files.close()
            if not lost.done():
                self._mux.end("the file server was told to end")
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(asyncio.shield(lost), _LINGER_S)
        finally:
            await cancel_all(ending, pinging)
            self._mux.end("the stream ended")
            self._mux.detach("over")

    def _over(self, reason: str) -> None:
        self._ending.set()

    # -- what it offers ---------------------------------------------------

    def _opened(self, channel: Channel, header: Dict[str, object]) -> None:
        kind = header.get("type")
        if kind == "rpc":
            handlers: Dict[str, rpc.Handler] = {
                "info": info,
                "mirror.differing": self._files.differing,
                "mirror.verify": self._files.verify,
            }
            start(self._tasks, self._answer_calls(rpc.RpcPeer(channel, handlers)))
        elif kind == "mirror":
            self._files.serve(channel, header)
        else:
            channel.close({"error": f"a file server has no channel of type {kind!r}"})

    async def _answer_calls(self, peer: rpc.RpcPeer) -> None:
        with contextlib.suppress(rpc.RpcError):
            await peer.serve()


async def info(params: "Nothing") -> "AgentInfo":
    """RPC `info`: this host and this process."""
    return {
        "version": __version__,
        "node": socket.gethostname(),
        "hostname": socket.gethostname(),
        "pid": os.getpid(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "home": os.path.expanduser("~"),
    }
