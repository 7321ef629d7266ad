"""One rank as the console knows it: stopped where, in which frame the user looks."""

from __future__ import annotations

from dataclasses import dataclass, field

from tunnelkit.debug.dap.messages import Message, objects, section, text, whole
from tunnelkit.debug.ranks.console_messages import State
from tunnelkit.debug.ranks.sample import Failure

#: Of a stack; pydevd is asked for no more.
MOST_FRAMES = 200
_LONGEST_NAME = 1_000
_LONGEST_EXCEPTION = 300
_LONGEST_TEXT = 500
#: pydevd writes the text of a chained exception before the names of its functions.
_CHAINED = "[Chained Exc: "
_MOST_STOPS = 64
_STATES: dict[str, State] = {
    "waiting": "waiting",
    "running": "running",
    "stopped": "stopped",
    "ended": "ended",
}


@dataclass(frozen=True)
class StoppedFrame:
    """A frame of a stopped thread. id: for requests, until the thread runs on. path: on the laptop
    where the mirror maps it. line: from 1. chained: the text of the exception that it belongs to,
    where that is the cause or context of another; "" for a frame of the stack itself. is_local:
    False if the path is the node's, whatever file the laptop has there."""

    id: int
    path: str
    line: int
    function: str
    chained: str = ""
    is_local: bool = True

    @property
    def file(self) -> str:
        """The name of the file, without its directories."""
        return self.path.replace("\\", "/").rpartition("/")[2]

    @property
    def place(self) -> str:
        """`train.py:88 step`."""
        return f"{self.file}:{self.line} {self.function}"


@dataclass(frozen=True)
class Raised:
    """An exception that a rank is stopped at.

    uncaught: it ends the program. place: `train.py:4`. at_s: when, on the laptop's monotonic clock.
    """

    kind: str
    text: str
    uncaught: bool
    place: str
    at_s: float

    @property
    def summary(self) -> str:
        """`ValueError: bad rank 2`, with the first line of the text."""
        return Failure(self.kind, self.text).summary[:_LONGEST_EXCEPTION]


