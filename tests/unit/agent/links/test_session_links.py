"""Who may have the agent: a client that was taken over from stays out, however it comes back."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from pathlib import Path

import pytest

from tests.support.descriptors import no_descriptors, refused_accepts
from tunnelkit.agent.links.session_links import SessionLinks
from tunnelkit.mux import listener as listener_module
from tunnelkit.mux.mux import Mux
from tunnelkit.wire.endpoint import Endpoint
from tunnelkit.wire.handshake import Hello, Status


def _make(endpoint: Endpoint) -> Mux:
    return Mux(endpoint, on_channel=lambda channel, header: None)


async def test_a_late_fresh_hello_of_a_superseded_client_takes_nothing_over(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        clients = SessionLinks(listener, _make)
        first, second = (Hello(Status.FRESH, os.urandom(16), bytes(16), 0, 1) for _ in range(2))
        for hello in (first, second):
            assert clients._judge(hello) is Status.FRESH
            clients._take_over(hello)
        assert clients._judge(first) is Status.SUPERSEDED
        assert clients._judge(second) is Status.RESUME


async def test_without_descriptors_no_core_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "EXHAUSTED_S", 2.0)
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as bridge:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        clients = SessionLinks(listener, _make)
        refused = asyncio.Event()
        failed = refused_accepts(monkeypatch, refused.set)
        clients.start()
        with no_descriptors():
            bridge.connect(str(tmp_path / "s"))
            async with asyncio.timeout(10):
                await refused.wait()
            for _ in range(50):
                await asyncio.sleep(0)
        assert failed == [errno.EMFILE]
        async with asyncio.timeout(10):
            while not clients._tasks:
                await asyncio.sleep(0.02)  # the peer is accepted after all
        await clients.stop("done")
