"""`tk pdb`: one run of a program with a console on it, from its first line to its end."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tunnelkit.cli.terminal.output import say as print_result
from tunnelkit.cli.views.console_files import history_of, new_core
from tunnelkit.cli.views.console_prompt import ConsolePrompt, show_lines
from tunnelkit.cli.views.console_shell import ConsoleShell, exit_code
from tunnelkit.cli.views.pdb_run import PdbRun, say
from tunnelkit.errors import DebugError, ExitCode, NoSessionError, TunnelkitError
from tunnelkit.mux.tasks import cancel_all, first_of
from tunnelkit.session.runtime import control_client
from tunnelkit.session.runtime.blocking_client import is_alive
from tunnelkit.session.runtime.control_calls import ConsoleStream, LoopAdopt, LoopStop, LoopStream

if TYPE_CHECKING:
    from tunnelkit.session.runtime.control_client import SessionClient
    from tunnelkit.session.runtime.paths import SessionPaths

#: Limit of the wait for the node to end the program; then the session goes on with that.
_STOP_S = 10.0
#: A console may meet the end of a program before the program's own stream tells it.
_END_S = 5.0
#: Limit of the wait for a launcher whose ranks have ended.
_RANKS_END_S = 30.0
#: A line that a program writes in pieces is complete within this time.
_HOLD_S = 0.1


@dataclass(frozen=True)
class PdbOptions:
    """The user's wishes.

    lines: of a script; None: by hand, or from stdin if that is no terminal. keep: the program stays
    when the console is left. timeout_s: how long to wait for somebody who debugs.
    """

    lines: Sequence[str] | None
    keep: bool
    timeout_s: float


class PdbConsole:
    """One `tk pdb`. `run` it once."""

    def __init__(self, paths: SessionPaths, stream: LoopStream, options: PdbOptions) -> None:
        self._paths = paths
        self._stream: LoopStream | LoopAdopt = stream
        self._options = options
        self._shell = ConsoleShell(new_core(ends=not options.keep), show_lines)
        self._prompt: ConsolePrompt | None = None
        #: The user has seen where the program stands at first.
        self._placed = False
        self._script = _Script(options.lines)
        if options.lines is None and sys.stdin.isatty():
            self._prompt = ConsolePrompt(self._shell.core, history_of())
        self._program = PdbRun(hold_s=_HOLD_S if self._prompt is not None else 0.0)

    async def run(self) -> int:
        """Run the program; return its exit code, or the one of a console that was left before."""
        while True:
            code: int | None = None
            try:
                async with control_client.connect(self._paths) as session:
                    code = await self._in_session(session)
            except NoSessionError:
                if not self._program.loop.done():
                    raise
            if code is not None:
                return code
            self._shell.lose_session()
            if not await self._session_again():
                return int(ExitCode.NO_SESSION)
            self._placed = False
            self._stream = LoopAdopt(adopt=self._program.loop.result(), keep=self._options.keep)

    async def _in_session(self, session: SessionClient) -> int | None:
        """Debug the program; None if the session is lost."""
        reading = asyncio.create_task(self._program.read(session.open(self._stream)))
        over = asyncio.create_task(first_of(reading, self._program.ended))
        self._program.there.clear()
        there = asyncio.create_task(self._program.there.wait())
        ends = not self._options.keep
        try:
            await first_of(over, there)
            code = None
            if not over.done():
                code = await self._debug(session, over)
            if self._program.ended.done():
                ends = False
                return self._program.exit_code()
            if reading.done():
                ends = False
                reading.result()
                return None
            if code is not None and self._prompt is not None:
                say("ending the program" if ends else "the program stays as it is: tk pdb")
            return code
        finally:
            if ends and self._program.loop.done():
                await self._stop(session)
            await cancel_all(over, reading, there)

    async def _debug(self, session: SessionClient, over: asyncio.Task[None]) -> int | None:
        """Return the exit code of the console once it is left; None if the program is over."""
        if self._prompt is None and self._options.lines is None:
            unused = await self._wait_for_somebody(over)
            if unused is not None:
                return unused
            if over.done():
                return None
        console = session.open(ConsoleStream(loop=self._program.loop.result(), entry=True))
        try:
            async with self._shell.running(console) as lost:
                left = asyncio.create_task(first_of(lost, over))
                try:
                    return await self._serve(left)
                finally:
                    await cancel_all(left)
        except DebugError:
            # Refused, as the program has ended meanwhile.
            await asyncio.wait([over], timeout=_END_S)
            if not over.done():
                raise
            return None

    async def _serve(self, over: asyncio.Task[None]) -> int | None:
        shell = self._shell
        if self._prompt is not None:
            showing = asyncio.create_task(self._show_place())
            try:
                return 0 if await self._prompt.serve(shell, over) else None
            finally:
                await cancel_all(showing)
        if not await _before(over, shell.until(lambda: shell.core.all_stopped)):
            return None
        while True:
            line = await self._script.next(over)
            if line is None or over.done():
                break
            if not await _before(over, shell.follow(line)):
                break
            if not shell.core.has_living:
                # A launcher ends after its ranks.
                await asyncio.wait([over], timeout=_RANKS_END_S)
            # What comes after a line that was refused was meant for other ranks.
            if shell.over or any(one.refusal for one in shell.results):
                break
        return None if over.done() else exit_code(shell.results)

    async def _show_place(self) -> None:
        """Show where the program stands, once it stands at its first line."""
        if not self._placed:
            await self._shell.until(lambda: self._shell.core.all_stopped)
            self._placed = True
            self._shell.type("w")

    async def _wait_for_somebody(self, over: asyncio.Task[None]) -> int | None:
        """Wait for a line on stdin (None), or for the end of a program that others debug.

        An exit code if nobody comes in time.
        """
        wait = f"waiting {self._options.timeout_s:g} s for somebody who debugs it"
        say(f"{wait}: `tk console`, or an editor at port {self._program.port}")
        debugged = asyncio.create_task(self._program.debugged.wait())
        first = asyncio.create_task(self._script.has_line())
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._options.timeout_s):
                    await first_of(over, debugged, first)
                    if first.done() and not first.result():
                        await first_of(over, debugged)
            if first.done() and first.result():
                return None
            if debugged.done():
                await first_of(over)
            if over.done():
                return None
        finally:
            await cancel_all(debugged, first)
        seconds = self._options.timeout_s
        print_result(f"No client connect to server in {seconds:g} seconds, exit")
        return int(ExitCode.FAILURE)

    async def _stop(self, session: SessionClient) -> None:
        with contextlib.suppress(TunnelkitError, TimeoutError):
            async with asyncio.timeout(_STOP_S):
                await session.call(LoopStop(loop=self._program.loop.result()))

    async def _session_again(self) -> bool:
        """Wait for the successor of a killed session; False if the user had ended it."""
        say("the session is gone; the program stays as it is. Waiting for `tk up` ...")
        while not is_alive(self._paths):
            if not self._paths.launch.exists():
                return False
            await asyncio.sleep(0.2)
        return True


class _Script:
    """Lines for a console, of a list or as they come on stdin."""

    def __init__(self, lines: Sequence[str] | None) -> None:
        self._given = lines
        self._queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._first: str | None = None
        for line in (*lines, None) if lines is not None else ():
            self._queue.put_nowait(line)

    async def has_line(self) -> bool:
        """Read stdin; return True once it has a line, False if it ends before."""
        loop = asyncio.get_running_loop()

        def read() -> None:
            with contextlib.suppress(OSError, RuntimeError, ValueError):
                for line in sys.stdin:
                    loop.call_soon_threadsafe(self._queue.put_nowait, line)
                loop.call_soon_threadsafe(self._queue.put_nowait, None)

        # stdin may be a file, which the event loop can't wait for.
        threading.Thread(target=read, daemon=True).start()
        self._first = await self._queue.get()
        return self._first is not None

    async def next(self, over: asyncio.Task[None]) -> str | None:
        """Return the next line; None at the end, or if `over` is first."""
        if self._first is not None:
            line, self._first = self._first, None
            return line
        coming = asyncio.create_task(self._queue.get())
        try:
            await first_of(coming, over)
            return coming.result() if coming.done() else None
        finally:
            await cancel_all(coming)


async def _before(over: asyncio.Task[None], work: Awaitable[None]) -> bool:
    """Await `work`; False, with it cancelled, if `over` is first."""
    task = asyncio.ensure_future(work)
    try:
        await first_of(task, over)
        if task.done():
            task.result()
        return task.done()
    finally:
        await cancel_all(task)
