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
from tunnelkit.text_format import shown

#: Events that the user of a console sees, beside what the console says itself.
_SHOWN = frozenset({"no-relay", "node-lost", "notice", "time-limit", "lost", "skipped"})


#: Of an unfinished line, in characters.
_LONGEST_LINE = 20_000


class _Output:
    """One output stream of the program.

    hold_s: 0: shown as it comes. Else beside a prompt, which is drawn at the left edge, over what
    has no end: shown in whole lines. A line that is unfinished for so long is shown as it is by
    then, and again when there is more of it, each time after twice the time.
    """

    def __init__(self, write: Callable[[str], None], hold_s: float) -> None:
        self._write = write
        self._hold_s = hold_s
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line = ""
        #: What was shown of that line.
        self._shown = ""
        self._wait_s = hold_s
        self._timer: asyncio.TimerHandle | None = None

    def feed(self, payload: bytes) -> None:
        """Show the lines that are complete."""
        text = self._decoder.decode(payload)
        if not self._hold_s:
            self._write(text)
            return
        lines, newline, line = (self._line + text).rpartition("\n")
        lines += newline
        if newline:
            if self._shown and lines.startswith(self._shown + newline):
                lines = lines[len(self._shown) + 1 :]
            if lines:
                self._write(lines)
            self._begin()
        # A progress bar goes back to the begin of its line.
        end = "\r" if line.endswith("\r") else ""
        self._line = line.removesuffix(end).rpartition("\r")[2] + end
        if len(self._line) > _LONGEST_LINE:
            self.flush()
            self._begin()
        elif self._line != self._shown and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._wait_s, self.flush)

    def flush(self) -> None:
        """Show an unfinished line, too."""
        self._let_go()
        line = self._line.removesuffix("\r")
        if line and line != self._shown:
            self._write(line + "\n")
            self._shown = line
            self._wait_s *= 2

    def _begin(self) -> None:
        """Begin another line."""
        self._let_go()
        self._line, self._shown, self._wait_s = "", "", self._hold_s

    def _let_go(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()


class PdbRun:
    """One run. `read` follows its records; those of a later session tell of the same run.

    loop: the id of its loop. port: for editors. debugged: set once somebody debugs it. ended: the
    event of its end.
    hold_s: see `_Output`; 0 without a console that writes to the same terminal.
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
    note(f"{paint('[tk]', 'cyan', sys.stderr)} {shown(words)}")
