"""Both links beside plain ssh, sshtunnel alone and asyncssh: two hops, one run."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from statistics import median

from benchlib import linkholder, peer
from benchlib.forwards import (
    _COUNT,
    CONNECT,
    DIRECT,
    DOWN,
    ECHO,
    JUMP,
    UP,
    _connect,
    _peer,
    connect_ms,
    echo_us,
    transfer,
)
from benchlib.measure import Series, interleaved, timed
from benchlib.rig import NODE, Rig, background, free_port, listens, wait_until

OPENSSH, PARAMIKO = "tk, link openssh", "tk, link paramiko"
SSHTUNNEL, ASYNCSSH = "sshtunnel alone, nested", "asyncssh, nested"
COMMAND = "command ms"
MESSAGE = "new connection, first message ms"
_HELD = {
    OPENSSH: linkholder.OPENSSH,
    PARAMIKO: linkholder.PARAMIKO,
    SSHTUNNEL: linkholder.SSHTUNNEL,
    ASYNCSSH: linkholder.ASYNCSSH,
}
BULK_BYTES = 48 * 1024 * 1024
_COMMANDS = 5
_MESSAGES = 15

Measures = dict[str, dict[str, Series]]
Holder = subprocess.Popen[bytes]


def run(rig: Rig, rounds: int) -> tuple[Measures, Measures]:
    """measure -> way -> one value a round: of forwards, and of commands."""
    found: Measures = {name: {} for name in (DOWN, UP, ECHO, CONNECT, MESSAGE)}
    commands: Measures = {COMMAND: {}}

    def add(to: Measures, measure: str, way: str, value: float) -> None:
        to[measure].setdefault(way, Series()).values.append(value)

    with _peer(rig) as target, _ways(rig, target) as (ports, holders):
        for port in ports.values():
            transfer(port, b"D", BULK_BYTES // 8)  # windows and buffers have grown
            transfer(port, b"S", BULK_BYTES // 8)
        for way in interleaved(list(ports), rounds, "links"):
            port = ports[way]
            add(found, DOWN, way, transfer(port, b"D", BULK_BYTES))
            add(found, UP, way, transfer(port, b"S", BULK_BYTES))
            add(found, ECHO, way, echo_us(port))
            add(found, CONNECT, way, connect_ms(port))
            add(found, MESSAGE, way, _message_ms(port))
            if way == JUMP:
                argv = rig.ssh("-J", "login", "--", NODE, "true")
                add(commands, COMMAND, way, timed(lambda: subprocess.run(argv, check=True)) * 1e3)  # noqa: B023
            elif way in holders and way != SSHTUNNEL:
                add(commands, COMMAND, way, _command_ms(holders[way]))
    return found, commands


def _message_ms(port: int) -> float:
    """Median time from connect to the answer to one message, ms. Header and body are sent by
    themselves, both ways: where Nagle's algorithm is left on, the second waits for the first
    to be acknowledged."""
    times, body = [], b"hello"
    for _ in range(_MESSAGES):
        start = time.perf_counter()
        with _connect(port, b"M") as sock:
            sock.sendall(_COUNT.pack(len(body)))
            time.sleep(peer.BETWEEN_S)
            sock.sendall(body)
            left = _COUNT.size + len(body)
            while left:
                left -= len(sock.recv(left))
            times.append(time.perf_counter() - start)
    return median(times) * 1e3


def _command_ms(holder: Holder) -> float:
    assert holder.stdin is not None and holder.stdout is not None
    times = []
    for _ in range(_COMMANDS):
        holder.stdin.write(b"run\n")
        holder.stdin.flush()
        times.append(float(holder.stdout.readline()))
    return median(times)


@contextmanager
def _ways(rig: Rig, target: int) -> Iterator[tuple[dict[str, int], dict[str, Holder]]]:
    """Every way open: name -> local port; name -> the process that holds it."""
    held = dict(_HELD)
    if find_spec("asyncssh") is None:
        print("  links: no asyncssh here (scripts/setup --bench): left out", file=sys.stderr)
        del held[ASYNCSSH]
    ports = {way: free_port() for way in (JUMP, *held)}
    holders: dict[str, Holder] = {}
    with ExitStack() as stack:
        jump = rig.ssh(
            *("-N", "-o", "ExitOnForwardFailure=yes", "-J", "login"),
            *("-L", f"127.0.0.1:{ports[JUMP]}:127.0.0.1:{target}", "--", NODE),
        )
        stack.enter_context(background(jump))
        for way, name in held.items():
            words = [name, str(rig.info.ssh_config), str(rig.project.parent), NODE]
            argv = [sys.executable, "-m", "benchlib.linkholder", *words]
            holder = stack.enter_context(
                background([*argv, str(ports[way]), str(target)], stdout=subprocess.PIPE)
            )
            assert holder.stdout is not None
            if holder.stdout.readline() != b"ready\n":
                raise RuntimeError(f"{way}: it did not come up")
            holders[way] = holder
        for port in ports.values():
            wait_until(lambda port=port: listens(port), f"port {port}")
        yield {DIRECT: target, **ports}, holders
