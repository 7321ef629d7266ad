"""A debuggee that tk and its consoles talk to, while its adapter serves an editor."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence

from tunnelkit.debug.dap.messages import Message
from tunnelkit.debug.dap.shared_connection import FIRST_SEQ, SharedConnection
from tunnelkit.debug.ranks.question import Position
from tunnelkit.errors import DebugError
from tunnelkit.mux.channel import Channel

#: Names a console, in all that it does.
Client = object
OnEvent = Callable[[Message], None]


class SharedDebuggee:
    """The connection of one debuggee over `channel`. `close` it with the channel.

    connection: takes the bytes of both directions. on_end: called when the program has said that
    it ends, while a console is there.
    """

    def __init__(self, channel: Channel, on_end: Callable[[], None] = lambda: None) -> None:
        first = FIRST_SEQ + secrets.randbelow(2**20) * 2**20
        self.connection = SharedConnection(first, self._event)
        #: The process has the code that answers where it is.
        self.knows_look = False
        self._channel = channel
        self._on_end = on_end
        self._consoles: dict[Client, OnEvent] = {}
        self._answers: set[asyncio.Future[Message]] = set()
        self._joining = asyncio.Lock()
        self._joined = False
        #: The question where it is that has no answer yet; it ends with the connection.
        self.look: asyncio.Task[Position | None] | None = None

    @property
    def watched(self) -> bool:
        """True while a console is there."""
        return bool(self._consoles)

    # -- requests ---------------------------------------------------------

    async def ask(self, command: str, arguments: Mapping[str, object]) -> Message:
        """Send a request; return its response. Raises ConnectionError if the debuggee hangs up."""
        answer = self._expect()
        self._send(self.connection.ask(command, arguments, _sets(answer)))
        return await self._answer(answer)

    async def set_breakpoints(
        self, client: Client, path: str, breakpoints: Sequence[Message]
    ) -> Message:
        """Replace a console's breakpoints in a file; as `ask`, and the answer has only its own."""
        answer = self._expect()
        self._send(self.connection.set_breakpoints(client, path, breakpoints, _sets(answer)))
        return await self._answer(answer)

    async def set_filters(self, client: Client, arguments: Message) -> Message:
        """Replace the exceptions at which a console wants it to stop; as `ask`."""
        answer = self._expect()
        self._send(self.connection.set_filters(client, arguments, _sets(answer)))
        return await self._answer(answer)

    async def join(self, attach: Mapping[str, object]) -> None:
        """Get ready to set breakpoints in a program that has not begun. Idempotent.

        attach: arguments of `attach`. Raises DebugError if the debuggee refuses, ConnectionError.
        """
        async with self._joining:
            if not self._joined:
                arguments = {"adapterID": "tunnelkit", "pathFormat": "path"}
                await self._grant("initialize", arguments)
                # pydevd stops at the first line of what was launched only.
                await self._grant("launch" if attach.get("stopOnEntry") else "attach", attach)
                self._joined = True

    async def begin(self, attach: Mapping[str, object]) -> None:
        """Let the program begin, or take part in one that has begun. As `join`."""
        await self.join(attach)
        await self._grant("configurationDone", {})
        self.connection.configured = True

    async def let_run(self) -> None:
        """Let a process run that waits for a debugger and gets none. Raises ConnectionError."""
        await self.ask("initialize", {"adapterID": "tunnelkit"})
        for command in ("attach", "configurationDone", "disconnect"):
            await self.ask(command, {})

    async def _grant(self, command: str, arguments: Mapping[str, object]) -> None:
        response = await self.ask(command, arguments)
        if response.get("success") is not True:
            raise DebugError(
                "the debugger refuses the console",
                cause=f"{command}: {response.get('message')}",
                hint="is debugpy on the node older than 1.8? `tk doctor` tells",
            )

    def _expect(self) -> asyncio.Future[Message]:
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._answers.add(answer)
        return answer

    async def _answer(self, answer: asyncio.Future[Message]) -> Message:
        try:
            return await answer
        finally:
            self._answers.discard(answer)

    def _send(self, request: bytes) -> None:
        if request and not self._channel.is_over:
            self._channel.write_nowait(request)

    async def pause(self, patience_s: float) -> bool:
        """Pause all threads, as a console does; False if none has stopped after that time."""
        client, stopped = object(), asyncio.Event()
        self.watch(client, lambda event: stopped.set() if self.connection.is_stopped else None)
        try:
            async with asyncio.timeout(patience_s):
                if not self.connection.is_stopped:
                    await self.ask("pause", {"threadId": "*"})
                    await stopped.wait()
        except (TimeoutError, ConnectionError):
            pass
        finally:
            self.unwatch(client)
        return self.connection.is_stopped

    # -- consoles -----------------------------------------------------------

    def watch(self, client: Client, on_event: OnEvent) -> None:
        """Send the console every event that says whether the program stands."""
        self._consoles[client] = on_event
        self.connection.watched = True

    def unwatch(self, client: Client) -> None:
        """Forget a console that leaves, and its breakpoints."""
        if self._consoles.pop(client, None) is not None:
            self.connection.watched = self.watched
            self._send(self.connection.drop_client(client))

    def _event(self, event: Message) -> None:
        for on_event in list(self._consoles.values()):
            on_event(event)
        if event.get("event") == "terminated":
            self._on_end()

    def close(self) -> None:
        """Give up all questions."""
        answers, self._answers = self._answers, set()
        for answer in answers:
            if not answer.done():
                answer.set_exception(ConnectionError("the process has hung up"))
                # The task that asked may have given it up.
                answer.exception()


def _sets(answer: asyncio.Future[Message]) -> Callable[[Message], None]:
    def answered(message: Message) -> None:
        if not answer.done():
            answer.set_result(message)

    return answered
