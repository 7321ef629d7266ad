"""The dial-in ports of loops that are over."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tunnelkit.agent.processes import dial_in
from tunnelkit.agent.processes.dial_in import DialIn, HeldPorts


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
