"""The protocol of one exec, `v5.channel.k8s.io`, on top of WebSocket messages. No I/O.

A binary message is a channel's number and its bytes. On channel 3 the API server says at the end
how the process ended; without it the stream was cut. `255 0` is the end of stdin.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from tunnelkit.link.kube import frames
from tunnelkit.link.kube.printable import printable

PROTOCOL = "v5.channel.k8s.io"
STDIN, STDOUT, STDERR, STATUS, CLOSE_CHANNEL = 0, 1, 2, 3, 255
#: Most bytes of stdin in one message.
PIECE_BYTES = 1 << 16
#: Exit statuses as a shell gives them: the program can't be started, it is not there.
NOT_STARTED, NOT_FOUND = 126, 127
_MOST_STATUS_BYTES = 1 << 16
_MISSING = re.compile(r"executable file not found|no such file or directory|not found in \$PATH")
_DENIED = re.compile(r"permission denied", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Output:
    """Bytes of the process's stdout or stderr."""

    channel: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """Bytes to send back: a pong, or the answer to a close."""

    data: bytes


@dataclass(frozen=True, slots=True)
class ExecEnd:
    """The API server's word on the end.

    exit_code: the process's; NOT_FOUND or NOT_STARTED if it never was one; None if the API server
    could not run it, or lost it. message: the API server's, printable, for the two latter."""

    exit_code: int | None
    message: str = ""


class ExecProtocol:
    """One exec, from the first byte after the upgrade. `receive` has what came, the rest sends."""

    def __init__(self) -> None:
        self._decoder = frames.Decoder()
        #: The end, once the API server has reported it.
        self.end: ExecEnd | None = None

    def receive(self, data: bytes) -> list[Output | Answer]:
        """Take bytes in any pieces. Raises FrameError if they break the protocol."""
        found: list[Output | Answer] = []
        for message in self._decoder.feed(data):
            if message.opcode == frames.PING:
                found.append(Answer(frames.encode(frames.PONG, message.data)))
            elif message.opcode == frames.CLOSE:
                found.append(Answer(frames.encode(frames.CLOSE, message.data[:2])))
            elif message.opcode in (frames.BINARY, frames.TEXT) and len(message.data) > 1:
                self._take(message.data[0], message.data[1:], found)
        return found

    def _take(self, channel: int, data: bytes, found: list[Output | Answer]) -> None:
        if channel in (STDOUT, STDERR):
            found.append(Output(channel, data))
        elif channel == STATUS and self.end is None:
            self.end = parse_status(data)

    @staticmethod
    def stdin(data: bytes) -> bytes:
        """Return the frames that carry `data` to the process."""
        view = memoryview(data)
        return b"".join(
            frames.encode(frames.BINARY, b"\0" + view[at : at + PIECE_BYTES])
            for at in range(0, len(data), PIECE_BYTES)
        )

    @staticmethod
    def end_stdin() -> bytes:
        """Return the frame after which the process reads the end of its stdin."""
        return frames.encode(frames.BINARY, bytes((CLOSE_CHANNEL, STDIN)))


def parse_status(data: bytes) -> ExecEnd:
    """Read the Status object of channel 3; all that it says may be missing or wrong."""
    try:
        status = json.loads(data[:_MOST_STATUS_BYTES])
    except (ValueError, RecursionError):
        return ExecEnd(None, "the API server's last word can't be read")
    if not isinstance(status, dict):
        return ExecEnd(None, "the API server's last word can't be read")
    if status.get("status") == "Success":
        return ExecEnd(0)
    text = printable(str(status.get("message") or status.get("reason") or "no reason given"))
    code = _exit_code(status)
    if code is not None:
        return ExecEnd(code)
    return ExecEnd(not_started(text), text)


def not_started(text: str) -> int | None:
    """Return the exit status for a runtime's words on a program that it could not start."""
    if _MISSING.search(text):
        return NOT_FOUND
    return NOT_STARTED if _DENIED.search(text) and "exec" in text else None


def _exit_code(status: dict[str, object]) -> int | None:
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    if status.get("reason") != "NonZeroExitCode" or not isinstance(causes, list):
        return None
    for cause in causes[:8]:
        if isinstance(cause, dict) and cause.get("reason") == "ExitCode":
            text = str(cause.get("message"))
            if re.fullmatch(r"[0-9]{1,3}", text) and int(text) <= 255:
                return int(text)
    return None
