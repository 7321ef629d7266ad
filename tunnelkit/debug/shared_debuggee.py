"""A debuggee that tk asks something itself, while its adapter serves an editor."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping

from tunnelkit.debug.dap.messages import Message
from tunnelkit.debug.dap.shared_connection import SharedConnection
from tunnelkit.mux.channel import Channel

_FIRST_SEQ = 2**30


class SharedDebuggee:
    """The connection of one debuggee over `channel`. `close` it with the channel.

    connection: takes the bytes of both directions.
    """

    def __init__(self, channel: Channel) -> None:
        self.connection = SharedConnection(_FIRST_SEQ + secrets.randbelow(2**20) * 2**20)
        #: The process has the code that answers where it is.
        self.knows_look = False
        self._channel = channel
        self._answers: set[asyncio.Future[Message]] = set()

    @property
    def is_silent(self) -> bool:
        """True while a question has no answer yet."""
        return bool(self._answers)

    async def ask(self, command: str, arguments: Mapping[str, object]) -> Message:
        """Send a request; return its response. Raises ConnectionError if the debuggee hangs up.

        A question that is given up stays one: `is_silent` is true until its answer comes.
        """
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        def answered(message: Message) -> None:
            self._answers.discard(answer)
            if not answer.done():
                answer.set_result(message)

        self._answers.add(answer)
        request = self.connection.ask(command, arguments, answered)
        if request and not self._channel.is_over:
            self._channel.write_nowait(request)
        return await asyncio.shield(answer)

    def close(self) -> None:
        """Give up all questions."""
        answers, self._answers = self._answers, set()
        for answer in answers:
            if not answer.done():
                answer.set_exception(ConnectionError("the process has hung up"))
                # Whoever asked may have given it up.
                answer.exception()
