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
#: At a time: each takes 20 ms of a core, and many ranks may be opened at once.
MOST_STARTING = 4
#: Of what the process has written last.
_LAST_WORDS_BYTES = 4096


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
        #: Reads the process's stderr, which is one for all adapters.
        self._failure: asyncio.Task[str] | None = None
        self._starting = asyncio.Semaphore(MOST_STARTING)
        self._serving = asyncio.Lock()
        self._capabilities: asyncio.Task[Message] | None = None

    async def start(self) -> Adapter:
        """Start an adapter and wait until it listens; a few at a time. Raises DebugError."""
        async with self._starting:
            return await self._start()

    async def _start(self) -> Adapter:
        async with self._serving:
            control, failure = await self._server()
        life_read, life_write = os.pipe()
        answer, theirs = socket.socketpair()
        try:
            with answer:
                answer.setblocking(False)
                with theirs:
                    _ask(control, theirs.fileno(), life_read)
                ports = await asyncio.wait_for(_endpoints(answer, failure), _START_TIMEOUT_S)
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
        asked = self._capabilities
        # One that has failed must not be the answer for all later editors.
        if asked is None or (asked.done() and (asked.cancelled() or asked.exception())):
            asked = self._capabilities = asyncio.create_task(self._ask_capabilities())
        return await asyncio.shield(asked)

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
        await self._end_server()

    async def _end_server(self) -> None:
        control, failure = self._control, self._failure
        self._process = self._control = self._failure = None
        if control is not None:
            control.close()
        if failure is not None:
            # Adapters have its stderr, too: one that hangs must not hold up `tk down`.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_TIMEOUT_S):
                    await failure

    async def _server(self) -> tuple[socket.socket, asyncio.Task[str]]:
        if self._process is not None and self._process.returncode is not None:
            await self._end_server()
        if self._control is None or self._failure is None:
            control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            with theirs:
                self._process = await _spawn(theirs.fileno())
            self._control = control
            self._failure = asyncio.create_task(_last_words(self._process))
        return self._control, self._failure


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

    def take(self, *, another: bool = True) -> asyncio.Task[Adapter]:
        """The one that is ahead, or a new one; the caller's from now on.

        another: begin the next one.
        """
        spare, self._spare = self._spare, None
        taken = spare or asyncio.create_task(self._adapters.start())
        if another:
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


async def _endpoints(answer: socket.socket, failure: asyncio.Task[str]) -> tuple[int, int]:
    """The ports that the adapter names: its client port and its server port."""
    reading = asyncio.ensure_future(_read_all(answer))
    try:
        await first_of(reading, failure)
        data = reading.result() if reading.done() else b""
        if not data:
            ended = failure.done() and not failure.cancelled()
            raise DebugError(
                "debugpy's adapter did not start on this machine",
                cause=failure.result() if ended else None,
                hint="reinstall tunnelkit, which brings debugpy with it",
            )
    finally:
        # Also when we are cancelled: the caller closes `answer`, and the event loop would
        # take the next socket with that number for one that it watches already.
        await cancel_all(reading)
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


async def _last_words(process: asyncio.subprocess.Process) -> str:
    """The last line of stderr when the process has ended."""
    assert process.stderr is not None
    tail = b""
    while data := await process.stderr.read(_LAST_WORDS_BYTES):
        tail = (tail + data)[-_LAST_WORDS_BYTES:]
    await process.wait()
    lines = tail.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip() if lines else f"exit code {process.returncode}"
