"""Four ways from a port of the laptop to a port of the node."""

from __future__ import annotations

import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from benchlib import peer
from benchlib.measure import Series, interleaved
from benchlib.rig import NODE, Rig, background, free_port, listens, wait_until

DIRECT, CHAINED, JUMP, FAST, WIRE = (
    "raw TCP (no ssh)",
    "ssh -L, chained",
    "ssh -J -L",
    "tk forward",
    "tk forward --wire",
)
DOWN, UP, ECHO, CONNECT = "down MB/s", "up MB/s", "echo us", "new connection ms"
BULK_BYTES = 64 * 1024 * 1024
_ECHOES = 300
_CONNECTIONS = 30
_COUNT = struct.Struct("!Q")


def run(rig: Rig, rounds: int) -> dict[str, dict[str, Series]]:
    """measure -> way -> one value a round."""
    found: dict[str, dict[str, Series]] = {name: {} for name in (DOWN, UP, ECHO, CONNECT)}
    with rig.session(), _peer(rig) as target, _ways(rig, target) as ports:
        for port in ports.values():
            transfer(port, b"D", BULK_BYTES // 8)  # windows and buffers have grown
            transfer(port, b"S", BULK_BYTES // 8)
        for way in interleaved(list(ports), rounds, "forwards"):
            port = ports[way]
            for measure, value in (
                (DOWN, transfer(port, b"D", BULK_BYTES)),
                (UP, transfer(port, b"S", BULK_BYTES)),
                (ECHO, echo_us(port)),
                (CONNECT, connect_ms(port)),
            ):
                found[measure].setdefault(way, Series()).values.append(value)
    return found


@contextmanager
def _peer(rig: Rig) -> Iterator[int]:
    """The server on the node, started by plain ssh; its port there."""
    text = Path(peer.__file__).read_text(encoding="utf-8")
    with_stdin = rig.info.home / "peer.py"
    with_stdin.write_text(text)
    argv = rig.ssh("--", NODE, "exec python3 peer.py")
    with background(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())


@contextmanager
def _ways(rig: Rig, target: int) -> Iterator[dict[str, int]]:
    """Every way open: name -> local port."""
    ports = {way: free_port() for way in (CHAINED, JUMP, FAST, WIRE)}
    middle = free_port()
    to = f"127.0.0.1:{target}"
    # The classic as people type it; `cat` ends it with our end of the connection.
    far = (
        f"ssh -o ExitOnForwardFailure=yes -N -L {middle}:{to} {NODE} & p=$!; "
        "cat >/dev/null; kill $p"
    )
    with ExitStack() as stack:
        stack.enter_context(
            background(
                rig.ssh(
                    *("-o", "ExitOnForwardFailure=yes"),
                    *("-L", f"127.0.0.1:{ports[CHAINED]}:127.0.0.1:{middle}"),
                    *("--", "login", far),
                )
            )
        )
        stack.enter_context(
            background(
                rig.ssh(
                    *("-N", "-o", "ExitOnForwardFailure=yes", "-J", "login"),
                    *("-L", f"127.0.0.1:{ports[JUMP]}:{to}", "--", NODE),
                )
            )
        )
        rig.tk("forward", f"{ports[FAST]}:{target}")
        rig.tk("forward", "--wire", f"{ports[WIRE]}:{target}")
        for port in (middle, *ports.values()):
            wait_until(lambda port=port: listens(port), f"port {port}")
        yield {DIRECT: target, **ports}


def _connect(port: int, wanted: bytes) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=60.0)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(wanted)
    return sock


def transfer(port: int, direction: bytes, count: int) -> float:
    """MB/s (10^6 bytes) of one transfer, from the first byte asked to the last one had."""
    with _connect(port, b"E") as warm:
        warm.sendall(b"x")
        warm.recv(1)
    with _connect(port, direction) as sock:
        start = time.perf_counter()
        sock.sendall(_COUNT.pack(count))
        if direction == b"S":
            _send(sock, count)
        else:
            _receive(sock, count)
        return count / (time.perf_counter() - start) / 1e6


def _send(sock: socket.socket, count: int) -> None:
    block = memoryview(bytes(peer.BUFFER_BYTES))
    while count:
        size = min(count, len(block))
        sock.sendall(block[:size])
        count -= size
    if sock.recv(1) != b"!":
        raise RuntimeError("the forward lost bytes")


def _receive(sock: socket.socket, count: int) -> None:
    buffer = bytearray(peer.BUFFER_BYTES)
    while count:
        size = sock.recv_into(buffer, min(count, len(buffer)))
        if not size:
            raise RuntimeError("the forward lost bytes")
        count -= size


def echo_us(port: int) -> float:
    """Median round trip of one byte on a connection that is there, microseconds."""
    with _connect(port, b"E") as sock:
        times = []
        for _ in range(_ECHOES):
            start = time.perf_counter()
            sock.sendall(b"x")
            sock.recv(1)
            times.append(time.perf_counter() - start)
    return median(times) * 1e6


def connect_ms(port: int) -> float:
    """Median time from connect to the first byte back through a new connection, ms."""
    times = []
    for _ in range(_CONNECTIONS):
        start = time.perf_counter()
        with _connect(port, b"E") as sock:
            sock.sendall(b"x")
            sock.recv(1)
            times.append(time.perf_counter() - start)
    return median(times) * 1e3
