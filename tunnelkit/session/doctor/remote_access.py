"""Access to the cluster for checks: the live session's link, or a connection of the doctor.

Either way one authentication at most: a session's link is used through its control
socket, and the doctor connects, once, only if there is no session.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from tunnelkit.errors import ConnectionFailed, TunnelkitError
from tunnelkit.link.base import Link, LinkSetup, Prompter
from tunnelkit.model import Completed, LocalForward
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.rpc import Handler
from tunnelkit.session.runtime import control_client
from tunnelkit.session.runtime.control_answers import RunAnswer
from tunnelkit.session.runtime.control_calls import DoctorBanner, DoctorRun, ExecStream
from tunnelkit.session.runtime.paths import SessionPaths, patient_logins

_BANNER_S = 6.0
_CLOSE_S = 5.0


class RemoteAccess(Protocol):
    """Runs commands on the login host and, with an allocation, on its first node."""

    #: True if this is the live session's connection.
    is_session: bool

    async def run(
        self, argv: Sequence[str], *, on_node: bool = False, timeout_s: float = 10.0
    ) -> Completed:
        """Run a command by ssh. Raises as `Link.run`."""
        ...

    async def banner(self, host: str, port: int) -> bytes:
        """Return the first bytes of host:port, as the login host sees it, through a forward.

        b"" if it closes the connection. Raises as `Link.forward`."""
        ...

    async def in_job(self, argv: Sequence[str], *, cwd: str) -> Completed | None:
        """Run a command inside the allocation, by the agent; return None without an agent."""
        ...

    async def close(self) -> None:
        """End what the access opened."""


class LinkAccess:
    """A connection of the doctor, in a private directory that its end removes."""

    is_session = False

    def __init__(self, link: Link, directory: tempfile.TemporaryDirectory[str]) -> None:
        self._link = link
        self._directory = directory

    @staticmethod
    async def connect(
        make_link: Callable[[LinkSetup], Link], prompter: Prompter | None
    ) -> LinkAccess:
        """Connect by the link that `make_link` returns.

        Raises ConnectionFailed, HostKeyError, ConfigError."""
        directory = tempfile.TemporaryDirectory(prefix="tk-")
        setup = LinkSetup(Path(directory.name), prompter, patient_logins=patient_logins())
        link = make_link(setup)
        far = LinkAccess(link, directory)
        try:
            await link.open()
        except BaseException:
            await far.close()
            raise
        return far

    async def run(
        self, argv: Sequence[str], *, on_node: bool = False, timeout_s: float = 10.0
    ) -> Completed:
        """See `RemoteAccess.run`."""
        return await self._link.run(argv, timeout_s=timeout_s)

    async def banner(self, host: str, port: int) -> bytes:
        """See `RemoteAccess.banner`."""
        return await banner_through(self._link, host, port)

    async def in_job(self, argv: Sequence[str], *, cwd: str) -> Completed | None:
        """See `RemoteAccess.in_job`."""
        return None

    async def close(self) -> None:
        """See `RemoteAccess.close`."""
        with contextlib.suppress(TimeoutError, TunnelkitError):
            async with asyncio.timeout(_CLOSE_S):
                await self._link.close()
        self._directory.cleanup()


class SessionAccess:
    """The live session's link, used through its control socket."""

    is_session = True

    def __init__(self, paths: SessionPaths) -> None:
        self._paths = paths

    async def run(
        self, argv: Sequence[str], *, on_node: bool = False, timeout_s: float = 10.0
    ) -> Completed:
        """See `RemoteAccess.run`."""
        async with control_client.connect(self._paths) as session:
            answer = await session.call(
                DoctorRun(argv=list(argv), on_node=on_node, timeout_s=timeout_s)
            )
        return Completed(
            answer["exit_code"],
            base64.b64decode(answer["stdout"]),
            base64.b64decode(answer["stderr"]),
        )

    async def banner(self, host: str, port: int) -> bytes:
        """See `RemoteAccess.banner`."""
        async with control_client.connect(self._paths) as session:
            banner = await session.call(DoctorBanner(host=host, port=port))
            return base64.b64decode(banner)

    async def in_job(self, argv: Sequence[str], *, cwd: str) -> Completed | None:
        """See `RemoteAccess.in_job`."""
        errors: asyncio.Future[Channel] = asyncio.get_running_loop().create_future()

        def opened(channel: Channel, header: dict[str, object]) -> None:
            if header.get("type") == "stderr" and not errors.done():
                errors.set_result(channel)
            else:
                channel.close({"error": "unexpected stream"})

        async def read_errors() -> bytes:
            return await _read(await errors)

        async with control_client.connect(self._paths, on_channel=opened) as session:
            channel = session.open(ExecStream(argv=list(argv), here=cwd, env={}))
            channel.write_eof()
            reading = asyncio.create_task(read_errors())
            try:
                out = await _read(channel)
                detail = await control_client.end_of(channel)
                if "failure" in detail:
                    raise TunnelkitError.from_json(detail["failure"])
                err = str(detail.get("error") or "").encode()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(2.0):
                        err = await asyncio.shield(reading) or err
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
        code = detail.get("code")
        return Completed(int(code) if code is not None else 127, out, err)

    async def close(self) -> None:
        """See `RemoteAccess.close`."""


async def _read(channel: Channel) -> bytes:
    data = bytearray()
    while chunk := await channel.read():
        data += chunk
    return bytes(data)


async def banner_through(link: Link, host: str, port: int) -> bytes:
    """Implement `RemoteAccess.banner`; the forward is closed again."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        bind_port = probe.getsockname()[1]
    forward = LocalForward(bind_port, host, port)
    await link.forward(forward)
    try:
        # ssh accepts the connection in any case, and closes it if the remote side refuses.
        async with asyncio.timeout(_BANNER_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", bind_port)
            try:
                return await reader.read(64)
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except (OSError, TimeoutError):
        return b""
    finally:
        await link.cancel_forward(forward)


class HasLink(Protocol):
    """The part of a session that the doctor's handlers need."""

    @property
    def link(self) -> Link:
        """The session's link."""

    @property
    def cluster(self) -> HasNode:
        """The owner of the allocation."""


class HasNode(Protocol):
    """Something that knows the node of the allocation."""

    @property
    def node(self) -> str | None:
        """The name of the node; None while there is none."""


def handlers(session: HasLink) -> dict[str, Handler]:
    """Return the session's handlers for the calls of `SessionAccess`."""

    async def run(request: DoctorRun) -> RunAnswer:
        node = session.cluster.node if request.on_node else None
        if request.on_node and node is None:
            raise ConnectionFailed("there is no node apart from the login host", hint="tk up NODE")
        done = await session.link.run(request.argv, node=node, timeout_s=request.timeout_s)
        return {
            "exit_code": done.exit_code,
            "stdout": base64.b64encode(done.stdout).decode(),
            "stderr": base64.b64encode(done.stderr).decode(),
        }

    async def banner(request: DoctorBanner) -> str:
        data = await banner_through(session.link, request.host, request.port)
        return base64.b64encode(data).decode()

    return dict([DoctorRun.served_by(run), DoctorBanner.served_by(banner)])
