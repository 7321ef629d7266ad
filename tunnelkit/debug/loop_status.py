"""A debug loop as its agent has reported it, and as `tk status --json` shows it."""

from __future__ import annotations

from typing import Literal, TypedDict

from tunnelkit.debug.dap.exit_report import early_end
from tunnelkit.debug.dap.messages import Message, whole
from tunnelkit.errors import DebugError

_STDERR_TAIL_BYTES = 4096
#: The states of the generation in front; others are reported beside it.
_STATES = frozenset({"starting", "armed", "attached", "kept", "ended", "waiting", "stopped"})


class RankStatus(TypedDict):
    """One rank that has dialled in. port: its own port for editors; None if it has none."""

    rank: int | None
    node: str
    pid: int
    port: int | None
    editor: str | None
    over: bool


#: "native": not stopped yet, as it is in native code. "waiting": its program has not begun.
#: "nobody": neither an editor nor a console is on it.
Pause = Literal["paused", "native", "waiting", "nobody", "ended"]


class InterruptStatus(TypedDict):
    """One process that was to pause. paused: it has stopped. where: the place, "" if unknown."""

    rank: int | None
    node: str
    pid: int
    paused: bool
    state: Pause
    where: str


class LoopStatus(TypedDict):
    """One debug loop.

    generation: number of the current run. standby: the debuggee that stands by, as the agent
    reports it (pid, rss_bytes, share_bytes). kept: where `--post-mortem` holds a program that
    died (error, where). ranks: None if the loop has no ranks. last_end: the end of the last run.
    """

    id: int
    command: object
    debug: bool
    port: int
    state: str
    generation: int
    pid: object
    editor: str | None
    standby: dict[str, int] | None
    kept: Message | None
    ranks: list[RankStatus] | None
    last_end: Message


class LoopProgress:
    """A loop as the agent has reported it; `note` takes each event.

    state: of the run in front, whose number is `front`. standby: the debuggee that stands by.
    kept: the exception that the program is kept at, while no editor is on it. failures: how often
    the loop has come to wait after a debuggee that no editor had.
    """

    def __init__(self) -> None:
        self.state = "new"
        self.front = 0
        self.pid: object = None
        self.standby: dict[str, int] = {}
        self.kept: Message = {}
        self.last_end: Message = {}
        self.failures = 0
        self._stderr = b""

    def note(self, event: Message, number: int) -> None:
        """Take an event of the agent, of run `number`."""
        name, ahead = str(event.get("event")), bool(event.get("ahead"))
        if name in _STATES and number >= self.front and not ahead:
            self.state = name
            self.front = number
            self.kept = event if name == "kept" else {}
        if name == "standby":
            numbers = {key: whole(value) for key, value in event.items() if key != "time"}
            self.standby = {key: one for key, one in numbers.items() if one is not None}
        elif name == "waiting":
            self.failures += 1
        elif name == "starting":
            self.pid = event.get("pid")
            self.standby = {}
            self._stderr = b""
        elif name == "ended":
            if number == self.front:
                self.last_end = event
            if ahead:
                self.standby = {}

    def note_stderr(self, data: bytes) -> None:
        """Take a piece of the program's stderr."""
        self._stderr = (self._stderr + data)[-_STDERR_TAIL_BYTES:]

    def early_end(self) -> DebugError:
        """Return the error for a program that ended before an editor could attach."""
        return early_end(self.last_end, self._stderr)
