"""Streams of the probe in a job: by the session's agents, or by steps of the scheduler."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from tunnelkit import probe_zip
from tunnelkit.link.base import ByteStream, Link
from tunnelkit.mux.channel import Channel
from tunnelkit.scheduler.base import Scheduler
from tunnelkit.session.agent.client import AgentClient
from tunnelkit.session.agent.find_python import running
from tunnelkit.session.why.running import no_way_in

_PIECE_BYTES = 64 * 1024
#: The probe's zip comes first on stdin, and stays in memory: nothing is written on the node. Then
#: stdin stays open as long as somebody looks.
_BOOT = """
import os, sys
try:
    fd = os.memfd_create("tk-probe")
except (AttributeError, OSError):
    import tempfile
    file = tempfile.TemporaryFile()
    fd = file.fileno()
left = int(sys.argv[1])
while left:
    data = os.read(0, min(left, 65536))
    if not data:
        sys.exit(1)
    left -= len(data)
    while data:
        data = data[os.write(fd, data):]
sys.path.insert(0, "/proc/self/fd/%d" % fd)
from tunnelkit.probe.main import main
sys.exit(main(sys.argv[2:]))
"""


class ProbeStream(Protocol):
    """The output of the probe on one node."""

    async def read(self) -> bytes:
        """Return the next bytes; b"" once it has ended. Raises TunnelkitError, OSError."""
        ...

    async def beat(self) -> None:
        """Tell the probe that somebody looks. Raises TunnelkitError, OSError."""
        ...

    def why(self) -> str:
        """Return the last words of its stderr, for a message."""
        ...

    async def close(self) -> None:
        """End the probe."""
        ...


#: Starts the probe of a job on a node. Raises TunnelkitError.
OpenProbe = Callable[[str, str], Awaitable[ProbeStream]]


def probe_argv(python: str, job_id: str) -> list[str]:
    """Return the command that takes the zip on its stdin, and streams."""
    size = str(len(probe_zip.build_sampler().data))
    return running(python, "-c", [_BOOT, size, "stream", "--job", job_id])


class ByAgent:
    """A probe that the agent of a node has started."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def read(self) -> bytes:
        """See `ProbeStream.read`."""
        return await self._channel.read()

    async def beat(self) -> None:
        """See `ProbeStream.beat`."""
        await self._channel.write(b"\n")

    def why(self) -> str:
        """See `ProbeStream.why`."""
        return ""

    async def close(self) -> None:
        """See `ProbeStream.close`."""
        if not self._channel.is_over:
            self._channel.abort({"error": "no longer wanted"})


async def open_by_agent(agent: AgentClient, argv: Sequence[str]) -> ProbeStream:
    """Start the probe through an agent. Raises TunnelkitError if there is none."""
    channel = agent.open({"type": "exec", "argv": list(argv), "env": {}})
    data = probe_zip.build_sampler().data
    for at in range(0, len(data), _PIECE_BYTES):
        await channel.write(data[at : at + _PIECE_BYTES])
    return ByAgent(channel)


class ByStep:
    """A probe in a step of the scheduler's."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        # A socket object of its own: the stream keeps its descriptor.
        self._sock = socket.fromfd(stream.fileno(), socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.setblocking(False)

    async def send(self, data: bytes) -> None:
        """Write to its stdin. Raises OSError."""
        await asyncio.get_running_loop().sock_sendall(self._sock, data)

    async def beat(self) -> None:
        """See `ProbeStream.beat`."""
        await self.send(b"\n")

    async def read(self) -> bytes:
        """See `ProbeStream.read`."""
        return await asyncio.get_running_loop().sock_recv(self._sock, _PIECE_BYTES)

    def why(self) -> str:
        """See `ProbeStream.why`."""
        return self._stream.diagnosis()

    async def close(self) -> None:
        """See `ProbeStream.close`."""
        self._sock.close()
        await self._stream.close()


def by_steps(scheduler: Scheduler, link: Link, python: str) -> OpenProbe | None:
    """Return the way into jobs by steps (`srun --overlap`); None if the scheduler has none."""
    if not scheduler.capabilities.enters_jobs:
        return None

    async def start(job_id: str, node: str) -> ProbeStream:
        step = scheduler.enter(job_id, node, probe_argv(python, job_id))
        if step is None:
            raise no_way_in(node)
        probe = ByStep(await link.open_stream(step))
        try:
            await probe.send(probe_zip.build_sampler().data)
        except OSError:
            pass  # it has ended already: reading tells why
        except BaseException:
            await probe.close()
            raise
        return probe

    return start
