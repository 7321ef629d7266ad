"""A command's client of the control socket; and the start of the session's process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from tunnelkit.errors import NoSessionError, TunnelkitError
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.mux import Mux, OnChannel
from tunnelkit.mux.rpc import Handler, RpcError, RpcPeer
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.session.runtime.blocking_client import is_alive, no_session, session_gone
from tunnelkit.session.runtime.control_address import reach
from tunnelkit.session.runtime.control_message import Message, Request
from tunnelkit.session.runtime.control_server import greet
from tunnelkit.session.runtime.launch_spec import LaunchSpec
from tunnelkit.session.runtime.paths import SessionPaths, is_locked
from tunnelkit.wire.endpoint import Endpoint
from tunnelkit.wire.errors import ProtocolError

if TYPE_CHECKING:
    from tunnelkit.session.runtime.control_answers import StreamEnd

_START_TIMEOUT_S = 20.0
A = TypeVar("A")


def _no_channel(channel: Channel, header: dict[str, object]) -> None:
    channel.close({"error": "unexpected stream"})


class SessionClient:
    """One connection to a session. Made by `connect`."""

    def __init__(self, mux: Mux, rpc: RpcPeer) -> None:
        self.mux = mux
        self._rpc = rpc

    async def call(self, request: Request[A]) -> A:
        """Make a call of the session and return its answer.

        Raises the session's TunnelkitErrors unchanged, NoSessionError if the session is gone.
        """
        try:
            answer: A = await self._rpc.call(request.NAME, **request.to_json())
            return answer
        except RpcError as error:
            if error.data.get("gone"):
                raise session_gone() from None
            raise TunnelkitError.from_json(error.data) from None

    def open(self, stream: Message) -> Channel:
        """Open a stream to the session."""
        return self.mux.open({"type": stream.NAME, **stream.to_json()})


async def end_of(stream: Channel) -> StreamEnd:
    """Wait for the end of a stream and return it."""
    return cast("StreamEnd", await stream.closed() or {"error": "the session ended"})


@asynccontextmanager
async def connect(
    paths: SessionPaths,
    *,
    notices: Mapping[str, Handler] | None = None,
    on_channel: OnChannel = _no_channel,
) -> AsyncIterator[SessionClient]:
    """Connect to a running session.

    Raises NoSessionError if there is none, ConfigError if another user's process could listen.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    tasks: list[asyncio.Task[None]] = []
    try:
        try:
            reach(sock, paths)
            sock.setblocking(False)
            hello, rest = await greet(sock, os.urandom(16))
        except (OSError, ProtocolError):
            raise no_session() from None
        mux = Mux(Endpoint(client=True), on_channel)
        rpc = RpcPeer(mux.open({"type": "rpc"}), notices or {})
        lost = mux.attach(sock.fileno(), sock.fileno(), hello, rest)
        lost.add_done_callback(lambda future: mux.end("the session is gone"))
        tasks.append(asyncio.create_task(rpc.serve()))
        try:
            yield SessionClient(mux, rpc)
        finally:
            # Detach before the close: another connection may get the same descriptor number.
            mux.detach("done")
    finally:
        await cancel_all(*tasks)
        sock.close()


def kubeconfig_files(files: str) -> str:
    """Return KUBECONFIG's list for a process whose working directory is another one."""
    return os.pathsep.join(os.path.abspath(one) if one else "" for one in files.split(os.pathsep))


def _environment() -> dict[str, str]:
    files = os.environ.get("KUBECONFIG", "")
    return {**os.environ, **({"KUBECONFIG": kubeconfig_files(files)} if files else {})}


def start_daemon(launch: LaunchSpec, paths: SessionPaths) -> None:
    """Start the session's process in the background; return once its socket answers."""
    paths.make()
    launch.save(paths.launch_wanted)
    project = Path(launch.settings.project_dir)
    daemon = subprocess.Popen(
        [sys.executable, "-P", "-m", "tunnelkit.session.daemon", str(project)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
        env=_environment(),
    )
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        if is_alive(paths):
            return
        if daemon.poll() is not None and not is_locked(paths):
            break  # if it is locked, another process was first and will answer soon
        time.sleep(0.01)
    with contextlib.suppress(OSError):
        daemon.kill()
    raise NoSessionError(
        "the session's process did not start",
        cause=_last_line(paths.session_log),
        hint=f"see {paths.session_log}",
    )


def _last_line(path: Path) -> str | None:
    try:
        lines = path.read_text(errors="replace").strip().splitlines()
    except OSError:
        return None
    return lines[-1] if lines else None
