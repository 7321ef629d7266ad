"""`tk run` and `tk shell`: a process on the node, with this terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated

from tunnelkit.cli.completion.options import own_node
from tunnelkit.cli.lazy_typer import typer
from tunnelkit.cli.terminal.output import note
from tunnelkit.cli.terminal.stream_end import exit_code
from tunnelkit.cli.views.waiting import Waiting, waits_for

if TYPE_CHECKING:
    from tunnelkit.mux.channel import Channel
    from tunnelkit.session.runtime.control_answers import StreamEnd
    from tunnelkit.session.runtime.control_client import SessionClient
    from tunnelkit.session.runtime.control_message import Request
    from tunnelkit.session.runtime.paths import SessionPaths

#: A signal that has not arrived after that time: another one ends the command.
_PROMPT_S = 1.0
_LEFT = (
    "tk: the node can't be reached: the program there may go on until it can, and the session ends "
    "it then; `tk auth` connects again, `tk down` ends all"
)


def run_command(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="What to run.")],
    node: Annotated[str | None, own_node(typer.Option)] = None,
) -> None:
    """Run a command in the allocation; exits with its exit code.

    It runs in the mirrored directory; tk's own options come before it.

    tk run nvidia-smi
    tk run python train.py --epochs 1
    tk run env | grep CUDA_VISIBLE_DEVICES   grep runs here
    tk run --node node2 nvidia-smi
    """
    from tunnelkit.cli.terminal.tty import is_interactive

    if "paipdb" in command and node is None:
        from tunnelkit.debug.pdb.pdb_command import names_paipdb

        if names_paipdb(command):
            from tunnelkit.cli.commands.debug.pdb import pdb

            pdb(command)
    sys.exit(_run(command, pty=is_interactive(), node=node))


def shell(
    place: Annotated[str | None, own_node(typer.Argument)] = None,
    node: Annotated[str | None, own_node(typer.Option)] = None,
) -> None:
    """Open a login shell in the allocation, in the mirrored directory.

    tk shell                 on the node of `tk status`
    tk shell node2           on another one
    tk shell --node node2    the same, as with tk run
    """
    from tunnelkit.cli.terminal.tty import is_interactive
    from tunnelkit.errors import UsageError

    if place is not None and node not in (None, place):
        raise UsageError(f"two nodes are named: {place} and {node}", hint="tk shell NODE")
    if not is_interactive():
        raise UsageError("tk shell needs a terminal", hint="for scripts: tk run COMMAND")
    sys.exit(_run([], pty=True, node=node or place))


def _run(argv: list[str], *, pty: bool, node: str | None) -> int:
    from tunnelkit.cli.terminal.context import find_session, run
    from tunnelkit.model import check_host

    if node is not None:
        check_host(node)
    return run(_Terminal(argv, pty=pty, node=node).run(find_session()))


class _Terminal:
    """Joins this process's stdin, stdout and stderr with a process on the node."""

    def __init__(self, argv: list[str], *, pty: bool, node: str | None = None) -> None:
        self._argv = argv
        self._node = node
        self._pty = pty
        self._stderr: asyncio.Future[Channel] | None = None
        self._waiting = Waiting()

    async def run(self, paths: SessionPaths) -> int:
        """Run to the end and return the exit code as a shell would give it."""
        from tunnelkit.cli.terminal import tty
        from tunnelkit.session.runtime import control_client
        from tunnelkit.session.runtime.control_calls import ExecStream

        self._stderr = asyncio.get_running_loop().create_future()
        async with control_client.connect(paths, on_channel=self._opened) as session:
            stream = ExecStream(
                argv=self._argv,
                here=os.getcwd(),
                env={"TERM": os.environ.get("TERM", "xterm")} if self._pty else {},
                pty=tty.size() if self._pty else None,
                node=self._node,
            )
            guard: AbstractContextManager[None] = contextlib.nullcontext()
            channel = session.open(stream)
            signals = _PassedSignals(session, channel)
            resize = self._mind_signals(session, channel, signals)
            if self._pty:
                guard = tty.RawMode(sys.stdin.fileno(), resize)
            with guard, self._waiting.watching(session, until_heard=self._pty):
                detail = await self._carry(channel)
            if signals.left_by is not None:
                note(_LEFT)
                return 128 + signals.left_by
            # Only now: a raw terminal does not begin a new line at its left edge.
            return exit_code(detail)

    def _opened(self, channel: Channel, header: Mapping[str, object]) -> None:
        if header.get("type") == "stderr" and self._stderr is not None:
            self._stderr.set_result(channel)
        else:
            channel.close({"error": "unexpected stream"})

    def _mind_signals(
        self, session: SessionClient, channel: Channel, signals: _PassedSignals
    ) -> Callable[[], None]:
        """Pass signals on; return a function that sends the terminal's size to the node."""
        from tunnelkit.errors import TunnelkitError
        from tunnelkit.session.runtime.control_calls import ExecResize

        loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task[None]] = set()

        async def quietly(request: Request[None]) -> None:
            # The end of the channel shows a loss.
            with contextlib.suppress(TunnelkitError):
                await session.call(request)

        def call(request: Request[None]) -> None:
            task = asyncio.create_task(quietly(request))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        def resize() -> None:
            from tunnelkit.cli.terminal import tty

            size = tty.size()
            call(ExecResize(channel=channel.id, rows=size["rows"], cols=size["cols"]))

        if self._pty:
            loop.add_signal_handler(signal.SIGWINCH, resize)
            return resize
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, signals.pass_on, number)
        return resize

    async def _carry(self, channel: Channel) -> StreamEnd:
        from tunnelkit.mux.tasks import cancel_all
        from tunnelkit.session.runtime.control_client import end_of

        keys = asyncio.create_task(_feed(channel))
        errors = asyncio.create_task(self._carry_stderr())
        try:
            await _copy(channel, sys.stdout.fileno(), self._waiting.heard)
            detail = await end_of(channel)
            if not self._pty and "code" in detail:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(2.0):
                        await errors
        finally:
            await cancel_all(keys, errors)
        return detail

    async def _carry_stderr(self) -> None:
        assert self._stderr is not None
        await _copy(await self._stderr, sys.stderr.fileno(), self._waiting.heard)


