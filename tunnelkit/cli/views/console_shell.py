"""A console over many ranks, driven: lines of the user and the session's messages go in.

`ConsoleShell` joins the console's core (debug/console, which does no I/O) with its stream.
`run_lines` is for scripts; console_prompt.py reads lines from a terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

from tunnelkit.debug.console.console import Console
from tunnelkit.debug.console.line_results import LineResult, Step
from tunnelkit.debug.dap.messages import dump, parse
from tunnelkit.errors import DebugError, ExitCode, NoSessionError, TunnelkitError
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.dap_framing import DapError, DapReader, frame
from tunnelkit.mux.tasks import cancel_all

if TYPE_CHECKING:
    from tunnelkit.debug.ranks.console_messages import ToConsole

#: Limit of the wait for the session's first list of ranks.
_FIRST_S = 15.0
#: Limit of the wait for ranks that their launcher has not started yet.
_THERE_S = 30.0
#: Limit of the wait for ranks that a script let run: they stop again, or they don't.
_STOP_S = 10.0


class ConsoleShell:
    """One console on one stream. `running` serves it.

    show: prints lines. core: keeps its state over several streams, of one session after another.
    """

    def __init__(self, core: Console, show: Callable[[Sequence[str]], None]) -> None:
        self.core = core
        self.over = False
        self.results: list[LineResult] = []
        self._show = show
        self._channel: Channel | None = None
        #: Set, and replaced, with everything that happens.
        self._changed = asyncio.Event()
        self._ranks_known = asyncio.Event()

    @asynccontextmanager
    async def running(self, channel: Channel) -> AsyncIterator[asyncio.Task[None]]:
        """Serve the stream; the task ends with it. Raises the session's refusal."""
        self._channel = channel
        self._ranks_known.clear()
        reading = asyncio.create_task(self._read(channel))
        ticking = asyncio.create_task(self._tick())
        known = asyncio.create_task(self._ranks_known.wait())
        try:
            await asyncio.wait(
                [reading, known], timeout=_FIRST_S, return_when=asyncio.FIRST_COMPLETED
            )
            if reading.done():
                raise await _refusal(channel)
            yield reading
        finally:
            self._channel = None
            await cancel_all(reading, ticking, known)

    def type(self, line: str) -> None:
        """Take a line that the user typed."""
        self._apply(self.core.line(line, _now()))

    def interrupt(self) -> None:
        """Wait for no more answers."""
        self._apply(self.core.interrupt(_now()))

    def lose_session(self) -> None:
        """The session is gone: end the lines that wait for it."""
        self._apply(self.core.lose_session(_now()))

    async def all_there(self, limit_s: float = _THERE_S) -> None:
        """Return once every rank of the program has dialled in, or after the limit."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self.until(lambda: self.core.all_there)

    async def idle(self) -> None:
        """Return once no line waits for answers."""
        await self.until(lambda: not self.core.busy)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return once the condition holds, or the console is left."""
        while not condition() and not self.over:
            await self._changed.wait()

    async def give(self, line: str, *, last: bool) -> None:
        """Take a line of a script; return once it is answered.

        Ranks that it lets run have 10 s to stop: the next line is for where they stop.
        """
        stood = not self.core.moving and not last
        self.type(line)
        await self.idle()
        if stood:
            await self._stop()

    async def follow(self, line: str) -> None:
        """As `give`, but wait without a limit until the first of those ranks stands, or all end."""
        before = self.core.standing
        self.type(line)
        await self.idle()
        if before - self.core.standing:
            await self.until(lambda: not self.core.moving or bool(self.core.standing - before))
            # The others may wait for that one in a collective.
            await self._stop()

    async def _stop(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_S):
                await self.until(lambda: not self.core.moving)

    async def _read(self, channel: Channel) -> None:
        frames = DapReader()
        with contextlib.suppress(DapError):
            while data := await channel.read():
                for body in frames.feed(data):
                    message = parse(body)
                    # The session makes them; the core takes nothing else.
                    self._apply(self.core.message(cast("ToConsole", message), _now()))
                    if message.get("type") == "roster":
                        self._ranks_known.set()

    async def _tick(self) -> None:
        while True:
            changed, due_s = self._changed, self.core.due_s
            left_s = None if due_s is None else max(0.0, due_s - _now())
            try:
                async with asyncio.timeout(left_s):
                    await changed.wait()
            except TimeoutError:
                self._apply(self.core.tick(_now()))

    def _apply(self, step: Step) -> None:
        for message in step.send:
            if self._channel is not None and not self._channel.is_over:
                self._channel.write_nowait(frame(dump(message)))
        if step.show:
            self._show(step.show)
        self.results += step.done
        self.over = self.over or step.over
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


async def run_lines(shell: ConsoleShell, lines: Sequence[str], lost: asyncio.Task[None]) -> int:
    """Give the console each line once the one before is answered; return the exit code.

    A line that is refused is the last one.
    Raises NoSessionError if the session ends meanwhile.
    """
    for number, line in enumerate(lines, 1):
        waiting = asyncio.create_task(shell.give(line, last=number == len(lines)))
        try:
            await asyncio.wait([waiting, lost], return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                raise NoSessionError(
                    "the session ended before all ranks had answered",
                    hint="`tk logs --session` shows why",
                )
        finally:
            await cancel_all(waiting)
        # What comes after a line that was refused was meant for other ranks.
        if shell.over or any(one.refusal for one in shell.results):
            break
    return exit_code(shell.results)


def exit_code(results: Sequence[LineResult]) -> int:
    """Return 0 if every rank has answered every line."""
    if any(one.refusal for one in results):
        return int(ExitCode.USAGE)
    return int(ExitCode.OK if all(one.all_answered for one in results) else ExitCode.DEBUG)


def results_json(results: Sequence[LineResult]) -> str:
    """Return the lines' results as JSON."""
    return json.dumps(
        [
            {
                "line": one.line,
                "ranks": list(one.ranks),
                "answers": [
                    {"ranks": list(block.ranks), "text": block.text} for block in one.blocks
                ],
                "unanswered": [
                    {"ranks": list(missing.ranks), "reason": missing.reason}
                    for missing in one.unanswered
                ],
                "refusal": one.refusal or None,
            }
            for one in results
        ]
    )


async def _refusal(channel: Channel) -> TunnelkitError:
    detail = await channel.closed() or {}
    failure = detail.get("failure")
    if isinstance(failure, dict):
        return TunnelkitError.from_json(failure)
    return DebugError("the session does not serve a console", hint="see `tk logs --session`")


def _now() -> float:
    return asyncio.get_running_loop().time()
