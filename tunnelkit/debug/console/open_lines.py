"""All lines that ranks are answering, and what is shown of their answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from tunnelkit.debug.console.commands import Evaluate, Go, Move, RankLine
from tunnelkit.debug.console.line_results import LineResult
from tunnelkit.debug.console.open_line import OpenLine, Outcomes, Patience
from tunnelkit.debug.console.plans import ENDED, Plan, Reply, Request, Said
from tunnelkit.debug.console.ranks_there import RanksThere
from tunnelkit.debug.console.rendering import Rendering, answer_texts, plain, unanswered
from tunnelkit.debug.dap.messages import Message, section, text, whole
from tunnelkit.debug.ranks.console_messages import Ask, FromConsole

_LIST = Patience(whole_s=1.5, early=False)
_QUIET = Patience(early=False)
_PAUSE = Patience(whole_s=3.0, reason="has not stopped: it is in native code, or about to stop")
_INTERRUPTED = "has not answered yet"
_CUT = ": the link to the cluster is cut"
_SESSION_LOST = "the session ended before it answered; the line is not sent again"
_LONGEST_LATE = 500
_LONGEST_SAID = 2_000
_RESUMING = frozenset({"continue", "next", "stepIn", "stepOut"})


class Outbox:
    """The messages on their way: each answer goes to the line that asked.

    It collects what the lines send during one call of the console.
    """

    def __init__(self, there: RanksThere) -> None:
        self._there = there
        self._last = 0
        self._asks: list[Ask] = []
        self._begin: list[int] = []
        self._begin_id = 0
        self._waiting: dict[tuple[int, int], OpenLine] = {}

    def ask(self, line: OpenLine, rank: int, request: Request) -> None:
        """Send a request to a rank."""
        self._last += 1
        self._waiting[self._last, rank] = line
        self._asks.append(
            {
                "id": self._last,
                "rank": rank,
                "command": request.command,
                "arguments": request.arguments,
            }
        )
        known = self._there.by_rank.get(rank)
        if known is not None and request.command in _RESUMING:
            known.runs_on()

    def begin(self, line: OpenLine, rank: int) -> None:
        """Let a waiting rank begin."""
        if not self._begin:
            self._last += 1
            self._begin_id = self._last
        self._begin.append(rank)
        self._waiting[self._begin_id, rank] = line

    def answered(self, number: int, rank: int) -> OpenLine | None:
        """The line that an answer is for; None if nobody waits for it. It is taken once."""
        return self._waiting.pop((number, rank), None)

    def forget(self, rank: int) -> None:
        """A rank is no more: no answer of it counts."""
        for key in [key for key in self._waiting if key[1] == rank]:
            del self._waiting[key]

    def forget_all(self) -> None:
        """The session is gone: nothing is answered, and nothing is sent again."""
        self._waiting.clear()
        self._asks, self._begin = [], []

    def take(self) -> list[FromConsole]:
        """Return the messages to send now."""
        asks, self._asks = self._asks, []
        ranks, self._begin = self._begin, []
        messages: list[FromConsole] = []
        if asks:
            messages.append({"type": "ask", "asks": asks})
        if ranks:
            messages.append({"type": "release", "id": self._begin_id, "ranks": ranks})
        return messages


class OpenLines:
    """The open lines. outbox: what they send."""

    def __init__(self, there: RanksThere, rendering: Rendering) -> None:
        self.outbox = Outbox(there)
        self._there = there
        self._rendering = rendering
        self._open: list[OpenLine] = []
        #: Those that the console has begun itself, oldest first: one for each stop of a rank.
        self._quiet: deque[OpenLine] = deque()
        self._shown: list[str] = []
        self._silence = ""

    @property
    def busy(self) -> bool:
        """True while a line that the user typed is open."""
        return any(not line.over for line in self._open)

    @property
    def due_s(self) -> float | None:
        """The time of the next `tick`; None if no line is open."""
        lines = [*self._open, *([self._quiet[0]] if self._quiet else [])]
        times = [line.due_s for line in lines if line.due_s is not None]
        return min(times, default=None)

    # -- new lines ------------------------------------------------------------------

    def open(
        self,
        text: str,
        plans: Mapping[int, Plan],
        patience: Patience,
        command: RankLine | None,
        now_s: float,
    ) -> None:
        """Begin a line that the user typed."""
        each = isinstance(command, Evaluate) and command.whole

        def show(part: Outcomes, everything: bool) -> list[str]:
            lines = self._rendering.answers(part, alone=len(plans) == 1, each=each)
            if everything and len(plans) > 1:
                lines += self._rendering.count(line.outcomes)
            return lines

        # Where a rank is, `attach` says anyhow.
        kept = not isinstance(command, Move | Go | None)
        line = OpenLine(text, self.outbox, plans, show, patience, kept=kept)
        self._start(line, now_s)

    def open_list(
        self, text: str, plans: Mapping[int, Plan], finished: Callable[[], list[str]], now_s: float
    ) -> None:
        """Begin a list of ranks, which is shown when all are in or 1.5 s are over."""

        def show(part: Outcomes, everything: bool) -> list[str]:
            return finished()

        self._start(OpenLine(text, self.outbox, plans, show, _LIST), now_s)

    def open_pause(self, text: str, plans: Mapping[int, Plan], now_s: float) -> None:
        """Begin to stop ranks."""
        self.open(text, plans, _PAUSE, None, now_s)

    def open_quietly(self, plans: Mapping[int, Plan], now_s: float) -> None:
        """Begin what the console asks for itself."""
        line = OpenLine("", self.outbox, plans, lambda _part, _all: [], _QUIET, quiet=True)
        self._quiet.append(line)
        line.start(now_s)

    def _start(self, line: OpenLine, now_s: float) -> None:
        line.silence = self._silence
        self._open.append(line)
        line.start(now_s)

    # -- what happens -----------------------------------------------------------------

    def answer(self, message: Message, now_s: float) -> None:
        """Take an answer of a rank; each request has one, and others are passed over."""
        number, rank = whole(message.get("id")), whole(message.get("rank"))
        if number is None or rank is None:
            return
        line = self.outbox.answered(number, rank)
        if line is None:
            return
        reply = Reply(
            message.get("success") is True, text(message.get("message")), section(message, "body")
        )
        if line.over:
            self._late(line, rank, line.late_answer(rank, reply))
        elif message.get("lost") is True:
            line.has_ended(rank, ENDED, now_s)
        else:
            line.answer(rank, reply, now_s)

    def _late(self, line: OpenLine, rank: int, said: str) -> None:
        if said:
            cut = said if len(said) <= _LONGEST_LATE else said[:_LONGEST_LATE] + "..."
            head = f"rank {rank}, late, to {' '.join(line.text.split())[:40]}: "
            self._shown += self._rendering.wrapped(plain(head + cut))

    def has_stopped(self, rank: int, now_s: float) -> bool:
        """Take the stop of a rank. True if a line of the user's waits for it."""
        waited = [line.has_stopped(rank, now_s) for line in self._open]
        return any(waited)

    def has_ended(self, rank: int, reason: str, now_s: float) -> None:
        """A rank is no more."""
        self.outbox.forget(rank)
        for line in self._open:
            line.has_ended(rank, reason, now_s)

    def writes(self, rank: int, output: str) -> None:
        """Take output of a rank's program, for the line that it belongs to."""
        for line in self._open:
            if line.writes(rank, output):
                return

    def interrupt(self) -> None:
        """Wait for no line any more."""
        for line in self._open:
            line.end(_INTERRUPTED)

    def link(self, *, up: bool) -> None:
        """The link to the ranks is cut, or back."""
        self._silence = "" if up else _CUT
        for line in self._open:
            line.silence = self._silence

    def lose_session(self) -> None:
        """The session is gone, and its successor knows of no line."""
        for line in self._open:
            line.end(_SESSION_LOST)
        self._quiet.clear()
        self.outbox.forget_all()
        self.link(up=True)

    def tick(self, now_s: float) -> None:
        """Time has passed."""
        for line in self._open:
            line.tick(now_s)
        # All have the same patience, and are settled by their answers.
        while self._quiet and (self._quiet[0].over or (self._quiet[0].due_s or 0) <= now_s):
            self._quiet.popleft().tick(now_s)

    def take(self) -> tuple[list[str], list[LineResult]]:
        """Return the lines to show, and the results of the lines that are finished."""
        shown, self._shown = self._shown, []
        done: list[LineResult] = []
        for line in self._open:
            lines, line.shown = line.shown, []
            shown += lines
            if line.over:
                done.append(self._result(line))
        self._open = [line for line in self._open if not line.over]
        return shown, done

    def _result(self, line: OpenLine) -> LineResult:
        outcomes = line.outcomes
        for rank, outcome in outcomes.items():
            known = self._there.by_rank.get(rank)
            if not line.kept or known is None:
                continue
            if isinstance(outcome, Said) and outcome.text:
                known.said = outcome.text[:_LONGEST_SAID]
        return LineResult(line.text, line.ranks, answer_texts(outcomes), unanswered(outcomes))
