"""Relays without a Slurm: each "node" is a process of this machine that goes by that name."""

from __future__ import annotations

import asyncio
import ctypes
import os
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tunnelkit import agent_zip
from tunnelkit.agent.links import socket_dir
from tunnelkit.agent.nodes.relay_pool import RelayPool
from tunnelkit.agent.processes.table import ProcessTable

_SET_CHILD_SUBREAPER = 36
DEADLINE_S = 30.0


def local_step(node: str, argv: list[str]) -> list[str]:
    """Runs it here, under that node's name."""
    return ["env", f"SLURMD_NODENAME={node}", *argv]


@asynccontextmanager
async def process_table() -> AsyncIterator[ProcessTable]:
    """A table in the test's own process, which is no subreaper afterwards."""
    table = ProcessTable()
    table.start()
    try:
        yield table
    finally:
        await table.end_all(0.0)
        asyncio.get_running_loop().remove_signal_handler(signal.SIGCHLD)
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@dataclass
class Rig:
    """An agent's relays, and what they have brought."""

    relays: RelayPool
    table: ProcessTable
    name: str
    come: asyncio.Queue[tuple[socket.socket, dict[str, Any]]] = field(default_factory=asyncio.Queue)
    lost: asyncio.Queue[tuple[str, str]] = field(default_factory=asyncio.Queue)
    sockets: list[socket.socket] = field(default_factory=list)

    def debuggee(self, sock: socket.socket, identity: dict[str, Any]) -> None:
        self.sockets.append(sock)
        self.come.put_nowait((sock, identity))

    def gone(self, node: str, why: str) -> None:
        self.lost.put_nowait((node, why))

    async def open(self, loop_id: int) -> dict[str, int]:
        return await self.relays.open(loop_id, self.debuggee, self.gone)

    async def dial(self, port: int) -> tuple[socket.socket, socket.socket, dict[str, Any]]:
        """Dial in as a debuggee would: its socket, the agent's, and who the agent thinks it is."""
        client = socket.socket()
        client.setblocking(False)
        self.sockets.append(client)
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
        sock, identity = await asyncio.wait_for(self.come.get(), DEADLINE_S)
        return client, sock, identity

    def files(self) -> list[Path]:
        """The port files there are."""
        return sorted(Path(socket_dir.make_directory()).glob(f"{self.name}.*"))


@asynccontextmanager
async def relay_rig(
    tmp_path: Path,
    python: str = sys.executable,
    step: Callable[[str, list[str]], list[str]] = local_step,
    timeout_s: float = DEADLINE_S,
) -> AsyncIterator[Rig]:
    """Relays run from the zip that is sent to nodes, by the interpreter `python`."""
    name = f"test-{secrets.token_hex(6)}"
    agent = tmp_path / agent_zip.build().file_name
    agent.write_bytes(agent_zip.build().data)
    argv = [python, "-I", "-S", str(agent), "relay", name]
    async with process_table() as table:
        relays = RelayPool(table, argv, step=step, timeout_s=timeout_s)
        rig = Rig(relays, table, name)
        try:
            yield rig
        finally:
            await relays.stop()
            for sock in rig.sockets:
                sock.close()
            for file in rig.files():
                file.unlink()


async def read_all(sock: socket.socket) -> bytes:
    """Everything until the end of the stream."""
    parts = []
    while data := await asyncio.wait_for(
        asyncio.get_running_loop().sock_recv(sock, 65536), DEADLINE_S
    ):
        parts.append(data)
    return b"".join(parts)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def is_cut_off(sock: socket.socket) -> bool:
    """Wait for the end of a connection that was broken: nothing came, and then a reset."""
    try:
        return await read_all(sock) == b""
    except ConnectionResetError:
        return True
