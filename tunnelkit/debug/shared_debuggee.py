"""A debuggee that tk and its consoles talk to, while its adapter serves an editor."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tunnelkit.debug.ahead.habits import Habits
from tunnelkit.debug.ahead.read_ahead import ReadAhead
from tunnelkit.debug.dap.messages import Message, section, text
from tunnelkit.debug.dap.shared_connection import FIRST_SEQ, SharedConnection
from tunnelkit.debug.ranks.question import Position, position, where_are_you
from tunnelkit.debug.ranks.sample import Failure
from tunnelkit.errors import DebugError
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.tasks import start

#: Names a console, in all that it does.
Client = object
OnEvent = Callable[[Message], None]
#: Of an exception's text.
_LONGEST_TEXT = 500


@dataclass(frozen=True)
class RaisedException:
    """An exception that a rank is stopped at.

    uncaught: it ends the program, as no code has caught it. file, line: where it was raised, on the
    node. at_s: on the clock of the event loop.
    """

    type: str
    text: str
    uncaught: bool
    file: str
    line: int
    at_s: float

    @property
    def place(self) -> str:
        """`train.py:4`; "" if it is unknown."""
        name = self.file.rpartition("/")[2]
        return f"{name}:{self.line}" if name else ""

    def failure(self, now_s: float) -> Failure | None:
        """Return it as the failure of its rank; None if it is none."""
        return Failure(self.type, self.text, now_s - self.at_s) if self.uncaught else None


class SharedDebuggee:
    """The connection of one debuggee over `channel`. `close` it with the channel.

    connection: takes the bytes of both directions. on_end: called when the program has said that
    it ends, while a console is there. on_raised: when it is known at which exception it stands.
    habits: of the editors, to read ahead for them; None: nothing is.
    """

    def __init__(
        self,
        channel: Channel,
        on_end: Callable[[], None] = lambda: None,
        on_raised: Callable[[RaisedException], None] = lambda raised: None,
        habits: Habits | None = None,
    ) -> None:
        first = FIRST_SEQ + secrets.randbelow(2**20) * 2**20
        self._ahead = None if habits is None else ReadAhead(habits)
        self.connection = SharedConnection(first, self._event, self._ahead)
        #: The process has the code that answers where it is.
        self.knows_look = False
        self._channel = channel
        self._on_end = on_end
        self._on_raised = on_raised
        self._raised: RaisedException | None = None
        self._exit: Message | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._consoles: dict[Client, OnEvent] = {}
        self._answers: set[asyncio.Future[Message]] = set()
        self._joining = asyncio.Lock()
        self._joined = False
        self._closed = False
        #: The question where it is that has no answer yet; it ends with the connection.
        self.look: asyncio.Task[Position | None] | None = None

    @property
    def watched(self) -> bool:
        """True while a console is there."""
        return bool(self._consoles)

    @property
    def raised(self) -> RaisedException | None:
        """The exception that it is stopped at."""
        return self._raised if self.connection.is_stopped else None

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

    async def begin(self, attach: Mapping[str, object], *, keeps: bool = False) -> None:
        """Let the program begin, or take part in one that has begun. As `join`.

        keeps: stop it at uncaught exceptions.
        """
        await self.join(attach)
        if keeps or self.connection.keeps:
            await self.keep_failures()
        await self._grant("configurationDone", {})
        self.connection.configured = True

    async def let_run(self) -> None:
        """Let a process run that waits for a debugger and gets none. Raises ConnectionError."""
        await self.ask("initialize", {"adapterID": "tunnelkit"})
        for command in ("attach", "configurationDone", "disconnect"):
            await self.ask(command, {})

    async def keep_failures(self) -> None:
        """Stop the program at uncaught exceptions from now on. As `ask`."""
        answer = self._expect()
        self._send(self.connection.keep_failures(_sets(answer)))
        await self._answer(answer)

    async def position(self) -> Position | None:
        """Ask where it is; None if it does not tell."""
        try:
            if self.knows_look:
                found = position(await self.ask("evaluate", where_are_you(known=True)))
                if found is not None:
                    return found
            found = position(await self.ask("evaluate", where_are_you(known=False)))
        except ConnectionError:
            return None
        self.knows_look = found is not None
        return found

    async def _grant(self, command: str, arguments: Mapping[str, object]) -> None:
        response = await self.ask(command, arguments)
        if response.get("success") is not True:
            raise DebugError(
                "the debugger refuses the console",
                cause=f"{command}: {response.get('message')}",
                hint="is debugpy on the node older than 1.8? `tk doctor` tells",
            )

    def _expect(self) -> asyncio.Future[Message]:
        if self._closed:
            raise ConnectionError("the process has hung up")
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._answers.add(answer)
        return answer

    async def _answer(self, answer: asyncio.Future[Message]) -> Message:
        try:
            return await answer
        finally:
            self._answers.discard(answer)

    def editor_left(self) -> None:
        """Note that its editor has gone: nothing is read ahead."""
        if self._ahead is not None:
            self._send(self._ahead.editor_left())

    def _send(self, request: bytes) -> None:
        if request and not self._channel.is_over:
            # Many ranks are asked at once.
            self._channel.write_soon(request)

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
        """Send the console every event that says whether the program stands.

        `tkRaised`, an event of tk's own, follows a stop at an exception: `raised` is known.
        """
        self._consoles[client] = on_event
        self.connection.watched = True

    def unwatch(self, client: Client) -> None:
        """Forget a console that leaves, and its breakpoints."""
        if self._consoles.pop(client, None) is not None:
            self.connection.watched = self.watched
            self._send(self.connection.drop_client(client))

    def _event(self, event: Message) -> None:
        name, body = event.get("event"), section(event, "body")
        if name == "exited":
            # It comes from within the program's process (debuggee/debugpy_launcher.py), as its code
            # ends; threads of it may go on.
            self._exit = event
            return
        if name == "terminated" and self._exit is not None:
            self._tell(self._exit)
        self._tell(event)
        if name == "terminated":
            self._on_end()
        elif name == "stopped" and body.get("reason") == "exception":
            start(self._tasks, self._learn(body))
        elif name == "continued" and not self.connection.is_stopped:
            self._raised = None

    def _tell(self, event: Message) -> None:
        for on_event in list(self._consoles.values()):
            on_event(event)

    async def learned(self, patience_s: float) -> None:
        """Wait until it is known at which exception it has stopped, if it has."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=patience_s)

    async def _learn(self, stop: Message) -> None:
        """Find out at which exception it has stopped, and whether anything catches that."""
        now_s = asyncio.get_running_loop().time()
        found = await self.position()
        if stop not in [section(one, "body") for one in self.connection.stops]:
            return  # it runs on
        failed = found["failed"] if found is not None else ""
        frames = found["frames"] if found is not None else ()
        self._raised = raised = RaisedException(
            type=failed or text(stop.get("text"))[:_LONGEST_TEXT] or "an exception",
            text=text(stop.get("description"))[:_LONGEST_TEXT],
            uncaught=bool(failed),
            file=frames[-1].file if frames else "",
            line=frames[-1].line if frames else 0,
            at_s=now_s,
        )
        self._tell({"type": "event", "event": "tkRaised", "body": {}})
        self._on_raised(raised)

    def close(self) -> None:
        """Give up all questions."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
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