class _PassedSignals:
    """Passes signals on to the process on the node.

    Where the node can't be reached, or has not taken the one before, a signal ends this command:
    `left_by` is set, and the channel is over.
    """

    def __init__(self, session: SessionClient, channel: Channel) -> None:
        self._session, self._channel = session, channel
        self._tasks: set[asyncio.Task[None]] = set()
        #: When the signals came that have not arrived.
        self._under_way: list[float] = []
        self.left_by: signal.Signals | None = None

    def pass_on(self, number: signal.Signals) -> None:
        """Take a signal of this process."""
        now = asyncio.get_running_loop().time()
        # Two at once are common: a terminal's and that of a program such as timeout.
        if self._under_way and now - self._under_way[0] >= _PROMPT_S:
            self._leave(number)
            return
        task = asyncio.create_task(self._send(number, now))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, number: signal.Signals, came: float) -> None:
        from tunnelkit.errors import TunnelkitError
        from tunnelkit.session.runtime.control_calls import ExecSignal, Status

        request = ExecSignal(channel=self._channel.id, signal=number.name)

        async def send() -> None:
            with contextlib.suppress(TunnelkitError):
                await self._session.call(request)

        sending = asyncio.create_task(send())
        self._under_way.append(came)
        try:
            # The end of the channel shows a loss of the session.
            with contextlib.suppress(TunnelkitError):
                while not sending.done():
                    if waits_for(await self._session.call(Status())) is not None:
                        self._leave(number)
                        return
                    await asyncio.wait([sending], timeout=_PROMPT_S)
        finally:
            self._under_way.remove(came)
            sending.cancel()

    def _leave(self, number: signal.Signals) -> None:
        self.left_by = number
        self._channel.abort()


async def _copy(channel: Channel, fd: int, before: Callable[[], None]) -> None:
    """Everything from a channel to a descriptor. Blocking writes: that is the backpressure."""
    while data := await channel.read():
        before()
        view = memoryview(data)
        while view:
            view = view[await asyncio.to_thread(os.write, fd, view) :]


async def _feed(channel: Channel) -> None:
    """Everything from stdin to a channel.

    A thread reads: stdin may be a file, which the event loop can't wait for, and
    making a shared terminal non-blocking would break the shell that started us. In the
    background (`tk run CMD &`) nothing is read, which would stop this process.
    """
    import threading

    from tunnelkit.cli.terminal.tty import read_keys

    signal.signal(signal.SIGTTIN, signal.SIG_IGN)
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue()
    room = threading.Semaphore(4)

    def read() -> None:
        # The command may end, and the loop with it, at any moment. No coroutine is made here: one
        # that never ran would warn on the user's terminal.
        with contextlib.suppress(OSError, RuntimeError):
            data = b"begin"
            while data:
                room.acquire()
                data = read_keys(0)
                loop.call_soon_threadsafe(chunks.put_nowait, data)

    threading.Thread(target=read, daemon=True).start()
    while data := await chunks.get():
        await channel.write(data)
        room.release()
    channel.write_eof()
