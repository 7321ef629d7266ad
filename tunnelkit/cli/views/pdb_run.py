"""The run of a program under `tk pdb`, as the records of its loop tell it."""

from __future__ import annotations

import asyncio
import codecs
import signal
import sys

from tunnelkit.cli.terminal.output import note, paint
from tunnelkit.debug.dap.messages import Message, text, whole
from tunnelkit.errors import ExitCode, TunnelkitError
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.loop_records import EVENT, STDERR, STDOUT, LoopRecord, RecordReader
from tunnelkit.session.debugging.loop_messages import event_text

#: Events that the user of a console sees, beside what the console says itself.
_SHOWN = frozenset({"no-relay", "node-lost", "notice", "time-limit", "lost", "skipped"})


class PdbRun:
    """One run. `read` follows its records; those of a later session tell of the same run.

    loop: the id of its loop. port: for editors. debugged: set once somebody debugs it. ended: the
    event of its end.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.loop: asyncio.Future[int] = loop.create_future()
        self.port = 0
        self.debugged = asyncio.Event()
        #: The session of now has the loop.
        self.there = asyncio.Event()
        self.ended: asyncio.Future[Message] = loop.create_future()
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {STDOUT: decoder("replace"), STDERR: decoder("replace")}
        #: Records that were shown; a later session sends the last ones again.
        self._shown = -1

    async def read(self, channel: Channel) -> None:
        """Show the program's output until the stream ends. Raises the session's refusal."""
        reader = RecordReader()
        while data := await channel.read():
            for record in reader.feed(data):
                self._take(record)
        detail = await channel.closed() or {}
        failure = detail.get("failure")
        if isinstance(failure, dict):
            raise TunnelkitError.from_json(failure)

    def _take(self, record: LoopRecord) -> None:
        if record.kind == EVENT:
            self._event(record.event())
        elif record.number > self._shown:
            self._shown = record.number
            stream = sys.stdout if record.kind == STDOUT else sys.stderr
            stream.write(self._decoders[record.kind].decode(record.payload))
            stream.flush()

    def _event(self, event: Message) -> None:
        name, number = event.get("event"), whole(event.get("id"))
        if name == "loop" and number is not None:
            notes = event.get("notes")
            for one in notes if isinstance(notes, list) else ():
                say(text(one))
            self.port = whole(event.get("port")) or 0
            if not self.loop.done():
                self.loop.set_result(number)
            self.there.set()
        elif name == "attached":
            self.debugged.set()
        elif name == "ended" and not self.ended.done():
            self.ended.set_result(event)
        elif name in _SHOWN:
            say(event_text(event))

    def exit_code(self) -> int:
        """Return the exit code of the ended program, as a shell gives it."""
        event = self.ended.result()
        if event.get("error"):
            say(text(event.get("error")))
            return int(ExitCode.DEBUG)
        if name := text(event.get("signal")):
            return 128 + int(getattr(signal, name, signal.SIGKILL))
        return whole(event.get("code")) or 0


def say(words: str) -> None:
    """Show a line of tk's own."""
    note(f"{paint('[tk]', 'cyan', sys.stderr)} {words}")
