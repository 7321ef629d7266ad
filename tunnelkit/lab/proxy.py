"""A stand-in for distance and bad networks: `python -m tunnelkit.lab.proxy ...`.

Sits in front of login's sshd. Every byte waits half the round-trip time in a
queue with time stamps, so that distance costs latency and not throughput. Over
a 0600 Unix socket (one command a line, one answer a line) it takes:

  cut      black hole: connections stay, nothing passes, new ones hang
  reset    connections are reset and new ones refused
  heal     all well again; what a black hole held back is delivered
  rtt MS   round-trip time from now on
  status   {"link", "rtt_ms", "connections", "bytes_up", "bytes_down"} as JSON; the bytes are
           those that have come in from the laptop's side, and for it, since the start
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import struct
import sys
from collections import deque
from pathlib import Path

from tunnelkit.errors import TunnelkitError, UsageError

#: What may be under way in one direction: the bandwidth-delay product of 400 MB/s at 300 ms.
_IN_FLIGHT_BYTES = 64 << 20


class _Pipe(asyncio.Protocol):
    """One side of a connection: what it receives leaves on `peer`, `delay_s` later."""

    def __init__(self, proxy: Proxy, *, up: bool) -> None:
        self._proxy = proxy
        self._up = up
        self.transport: asyncio.Transport | None = None
        self.peer: _Pipe | None = None
        self._queue: deque[tuple[float, bytes]] = deque()  # b"" stands for EOF
        self._queued_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._last_due = 0.0
        self._peer_full = False
        self._eof_received = False
        self._eof_delivered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._proxy.track(self)

    def data_received(self, data: bytes) -> None:
        self._proxy.count(len(data), up=self._up)
        if not (self._queue or self._proxy.delay_s or self._proxy.cut) and self._can_send():
            assert self.peer and self.peer.transport
            self.peer.transport.write(data)
            return
        self._enqueue(data)
        self._queued_bytes += len(data)
        self.update_reading()

    def eof_received(self) -> bool:
        self._eof_received = True
        self._enqueue(b"")
        return True  # the other direction lives on

    def _enqueue(self, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        # Never before what came earlier, whatever happens to the delay meanwhile.
        self._last_due = max(self._last_due, loop.time() + self._proxy.delay_s)
        self._queue.append((self._last_due, data))
        self.deliver()

    def deliver(self) -> None:
        """Hand on all that is due; come back for the rest."""
        loop = asyncio.get_running_loop()
        if self._timer:
            self._timer.cancel()
            self._timer = None
        while self._queue and self._can_send():
            due, data = self._queue[0]
            if due > loop.time():
                self._timer = loop.call_at(due, self.deliver)
                break
            self._queue.popleft()
            assert self.peer and self.peer.transport
            if data:
                self._queued_bytes -= len(data)
                self.peer.transport.write(data)
            else:
                with contextlib.suppress(OSError):  # that end has just been reset
                    self.peer.transport.write_eof()
                self._eof_delivered = True
                self._close_if_done()
        self.update_reading()

    def _can_send(self) -> bool:
        peer = self.peer
        ready = peer is not None and peer.transport is not None and not peer.transport.is_closing()
        return ready and not self._peer_full and not self._proxy.cut

    def update_reading(self) -> None:
        """Read while there is room. In a black hole leave bytes to the kernel, as a network
        does: the sender's window fills up and it waits."""
        if self.transport is None or self.transport.is_closing() or self._eof_received:
            return
        waiting = self.peer is None and self._queued_bytes > 0
        full = self._queued_bytes >= _IN_FLIGHT_BYTES or waiting
        # With no delay to model, a full peer is back-pressure at once.
        if full or self._proxy.cut or (self._peer_full and not self._proxy.delay_s):
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        if self.peer:
            self.peer._peer_full = True
            self.peer.update_reading()

    def resume_writing(self) -> None:
        if self.peer:
            self.peer._peer_full = False
            self.peer.deliver()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer:
            self._timer.cancel()
        self._proxy.forget(self)
        if self.peer and not (self._eof_delivered and self.peer._eof_delivered):
            self.peer.abort()

    def _close_if_done(self) -> None:
        """Close both sides once each has had the other's last byte."""
        assert self.peer and self.peer.transport and self.transport
        if self.peer._eof_delivered:
            self.peer.transport.close()
            self.transport.close()

    def abort(self) -> None:
        """Close with a RST, as a reset link does."""
        if self.transport is None or self.transport.is_closing():
            return
        sock = self.transport.get_extra_info("socket")
        if sock is not None and sock.fileno() >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


