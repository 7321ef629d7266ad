"""A local port that is not available: another program has it, or it is not for this user."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from tunnelkit import local_ports
from tunnelkit.errors import UsageError


def test_a_port_that_another_listener_has_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"local port {port} is taken"):
            local_ports.check_free(port)


def test_a_port_of_roots_is_not_called_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to end a program for it."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(local_ports, "_first_port", lambda: 1024)
    with pytest.raises(UsageError, match="local port 443 is for root") as caught:
        local_ports.check_free(443)
    assert "8443:443" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("number", "free"), [(errno.EADDRINUSE, False), (errno.EACCES, True), (errno.EPERM, True)]
)
def test_only_a_port_in_use_is_taken(
    monkeypatch: pytest.MonkeyPatch, number: int, free: bool
) -> None:
    def bind(sock: socket.socket, address: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(local_ports.socket, "socket", type("S", (socket.socket,), {"bind": bind}))
    assert local_ports.is_free(443) is free
