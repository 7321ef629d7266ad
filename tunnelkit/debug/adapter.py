"""A debug adapter on the laptop, started ahead of the debuggee that it will serve."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from dataclasses import dataclass

from tunnelkit.errors import DebugError
from tunnelkit.mux.peers import same_user
from tunnelkit.mux.waiting import cancel_all, first_of

_START_TIMEOUT_S = 30.0


@dataclass
class Adapter:
    """A running `debugpy.adapter`: where the editor's bytes go and where the debuggee's.

    The owner must `close` it; its own end (all debuggees gone) is fine too.
    """

    client_port: int
    server_port: int
    life_fd: int

    @staticmethod
    async def start() -> Adapter:
        """Start one and wait until it listens. Raises DebugError."""
        endpoint = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        life_read, life_write = os.pipe()
        process: asyncio.subprocess.Process | None = None
        try:
            endpoint.setblocking(False)
            endpoint.bind(("127.0.0.1", 0))
            endpoint.listen(1)
            process = await _spawn(life_read, endpoint.getsockname()[1])
            ports = await asyncio.wait_for(_endpoints(endpoint, process), _START_TIMEOUT_S)
        except BaseException as error:
            os.close(life_write)
            if process is not None and process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            if isinstance(error, TimeoutError):
                raise DebugError("debugpy's adapter did not start on this machine") from None
            raise
        finally:
            os.close(life_read)
            endpoint.close()
        return Adapter(ports[0], ports[1], life_write)

    def close(self) -> None:
        """End the adapter, by the end of its pipe (adapter_main.py). Idempotent.

        Not by a signal: it may have ended long ago, and its number be somebody else's.
        """
        if self.life_fd < 0:
            return
        os.close(self.life_fd)
        self.life_fd = -1


async def _spawn(life_fd: int, endpoint_port: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "tunnelkit.debug.adapter_main",
        str(life_fd),
        "--for-server",
        str(endpoint_port),
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        pass_fds=(life_fd,),
        start_new_session=True,
    )


async def _endpoints(
    endpoint: socket.socket, process: asyncio.subprocess.Process
) -> tuple[int, int]:
    """What the adapter tells of itself: its client port and its server port."""
    loop = asyncio.get_running_loop()
    accept = asyncio.ensure_future(_accept_own(endpoint))
    failed = asyncio.ensure_future(_failure(process))
    try:
        await first_of(accept, failed)
        text = None if accept.done() else failed.result()
        if text is not None:
            raise DebugError(
                "debugpy's adapter did not start on this machine",
                cause=text,
                hint="reinstall tunnelkit, which brings debugpy with it",
            )
        sock = await accept
    finally:
        # Also when we are cancelled: the caller closes `endpoint`, and the event loop would
        # take the next socket with that number for one that it watches already.
        await cancel_all(accept, failed)
    data = b""
    try:
        while chunk := await loop.sock_recv(sock, 4096):
            data += chunk
    finally:
        sock.close()
    answer = json.loads(data)
    if "error" in answer:
        raise DebugError("debugpy's adapter did not start", cause=str(answer["error"]))
    return int(answer["client"]["port"]), int(answer["server"]["port"])


async def _accept_own(endpoint: socket.socket) -> socket.socket:
    """The adapter's connection. Another user who is faster must not name us his ports."""
    while True:
        sock, address = await asyncio.get_running_loop().sock_accept(endpoint)
        if same_user(address, sock.getsockname()):
            return sock
        sock.close()


async def _failure(process: asyncio.subprocess.Process) -> str | None:
    """The last line of stderr if the first process fails; None when it forked well."""
    _, errors = await process.communicate()
    if process.returncode == 0:
        return None
    lines = errors.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else f"exit code {process.returncode}"
