"""Plans: a line for one rank as requests of DAP, one after another, and its outcome.

A plan is a generator: it yields what it needs, is sent the reply, and returns its outcome. It knows
one rank; `open_line` runs those of all ranks side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

from tunnelkit.debug.console.console_breakpoints import ConsoleBreakpoints
from tunnelkit.debug.console.rank_state import MOST_FRAMES, RankThere, StoppedFrame
from tunnelkit.debug.console.values import helper_arguments
from tunnelkit.debug.dap.messages import Message, objects, text
from tunnelkit.debug.ranks.question import position, where_are_you
from tunnelkit.debug.ranks.sample import RankState

#: The lines of a file on the laptop; None if it is not there.
LocalSource = Callable[[str], list[str] | None]

RUNNING = "running: `pause` stops it once it is back in Python"
WAITING = "waits for a debugger: `c` lets it run"
ENDED = "ended"
_LONGEST_REASON = 200
#: Frames that are asked for one by one.
_MOST_SINGLE = 50


@dataclass(frozen=True)
class Request:
    """A request. together: it is sent to all ranks at once, as a collective in it needs. prints:
    what the program writes meanwhile belongs to the answer."""

    command: str
    arguments: Message
    together: bool = False
    prints: bool = False


@dataclass(frozen=True)
class NextStop:
    """Wait until the rank stops."""


@dataclass(frozen=True)
class Begin:
    """Let the program of a waiting rank begin."""


@dataclass(frozen=True)
class Reply:
    """The answer to a need. output: what the program has written meanwhile."""

    success: bool = True
    message: str = ""
    body: Message | None = None
    output: str = ""

    @property
    def content(self) -> Message:
        """The body; {} if there is none."""
        return self.body or {}


@dataclass(frozen=True)
class Said:
    """A rank's answer. text: unescaped. is_value: numbers of many ranks may become a grid."""

    text: str
    is_value: bool = False


@dataclass(frozen=True)
class Missing:
    """A rank gave no answer. reason: why."""

    reason: str


Outcome = Said | Missing
Need = Request | NextStop | Begin
Plan = Generator[Need, Reply, Outcome]


def says(outcome: Outcome) -> Plan:
    """A plan that asks nothing."""
    yield from ()
    return outcome


def not_stopped(rank: RankThere) -> Missing | None:
    """The reason why a rank can't be asked for a value; None if it can."""
    reasons = {"running": RUNNING, "waiting": WAITING, "ended": ENDED}
    reason = reasons.get(rank.state)
    return Missing(reason) if reason else None


# -- parts of plans ---------------------------------------------------------------


def local_lines(frame: StoppedFrame, source: LocalSource) -> list[str] | None:
    """Return the lines of a frame's file; None if the laptop does not have that file."""
    return source(frame.path) if frame.is_local else None


def learn_frames(rank: RankThere) -> Generator[Need, Reply, StoppedFrame | None]:
    """Ask for the stack, if it is not known. Returns the frame that lines are for."""
    yield from choose_main(rank)
    if rank.frames is None and rank.thread is not None:
        epoch = rank.epoch
        reply = yield Request(
            "stackTrace", {"threadId": rank.thread, "startFrame": 0, "levels": MOST_FRAMES}
        )
        body = reply.content if reply.success else (yield from _frames_by_one(rank.thread))
        if body and rank.epoch == epoch:
            rank.take_frames(body)
    return rank.frame


def choose_main(rank: RankThere) -> Generator[Need, Reply, None]:
    """Choose the main thread of a paused rank, once it stands.

    After a pause, pydevd reports the first thread that stops. The main one may be in native code.
    """
    epoch = rank.epoch
    if rank.lacks_main and rank.main is None:
        reply = yield Request("threads", {})
        if rank.epoch == epoch:
            rank.take_threads(reply.content)
    if rank.lacks_main:
        reply = yield Request("evaluate", {**where_are_you(known=rank.knows_look)})
        found = position({"success": reply.success, "body": reply.content})
        rank.knows_look = found is not None
        if found is not None and found["state"] is RankState.STOPPED and rank.epoch == epoch:
            rank.main_stands()


def _frames_by_one(thread: int | str) -> Generator[Need, Reply, Message]:
    """Ask for a stack whose answer is too long as a whole: a chained exception's text is in each of
    its frames."""
    frames: list[Message] = []
    while len(frames) < _MOST_SINGLE:
        asked: Message = {"threadId": thread, "startFrame": len(frames), "levels": 1}
        reply = yield Request("stackTrace", asked)
        found = objects(reply.content.get("stackFrames")) if reply.success else []
        if not found:
            break
        frames += found[:1]
    return {"stackFrames": frames} if frames else {}


def bring_helper(rank: RankThere) -> Generator[Need, Reply, None]:
    """Bring the code for values to the rank, if it does not have it."""
    if not rank.has_helper:
        reply = yield Request("evaluate", helper_arguments())
        rank.has_helper = reply.success


def prepare_frame(rank: RankThere) -> Generator[Need, Reply, StoppedFrame | Missing]:
    """Prepare a question in the chosen frame of a stopped rank."""
    missing = not_stopped(rank)
    if missing is not None:
        return missing
    yield from bring_helper(rank)
    frame = yield from learn_frames(rank)
    if frame is None:
        return not_stopped(rank) or Missing("the debugger gives no frames")
    return frame


def set_breakpoints(
    rank: RankThere, breakpoints: ConsoleBreakpoints
) -> Generator[Need, Reply, dict[tuple[str, int], str]]:
    """Send the files whose breakpoints have changed, and the filters of exceptions if they have.

    Returns the refusals, by path and line.
    """
    wrong: dict[tuple[str, int], str] = {}
    wanted = breakpoints.wanted(rank.rank)
    for path in sorted({*wanted, *rank.breakpoints}):
        lines = wanted.get(path, ())
        if rank.breakpoints.get(path, ()) == lines:
            continue
        before = rank.breakpoints.get(path, ())
        rank.breakpoints[path] = lines
        asked: list[Message] = [
            {"line": line, "condition": condition} if condition else {"line": line}
            for line, condition in lines
        ]
        reply = yield Request("setBreakpoints", {"source": {"path": path}, "breakpoints": asked})
        if not reply.success:
            rank.breakpoints[path] = before
            wrong.update(((path, line), reply.message) for line, _ in lines)
            continue
        found = objects(reply.content.get("breakpoints"))
        for (line, _), answered in zip(lines, found, strict=False):
            if answered.get("verified") is False:
                wrong[path, line] = text(answered.get("message")) or "it can't be reached"
    yield from _set_filters(rank, breakpoints.filters(rank.rank))
    return wrong


def _set_filters(rank: RankThere, filters: tuple[str, ...]) -> Generator[Need, Reply, None]:
    if rank.filters == filters:
        return
    before, rank.filters = rank.filters, filters
    reply = yield Request("setExceptionBreakpoints", {"filters": list(filters)})
    if not reply.success:
        rank.filters = before


def refused(reply: Reply) -> Missing:
    """The outcome of a request that the debugger has refused."""
    lines = reply.message.strip().splitlines()
    return Missing(lines[-1][:_LONGEST_REASON] if lines else "the debugger refuses")