@dataclass
class RankThere:
    """One rank.

    frames: of the thread that has stopped last, innermost first; None if it was not asked for
    them. at: index of the frame that lines are for. epoch: grows whenever it stops or runs on, so
    that a late answer is known as one. has_helper, knows_look: it has the console's code.
    breakpoints: as they were sent, by file; filters: those of exceptions. offered: both, as they
    were sent unasked.
    main: the main thread, once it was looked for after a pause; another one has stopped while it
    differs from `thread`, whose name is thread_name.
    said: the text of its last answer. next_line: of `l`; 0 to begin. exit_code: None if it is not
    known. raised: the exception of its last stop.
    """

    rank: int
    node: str = ""
    local: int = 0
    pid: int = 0
    state: State = "running"
    thread: int | str | None = None
    stops: dict[str, Message] = field(default_factory=dict)
    frames: tuple[StoppedFrame, ...] | None = None
    at: int = 0
    main: int | str | None = None
    thread_name: str = ""
    epoch: int = 0
    has_helper: bool = False
    knows_look: bool = False
    breakpoints: dict[str, tuple[tuple[int, str], ...]] = field(default_factory=dict)
    filters: tuple[str, ...] = ()
    offered: tuple[dict[str, tuple[tuple[int, str], ...]], tuple[str, ...]] | None = None
    said: str = ""
    next_line: int = 0
    exit_code: int | None = None
    raised: Raised | None = None
    _before: tuple[int, dict[str, Message], int | str | None] | None = None

    def update(self, entry: Message) -> None:
        """Take the rank's entry of a roster."""
        self.node = text(entry.get("node"))[:_LONGEST_NAME]
        self.local = whole(entry.get("local")) or 0
        self.pid = whole(entry.get("pid")) or 0
        stops = {
            str(stop.get("threadId")): stop for stop in objects(entry.get("stops"))[:_MOST_STOPS]
        }
        state = _STATES.get(text(entry.get("state")), "running")
        if state != "stopped":
            stops = {}
        if stops != self.stops:
            self._forget_frames()
            self.stops = stops
            self.raised = self.raised if not stops else None
            self.thread = _thread(next(reversed(stops.values()))) if stops else None
        self.state = state
        raised = section(entry, "raised")
        if stops and raised:
            self.take_raised(raised)

    def take_raised(self, raised: Message) -> None:
        """Take the exception that it is stopped at."""
        self.raised = _raised(raised)

    def has_stopped(self, body: Message) -> None:
        """Take a `stopped` event."""
        if len(self.stops) < _MOST_STOPS:
            self.stops[str(body.get("threadId"))] = body
        self.thread = _thread(body)
        self.state = "stopped"
        self.raised = None
        self._forget_frames()

    def has_continued(self, body: Message) -> None:
        """Take a `continued` event."""
        if body.get("allThreadsContinued") is not False:
            self.runs_on()
            return
        self.stops.pop(str(body.get("threadId")), None)
        if not self.stops:
            self.runs_on()

    def runs_on(self) -> None:
        """It has been sent on: its frames are no more."""
        before = self.stops, self.thread
        if self.state != "ended":
            self.state = "running"
        self.stops = {}
        self.thread = None
        self._forget_frames()
        self._before = (self.epoch, *before)

    def stays(self) -> None:
        """The debugger has refused to send it on."""
        if self._before is not None and self._before[0] == self.epoch and self._before[1]:
            _, self.stops, self.thread = self._before
            self.state = "stopped"

    def has_ended(self) -> None:
        """Its program is over."""
        self.runs_on()
        self.state = "ended"

    def _forget_frames(self) -> None:
        self.frames, self.at, self.next_line = None, 0, 0
        self.main, self.thread_name = None, ""
        self.epoch += 1

    @property
    def lacks_main(self) -> bool:
        """True if a pause has stopped another thread than the main one, as far as is known."""
        return self.stop_reason == "pause" and self.main != self.thread

    def take_threads(self, body: Message) -> None:
        """Take the body of the response to `threads`."""
        names = {
            _thread_id(one.get("id")): text(one.get("name")) for one in objects(body.get("threads"))
        }
        self.main = next((one for one, name in names.items() if name == "MainThread"), self.thread)
        self.thread_name = names.get(self.thread, "")[:_LONGEST_NAME]

    def main_stands(self) -> None:
        """Look at the main thread from now on: it has stopped, too."""
        self.thread = self.main
        self.frames, self.at, self.next_line = None, 0, 0

    def take_frames(self, body: Message) -> None:
        """Take the body of the response to `stackTrace`."""
        found = objects(body.get("stackFrames"))[:MOST_FRAMES]
        self.frames = tuple(_frame(one) for one in found)
        self.at = min(self.at, max(len(found) - 1, 0))

    @property
    def frame(self) -> StoppedFrame | None:
        """The frame that lines are for; None if it is not known."""
        return self.frames[self.at] if self.frames else None

    @property
    def exception(self) -> str:
        """`ValueError: bad rank 2` if an exception has stopped it; else ""."""
        if self.stops and self.raised is not None:
            return self.raised.summary
        for stop in self.stops.values():
            if stop.get("reason") == "exception":
                parts = (text(stop.get("text")), text(stop.get("description")))
                return ": ".join(filter(None, parts))[:_LONGEST_EXCEPTION] or "an exception"
        return ""

    @property
    def failure(self) -> Raised | None:
        """The uncaught exception that it is kept at, or that has ended it."""
        ended = self.state == "ended" and self.exit_code != 0
        kept = self.raised is not None and self.raised.uncaught
        return self.raised if kept and (self.stops or ended) else None

    @property
    def stop_reason(self) -> str:
        """The reason of the last stop, as DAP names it; "" if it has none."""
        # Of a pause, the thread that has stopped first has the only event.
        stop = self.stops.get(str(self.thread)) or next(reversed(self.stops.values()), None)
        return text(stop.get("reason")) if stop is not None else ""


def _thread(body: Message) -> int | str | None:
    return _thread_id(body.get("threadId"))


def _thread_id(thread: object) -> int | str | None:
    return thread if isinstance(thread, int | str) and not isinstance(thread, bool) else None


def _raised(raised: Message) -> Raised:
    file = text(raised.get("file")).replace("\\", "/").rpartition("/")[2][-_LONGEST_NAME:]
    line, at_s = whole(raised.get("line")), raised.get("at_s")
    return Raised(
        text(raised.get("kind"))[:_LONGEST_EXCEPTION] or "an exception",
        text(raised.get("text"))[:_LONGEST_TEXT],
        raised.get("uncaught") is True,
        f"{file}:{line if line is not None and 0 <= line < 2**31 else 0}" if file else "",
        float(at_s) if isinstance(at_s, int | float) and 0 <= at_s < 1e12 else 0.0,
    )


def _frame(frame: Message) -> StoppedFrame:
    number, line = whole(frame.get("id")), whole(frame.get("line"))
    name, chained = text(frame.get("name")), ""
    if name.startswith(_CHAINED):
        chained, _, name = name.removeprefix(_CHAINED).rpartition("] ")
        chained = chained[:_LONGEST_EXCEPTION] or "without a text"
    source = section(frame, "source")
    return StoppedFrame(
        number or 0,
        text(source.get("path"))[-_LONGEST_NAME:],
        line if line is not None and 0 <= line < 2**31 else 0,
        name[:_LONGEST_NAME],
        chained,
        # debugpy gives each file that no path mapping covers a reference of its own.
        is_local=not source.get("sourceReference"),
    )
