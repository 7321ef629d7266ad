"""A process that has no file descriptor left."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Let this process open no file while the context lasts."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = os.open("/", os.O_RDONLY)
    os.close(probe)
    resource.setrlimit(resource.RLIMIT_NOFILE, (probe, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def refused_accepts(monkeypatch: pytest.MonkeyPatch, on_refused: Callable[[], None]) -> list[int]:
    """Return the errno of each `accept` that fails from now on; it grows."""
    accept = socket.socket.accept
    failed: list[int] = []

    def noting(sock: socket.socket) -> tuple[socket.socket, object]:
        try:
            return accept(sock)
        except OSError as error:
            failed.append(error.errno or 0)
            on_refused()
            raise

    monkeypatch.setattr(socket.socket, "accept", noting)
    return failed
