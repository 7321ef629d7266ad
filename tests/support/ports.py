"""Ports that tests may listen on."""

from __future__ import annotations

import contextlib
import os
import random
import socket

_given: set[int] = set()


def free_port() -> int:
    """A port that is free now, below the ephemeral range so that nobody is given it by chance."""
    # Each worker of pytest-xdist has ports of its own: between this answer and its use another
    # one could be given the same port.
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 10
    first = 20000 + worker * 1200
    for port in random.sample(range(first, first + 1200), 200):
        with socket.socket() as probe:
            if port in _given:
                continue
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                _given.add(port)
                return port
    raise AssertionError("no free port")
