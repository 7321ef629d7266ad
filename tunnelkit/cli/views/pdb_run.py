"""The run of a program under `tk pdb`, as the records of its loop tell it."""

from __future__ import annotations

import asyncio
import codecs
import signal
import sys
from collections.abc import Callable
from typing import TextIO

from tunnelkit.cli.terminal.output import note, paint
from tunnelkit.debug.dap.messages import Message, text, whole
from tunnelkit.errors import ExitCode, TunnelkitError
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.loop_records import EVENT, STDERR, STDOUT, LoopRecord, RecordReader
from tunnelkit.session.debugging.loop_messages import event_text

#: Events that the user of a console sees, beside what the console says itself.
_SHOWN = frozenset({"no-relay", "node-lost", "notice", "time-limit", "lost", "skipped"})


class _Output:
    """One output stream of the program, shown line by line.

    hold_s: how long a line may stay unfinished before it is shown; the program may ask something.
    """

    def __init__(self, write: Callable[[str], None], hold_s: float) -> None:
        self._write = write
        self._hold_s = hold_s
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line = ""
        self._timer: asyncio.TimerHandle | None = None

    def feed(self, payload: bytes) -> None:
        """Show the lines that are complete."""
        lines, newline, self._line = (self._line + self._decoder.decode(payload)).rpartition("\n")
        if newline:
            self._write(lines + newline)
            self._let_go()
        if not self._hold_s:
            self.flush()
        elif self._line and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._hold_s, self.flush)

    def flush(self) -> None:
        """Show an unfinished line, too."""
        self._let_go()
        line, self._line = self._line, ""
        if line:
            self._write(line)

    def _let_go(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()


class PdbRun:
    """One run. `read` follows its records; those of a later session tell of the same run.

    loop: the id of its loop. port: for editors. debugged: set once somebody debugs it. ended: the
    event of its end.
    hold_s: how long an unfinished line of the program waits for its rest. A console that writes to
    the same terminal would write into it.
    """

    def __init__(self, *, hold_s: float = 0.0) -> None:
        loop = asyncio.get_running_loop()
        self.loop: asyncio.Future[int] = loop.create_future()
        self.port = 0
        self.debugged = asyncio.Event()
        #: The session of now has the loop.
        self.there = asyncio.Event()
        self.ended: asyncio.Future[Message] = loop.create_future()
        self._output = {
            STDOUT: _Output(lambda text: _written(sys.stdout, text), hold_s),
            STDERR: _Output(lambda text: _written(sys.stderr, text), hold_s),
        }

    async def read(self, channel: Channel) -> None:
        """Show the program's output until the stream ends. Raises the session's refusal."""
        reader = RecordReader()
        try:
            while data := await channel.read():
                for record in reader.feed(data):
                    self._take(record)
        finally:
            self._flush()
        detail = await channel.closed() or {}
        failure = detail.get("failure")
        if isinstance(failure, dict):
            raise TunnelkitError.from_json(failure)

    def _take(self, record: LoopRecord) -> None:
        if record.kind == EVENT:
            self._event(record.event())
        else:
            self._output[STDOUT if record.kind == STDOUT else STDERR].feed(record.payload)

    def _flush(self) -> None:
        for output in self._output.values():
            output.flush()

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
            self._flush()
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


def _written(stream: TextIO, text: str) -> None:
    stream.write(text)
    stream.flush()


def say(words: str) -> None:
    """Show a line of tk's own."""
    note(f"{paint('[tk]', 'cyan', sys.stderr)} {words}")
