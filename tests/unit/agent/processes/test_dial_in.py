"""The dial-in ports of loops that are over."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from tunnelkit.agent.processes import dial_in
from tunnelkit.agent.processes.dial_in import DialIn, HeldPorts, let_run
from tunnelkit.mux.dap_framing import DapReader


async def test_a_held_port_is_nobodys_and_hangs_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dial_in, "_HELD_PORTS", 2)
    taken: list[socket.socket] = []
    held, ports = HeldPorts(), []
    for _ in range(3):
        one = DialIn(taken.append)
        one.open()
        ports.append(one.port)
        held.add(one)
    for port in ports[1:]:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", port))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()
    assert taken == []
    held.close()
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)


async def test_a_debuggee_that_is_let_run_hears_an_editor_that_leaves() -> None:
    near, far = socket.socketpair()
    for end in (near, far):
        end.setblocking(False)
    let_run(near)
    loop, reader, heard = asyncio.get_running_loop(), DapReader(), list[str]()
    while len(heard) < 4:
        heard += [
            json.loads(body)["command"] for body in reader.feed(await loop.sock_recv(far, 4096))
        ]
    assert heard == ["initialize", "attach", "configurationDone", "disconnect"]
    assert near.fileno() != -1
    far.send(b"its answers")
    far.close()
    while near.fileno() != -1:
        await asyncio.sleep(0)


async def test_a_debuggee_that_stays_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dial_in, "_LET_RUN_S", 0.01)
    near, far = socket.socketpair()
    near.setblocking(False)
    let_run(near)
    while near.fileno() != -1:
        await asyncio.sleep(0.001)
    far.close()
