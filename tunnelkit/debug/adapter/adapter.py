"""Debug adapters on the laptop, each started ahead of the debuggee that it will serve."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from dataclasses import dataclass

from tunnelkit.debug.adapter.adapter_server import ONE_MORE
from tunnelkit.debug.dap.messages import (
    REQUEST,
    RESPONSE,
    InitializeArguments,
    Message,
    Request,
    dump,
    parse,
    section,
)
from tunnelkit.errors import DebugError
from tunnelkit.mux.dap_framing import DapReader, frame
from tunnelkit.mux.tasks import cancel_all, first_of

_START_TIMEOUT_S = 30.0
_END_TIMEOUT_S = 5.0


@dataclass
class Adapter:
    """A running `debugpy.adapter`: where the editor's bytes go and where the debuggee's.

    The owner must `close` it; its own end (all debuggees gone) is fine too.
    """

    client_port: int
    server_port: int
    life_fd: int

    def close(self) -> None:
        """End the adapter, by the end of its pipe (adapter_server.py). Idempotent.

        Not by a signal: it may have ended long ago, and its number be somebody else's.
        """
        if self.life_fd < 0:
            return
        os.close(self.life_fd)
        self.life_fd = -1


class Adapters:
    """Makes adapters, from a process that is started with the first of them.

    `close` it at the end; adapters live on without it.
    """

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._starting = asyncio.Lock()
        self._capabilities: asyncio.Task[Message] | None = None

    async def start(self) -> Adapter:
        """Start an adapter and wait until it listens. Raises DebugError."""
        # One at a time: all failures come from one stderr.
        async with self._starting:
            return await self._start()

    async def _start(self) -> Adapter:
        process, control = await self._server()
        life_read, life_write = os.pipe()
        answer, theirs = socket.socketpair()
        try:
            with answer:
                answer.setblocking(False)
                with theirs:
                    _ask(control, theirs.fileno(), life_read)
                ports = await asyncio.wait_for(_endpoints(answer, process), _START_TIMEOUT_S)
        except BaseException as error:
            os.close(life_write)
            if isinstance(error, TimeoutError):
                raise DebugError(
                    "debugpy's adapter did not start on this machine",
                    hint="is tk's own debugpy whole? pip install --force-reinstall debugpy",
                ) from None
            raise
        finally:
            os.close(life_read)
        return Adapter(ports[0], ports[1], life_write)

    async def capabilities(self) -> Message:
        """Return the adapter's answer to `initialize`: one for all editors, so it is asked once.

        Raises DebugError.
        """
        if self._capabilities is None or self._capabilities.cancelled():
            self._capabilities = asyncio.create_task(self._ask_capabilities())
        return await asyncio.shield(self._capabilities)

    async def _ask_capabilities(self) -> Message:
        adapter = await self.start()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", adapter.client_port)
            try:
                arguments: InitializeArguments = {"adapterID": "tunnelkit"}
                request: Request = {
                    "seq": 1,
                    "type": REQUEST,
                    "command": "initialize",
                    "arguments": arguments,
                }
                writer.write(frame(dump(request)))
                frames = DapReader()
                while data := await reader.read(65536):
                    for body in frames.feed(data):
                        message = parse(body)
                        if message.get("type") == RESPONSE:
                            return section(message, "body")
            finally:
                writer.close()
        except OSError as error:
            raise DebugError(
                "debugpy's adapter does not answer",
                cause=str(error),
                hint="try again; `tk logs --session` shows more, `tk bugreport` all",
            ) from None
        finally:
            adapter.close()
        raise DebugError(
            "debugpy's adapter ended without an answer",
            hint="try again; `tk logs --session` shows more, `tk bugreport` all",
        )

    async def close(self) -> None:
        """End the process that makes them."""
        if self._capabilities is not None:
            await cancel_all(self._capabilities)
        process, self._process = self._process, None
        control, self._control = self._control, None
        if control is not None:
            control.close()
        if process is not None:
            # Adapters have its stderr, too: one that hangs must not hold up `tk down`.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_TIMEOUT_S):
                    await process.communicate()

    async def _server(self) -> tuple[asyncio.subprocess.Process, socket.socket]:
        if self._process is not None and self._process.returncode is not None:
            await self.close()
        if self._process is None or self._control is None:
            self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            with theirs:
                self._process = await _spawn(theirs.fileno())
        return self._process, self._control


class AdapterAhead:
    """One adapter, started before it is needed. `prepare`, `take`, and `close` at the end."""

    def __init__(self, adapters: Adapters) -> None:
        self._adapters = adapters
        self._spare: asyncio.Task[Adapter] | None = None
        self._closed = False

    def prepare(self) -> None:
        """Have one ahead."""
        if self._spare is None and not self._closed:
            self._spare = asyncio.create_task(self._adapters.start())

    def take(self) -> asyncio.Task[Adapter]:
        """The one that is ahead, or a new one; the caller's from now on. Another is begun."""
        spare, self._spare = self._spare, None
        taken = spare or asyncio.create_task(self._adapters.start())
        self.prepare()
        return taken

    async def close(self) -> None:
        """End the one that nobody has taken."""
        self._closed = True
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.cancel()
            result = (await asyncio.gather(spare, return_exceptions=True))[0]
            if isinstance(result, Adapter):
                result.close()


async def _spawn(control_fd: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "tunnelkit.debug.adapter.adapter_server",
        str(control_fd),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        pass_fds=(control_fd,),
        start_new_session=True,
    )


def _ask(control: socket.socket, answer_fd: int, life_fd: int) -> None:
    try:
        socket.send_fds(control, [ONE_MORE], [answer_fd, life_fd])
    except OSError:
        pass  # it has ended: waiting for the adapter tells why


async def _endpoints(answer: socket.socket, process: asyncio.subprocess.Process) -> tuple[int, int]:
    """The ports that the adapter names: its client port and its server port."""
    reading = asyncio.ensure_future(_read_all(answer))
    failed = asyncio.ensure_future(_failure(process))
    try:
        await first_of(reading, failed)
        data = reading.result() if reading.done() else b""
        if not data:
            raise DebugError(
                "debugpy's adapter did not start on this machine",
                cause=failed.result() if failed.done() else None,
                hint="reinstall tunnelkit, which brings debugpy with it",
            )
    finally:
        # Also when we are cancelled: the caller closes `answer`, and the event loop would
        # take the next socket with that number for one that it watches already.
        await cancel_all(reading, failed)
    named = json.loads(data)
    if "error" in named:
        raise DebugError(
            "debugpy's adapter did not start",
            cause=str(named["error"]),
            hint="is tk's own debugpy whole? pip install --force-reinstall debugpy",
        )
    return int(named["client"]["port"]), int(named["server"]["port"])


async def _read_all(sock: socket.socket) -> bytes:
    data = b""
    while chunk := await asyncio.get_running_loop().sock_recv(sock, 4096):
        data += chunk
    return data


async def _failure(process: asyncio.subprocess.Process) -> str:
    """The last line of stderr when the process has ended."""
    assert process.stderr is not None
    lines = []
    while line := await process.stderr.readline():
        lines = [line.decode("utf-8", "replace").strip()]
    await process.wait()
    return lines[-1] if lines else f"exit code {process.returncode}"
