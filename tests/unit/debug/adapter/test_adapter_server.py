"""An adapter goes on accepting, whatever became of the connections before."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
from pathlib import Path

from tests.support.processes import until
from tests.unit.debug.adapter.adapter_rig import adapter_rig


def listener(port: int) -> int:
    """The pid of the process that listens on 127.0.0.1:`port`."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    (inode,) = (row[9] for row in rows if row[1] == f"0100007F:{port:04X}" and row[3] == "0A")
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(link) == f"socket:[{inode}]":
                return int(link.parts[2])
        except OSError:
            continue  # it has closed it, or ended
    raise AssertionError(f"nobody listens on {port}")


def stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def reset(port: int) -> None:
    """Connect, and reset the connection."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def test_it_serves_the_next_one_after_a_connection_that_was_reset() -> None:
    async with adapter_rig() as rig:
        port = rig.adapter.client_port
        pid = listener(port)
        os.kill(pid, signal.SIGSTOP)  # so that it accepts connections that are gone
        await asyncio.to_thread(until, lambda: stopped(pid), "stopped")
        for _ in range(3):
            reset(port)
        os.kill(pid, signal.SIGCONT)
        # Some of these are gone while it greets them.
        for _ in range(100):
            reset(port)
        await rig.editor.connect(port)
        assert await rig.editor.request("initialize", adapterID="debugpy")