class Proxy:
    """The proxy's state: its connections, and the condition of the link."""

    def __init__(self, listen: tuple[str, int], upstream: tuple[str, int], rtt_s: float) -> None:
        self._listen = listen
        self._upstream = upstream
        self._server: asyncio.Server | None = None
        self._pipes: set[_Pipe] = set()
        self._dialling: set[asyncio.Task[None]] = set()
        self._healed = asyncio.Event()
        self._healed.set()
        self._bytes_up = self._bytes_down = 0
        self.delay_s = rtt_s / 2

    @property
    def cut(self) -> bool:
        """True while the link is cut: connections stay open and carry nothing."""
        return not self._healed.is_set()

    def track(self, pipe: _Pipe) -> None:
        """Apply delay and cuts to a pipe, until `forget`."""
        self._pipes.add(pipe)

    def forget(self, pipe: _Pipe) -> None:
        """Stop tracking a pipe that has ended."""
        self._pipes.discard(pipe)

    def count(self, size: int, *, up: bool) -> None:
        """Note bytes that came in."""
        if up:
            self._bytes_up += size
        else:
            self._bytes_down += size

    async def open(self) -> None:
        """Accept connections. Raises OSError if the port is taken."""
        if self._server is None:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(self._accepted, *self._listen, backlog=200)

    def _accepted(self) -> _Pipe:
        client = _Pipe(self, up=True)
        task = asyncio.get_running_loop().create_task(self._dial(client))
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)
        return client

    async def _dial(self, client: _Pipe) -> None:
        """Connect to upstream when a handshake over that distance would have come through."""
        await asyncio.sleep(3 * self.delay_s)
        await self._healed.wait()
        server = _Pipe(self, up=False)
        try:
            await asyncio.get_running_loop().create_connection(lambda: server, *self._upstream)
        except OSError:
            client.abort()
            return
        if client.transport is None or client.transport.is_closing():
            server.abort()
            return
        client.peer, server.peer = server, client
        client.deliver()
        server.deliver()

    def set_cut(self, cut: bool) -> None:
        """Make or end the black hole."""
        if cut:
            self._healed.clear()
        else:
            self._healed.set()
        for pipe in list(self._pipes):
            pipe.deliver()

    def reset(self) -> None:
        """Drop every connection and refuse new ones."""
        if self._server:
            self._server.close()
            self._server = None
        for task in list(self._dialling):
            task.cancel()
        for pipe in list(self._pipes):
            pipe.abort()
        self._healed.set()

    def set_rtt(self, rtt_s: float) -> None:
        """Set the round-trip time in seconds, half of it each way."""
        self.delay_s = rtt_s / 2
        for pipe in list(self._pipes):
            pipe.update_reading()

    def status(self) -> dict[str, object]:
        """Return link (up, cut or reset), rtt_ms, connections, bytes_up and bytes_down."""
        link = "cut" if self.cut else "up" if self._server else "reset"
        # Each connection has two ends, or one while it is being dialled.
        clients = {frozenset((id(pipe), id(pipe.peer))) for pipe in self._pipes}
        rtt_ms = self.delay_s * 2000
        return {
            "link": link,
            "rtt_ms": rtt_ms,
            "connections": len(clients),
            "bytes_up": self._bytes_up,
            "bytes_down": self._bytes_down,
        }

    async def command(self, line: str) -> str:
        """Carry out one line of the control protocol; return the answer."""
        word, _, value = line.strip().partition(" ")
        if word == "cut":
            await self.open()
            self.set_cut(True)
        elif word == "reset":
            self.reset()
        elif word == "heal":
            await self.open()
            self.set_cut(False)
        elif word == "rtt":
            self.set_rtt(parse_rtt_ms(value) / 1000)
        elif word != "status":
            raise UsageError(f"unknown command {word!r}")
        return json.dumps(self.status())

    async def control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client of the control socket."""
        try:
            while line := await reader.readline():
                try:
                    answer = await self.command(line.decode("utf-8", "replace"))
                except (OSError, UsageError) as error:
                    answer = json.dumps({"error": str(error)})
                writer.write(answer.encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):
            pass  # the client went away, or sent an endless line
        finally:
            writer.close()


def parse_rtt_ms(text: str) -> float:
    """A round-trip time in milliseconds, 0 to 10 000; raise UsageError on anything else."""
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value <= 10_000:
        raise UsageError(f"{text!r} is not a round-trip time", hint="milliseconds, 0 to 10000")
    return value


def tell(control: Path, line: str, *, timeout_s: float = 5.0) -> dict[str, object]:
    """Send one command to a running proxy; return its status. Raises TunnelkitError."""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(timeout_s)
            client.connect(str(control))
            client.sendall(line.encode() + b"\n")
            answer = client.makefile("rb").readline()
        reply: dict[str, object] = json.loads(answer)
    except (OSError, ValueError) as error:
        raise TunnelkitError(
            "the lab's proxy does not answer", cause=str(error), hint="see `tk lab status`"
        ) from None
    if "error" in reply:
        raise TunnelkitError(
            f"the lab's proxy refused {line!r}",
            cause=str(reply["error"]),
            hint="see `tk lab --help`",
        )
    return reply


async def serve(
    listen: tuple[str, int], upstream: tuple[str, int], control: Path, rtt_s: float
) -> None:
    """Run until TERM or INT."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    proxy = Proxy(listen, upstream, rtt_s)
    await proxy.open()
    os.umask(0o077)
    server = await asyncio.start_unix_server(proxy.control, control)
    try:
        await stop.wait()
    finally:
        server.close()
        proxy.reset()


def _endpoint(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def main() -> int:
    """Run the proxy until it is terminated; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tunnelkit.lab.proxy")
    parser.add_argument("--listen", type=_endpoint, required=True, metavar="HOST:PORT")
    parser.add_argument("--upstream", type=_endpoint, required=True, metavar="HOST:PORT")
    parser.add_argument("--control", type=Path, required=True, metavar="SOCKET")
    parser.add_argument("--rtt", type=parse_rtt_ms, default=0.0, metavar="MS")
    args = parser.parse_args()
    asyncio.run(serve(args.listen, args.upstream, args.control, args.rtt / 1000))
    return 0


if __name__ == "__main__":
    sys.exit(main())
