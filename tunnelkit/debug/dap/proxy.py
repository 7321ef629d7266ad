"""One editor and one adapter talking, with the DAP session (session.py) between them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass

from tunnelkit.debug.dap.breakpoints import BreakpointCheck
from tunnelkit.debug.dap.editor_port import Editor
from tunnelkit.debug.dap.exit_report import RunEnd, cost
from tunnelkit.debug.dap.path_mappings import MappedRoots
from tunnelkit.errors import TunnelkitError
from tunnelkit.mux.dap_framing import DapReader, frame
from tunnelkit.mux.splice import quick_ack
from tunnelkit.mux.tasks import cancel_all, start
from tunnelkit.text_format import out_of_memory

_READ_BYTES = 64 * 1024
#: A breakpoint's answer waits this long at most for what the node says of its file.
_COMPARE_PATIENCE_S = 3.0
#: A pause that has stopped nothing after this long is spoken about.
_PAUSE_PATIENCE_S = 3.0
#: An adapter that an editor has left has this long to let go of it.
_LEAVE_PATIENCE_S = 0.5
#: The editor hears of the end this long at most after the program's last word: the group's
#: end and its exit code come in between. On a busy machine that took more than 2 s.
_END_PATIENCE_S = 5.0
#: Once the program has ended, an adapter that is silent this long is not going to tell it.
_SILENCE_S = 1.0


@dataclass(frozen=True)
class SourceFiles:
    """Maps the editor's files to the node's.

    differs: the reason why a local file differs there, in words; None if it doesn't, or can't be
    compared.
    """

    mirror: MappedRoots
    differs: Callable[[str], Awaitable[str | None]]


class DapProxy:
    """Carries both directions; `run` ends when either side hangs up.

    on_request is called after each batch from the editor, before the adapter gets it;
    on_answer after each batch from the adapter, before the editor gets it; on_gone when the
    editor has hung up, before the adapter can know. opening: for the adapter to begin with,
    if the editor has been heard (and answered) before.
    ending: done once the debuggee's end is known.
    """

    def __init__(
        self,
        editor: Editor,
        adapter: socket.socket,
        *,
        place: SourceFiles | None,
        ending: asyncio.Future[RunEnd],
        on_request: Callable[[], Awaitable[None]],
        on_answer: Callable[[], None],
        on_gone: Callable[[], Awaitable[None]],
        opening: list[bytes] | None = None,
    ) -> None:
        self._editor = editor
        self._adapter = adapter
        self._session = editor.session
        self._place = place
        self._ending = ending
        self._on_request = on_request
        self._on_answer = on_answer
        self._on_gone = on_gone
        self._opening = opening
        #: Fair, so what the session returns is sent in the order of its calls.
        self._sending = asyncio.Lock()
        self._telling = asyncio.Lock()
        #: Set (and replaced) with everything that the adapter says.
        self._answered = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._adapter_lost = False
        self._end_told: asyncio.Task[None] | None = None
        #: When the editor let the program go; None: not yet.
        self._began_s: float | None = None

    async def run(self) -> bool:
        """Carry on until one side hangs up; True if it was the adapter."""
        up = asyncio.create_task(self._up())
        down = asyncio.create_task(self._down())
        self._spawn(self._see_to_the_end())
        try:
            await asyncio.wait([up, down], return_when=asyncio.FIRST_COMPLETED)
            adapter_first = self._adapter_lost or (down.done() and not up.done())
            if not down.done():
                # The editor hung up; what the adapter does of it is its own affair.
                await cancel_all(down)
                await self._take_leave()
            return adapter_first
        finally:
            await cancel_all(up, down, *self._tasks)

    async def _take_leave(self) -> None:
        """Let the adapter finish with the editor that has gone.

        One that can't send its answer to a `disconnect` dies, and takes the debuggee from the next
        editor.
        """
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_LEAVE_PATIENCE_S):
                await self._tell_adapter(self._session.hang_up())
                if not self._session.facts.attached:
                    self._adapter.shutdown(socket.SHUT_WR)
                while await loop.sock_recv(self._adapter, _READ_BYTES):
                    pass

    async def pause(self) -> bool:
        """Pause the program as if the editor had asked.

        False: nothing has stopped after a few seconds (the editor gets the reason, and it may stop
        yet).
        """
        if not self._session.is_stopped and not self._session.terminated:
            await self._tell_adapter(self._session.pause())
            self._note_progress()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE_PATIENCE_S):
                    while not self._session.is_stopped and not self._session.terminated:
                        await self._answered.wait()
        return self._session.is_stopped

    async def _tell_adapter(self, bodies: list[bytes]) -> bool:
        try:
            async with self._telling:
                await asyncio.get_running_loop().sock_sendall(self._adapter, _framed(bodies))
        except OSError:
            self._adapter_lost = True
        return not self._adapter_lost

    async def _up(self) -> None:
        opening = self._session.next_adapter() if self._opening is None else self._opening
        if not await self._tell_adapter(opening):
            return
        while bodies := await self._editor.receive():
            to_adapter: list[bytes] = []
            to_editor: list[bytes] = []
            for body in bodies:
                routed = self._session.from_editor(body)
                to_adapter += routed.to_adapter
                to_editor += routed.to_editor
            await self.send(to_editor)
            await self._on_request()
            if self._session.facts.over:
                return
            self._note_progress()
            if not await self._tell_adapter(to_adapter):
                return
        await self._on_gone()

    def _note_progress(self) -> None:
        """Act on what the editor's messages ask of tk, beside passing them on."""
        for check in self._session.take_checks():
            self._spawn(self._compare(check))
        if (asked := self._session.take_pause()) is not None:
            self._spawn(self._await_pause(asked))
        if self._session.facts.configuration_done and self._began_s is None:
            self._began_s = self._now()

    async def _down(self) -> None:
        frames = DapReader()
        while data := await self._receive():
            out = self._session.from_adapter(frames.feed(data), self._now())
            self._on_answer()
            await self.send(out)
            answered, self._answered = self._answered, asyncio.Event()
            answered.set()
            self._await_end()
        if self._session.facts.attached:
            if self._end_told is None and self._lost:
                await self.send(self._session.give_up(self._lost))
            out = self._session.adapter_gone()
            self._on_answer()
            await self.send(out)
            self._await_end()
            if self._end_told is not None:
                await self._end_told

    async def _see_to_the_end(self) -> None:
        """End a session whose program became another one by exec.

        Its adapter waits for the next Python; once the program has ended none will come, and the
        editor gets the end.
        """
        await asyncio.wait([self._ending])
        while not await self._is_silent():
            pass
        if self._session.facts.attached and not self._session.terminated:
            out = self._session.adapter_gone()
            self._on_answer()
            await self.send(out)
            self._await_end()

    async def _is_silent(self) -> bool:
        """Wait until the adapter says something (False), or has been silent for a while.

        One whose words the editor is slow to take is not silent.
        """
        try:
            async with asyncio.timeout(_SILENCE_S):
                await self._answered.wait()
        except TimeoutError:
            return not self._sending.locked()
        return False

    async def _receive(self) -> bytes:
        """The adapter's next bytes; meanwhile, output that was held goes out in time."""
        loop = asyncio.get_running_loop()
        if self._session.due_s is None:
            data = await loop.sock_recv(self._adapter, _READ_BYTES)
        else:
            receiving = asyncio.ensure_future(loop.sock_recv(self._adapter, _READ_BYTES))
            try:
                while self._session.due_s is not None:
                    left_s = max(0.0, self._session.due_s - self._now())
                    await asyncio.wait([receiving], timeout=left_s)
                    if receiving.done():
                        break
                    await self.send(self._session.on_time(self._now()))
                data = await receiving
            finally:
                await cancel_all(receiving)
        quick_ack(self._adapter)
        return data

    async def _await_pause(self, asked: int) -> None:
        await asyncio.sleep(_PAUSE_PATIENCE_S)
        await self.send(self._session.not_paused(asked))

    def _await_end(self) -> None:
        if self._session.end_awaited and self._end_told is None:
            self._end_told = self._spawn(self._tell_end())

    async def _tell_end(self) -> None:
        """`terminated` is held until it is known how the debuggee ended."""
        ran_s = None if self._began_s is None else self._now() - self._began_s
        try:
            how = await asyncio.wait_for(asyncio.shield(self._ending), _END_PATIENCE_S)
        except TimeoutError:
            await self.send(self._session.give_up())
            return
        if how.code is None and how.signal is None:
            await self.send(self._session.give_up(how.lost))
        else:
            took = cost(ran_s, how.peak_rss_bytes)
            why = "" if how.why == "ended" else how.why
            detail = ", ".join(filter(None, (why, took, out_of_memory(how.oom_kills))))
            await self.send(self._session.ended(how.code, how.signal, detail))

    @property
    def _lost(self) -> str:
        """The reason why the debuggee's end will never be known; "" if it may be."""
        return self._ending.result().lost if self._ending.done() else ""

    async def _compare(self, check: BreakpointCheck) -> None:
        assert self._place is not None
        comparing = asyncio.ensure_future(self._place.differs(check.path))
        try:
            await asyncio.wait([comparing], timeout=_COMPARE_PATIENCE_S)
            if not comparing.done():
                await self.send(self._session.overdue(check.seq))
            try:
                reason = await comparing
            except TunnelkitError:
                reason = None
            if reason is None:
                await self.send(self._session.same(check.seq))
            else:
                await self.send(self._session.differs(check.seq, reason))
        finally:
            await cancel_all(comparing)

    async def send(self, bodies: list[bytes]) -> None:
        """Send messages to the editor. Raises OSError if it is gone."""
        if bodies:
            async with self._sending:
                await self._editor.send(_framed(bodies))

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        async def quietly() -> None:
            # The editor may be gone before its answer.
            with contextlib.suppress(OSError):
                await work

        return start(self._tasks, quietly())

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _framed(bodies: list[bytes]) -> bytes:
    return b"".join(map(frame, bodies))
