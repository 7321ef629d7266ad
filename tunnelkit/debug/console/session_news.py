"""The session's messages, taken by a console: rosters, events, answers."""

from __future__ import annotations

from tunnelkit.debug.console.console_breakpoints import ConsoleBreakpoints
from tunnelkit.debug.console.open_lines import OpenLines
from tunnelkit.debug.console.plans import ENDED, LocalSource, Plan, Said, learn_frames
from tunnelkit.debug.console.rank_lines import stopped_at, update_breakpoints
from tunnelkit.debug.console.rank_state import RankThere
from tunnelkit.debug.console.ranks_there import RanksThere, counted
from tunnelkit.debug.console.rendering import plain, ranks_text
from tunnelkit.debug.dap.messages import Message, section, text, whole
from tunnelkit.debug.ranks.fold import AnswerBlock, fold_answers

_NEW_RUN = "ended: a new run has begun"
_LINK_CUT = "the link to the cluster is cut: ranks stay as they are, and answer once it is back"
_LINK_BACK = "the link to the cluster is back"
_LONGEST_OUTPUT = 20_000
_WINDOW_S = 0.2
_WIDEST_RANKS = 40
#: How the news of an exception begin.
_FAILED = "stopped at "


class Notices:
    """Collects news for 0.2 s. due_s: when to take them; None if there are none."""

    def __init__(self) -> None:
        self.due_s: float | None = None
        self._news: dict[int, str] = {}

    def add(self, rank: int, news: str, now_s: float) -> None:
        """Add what a rank has done: `stopped: train.py:88 step`. It replaces older news of it."""
        self._news[rank] = news
        if self.due_s is None:
            self.due_s = now_s + _WINDOW_S

    def has(self, rank: int) -> bool:
        """True if there are news of a rank."""
        return rank in self._news

    def forget(self, rank: int) -> None:
        """Drop the news of a rank, as it is known otherwise."""
        self._news.pop(rank, None)

    def take(self, now_s: float) -> list[str]:
        """Return the lines that are due, printable."""
        if self.due_s is None or now_s < self.due_s:
            return []
        news, self._news, self.due_s = self._news, {}, None
        return [self._line(block) for block in fold_answers(news)]

    @staticmethod
    def _line(block: AnswerBlock) -> str:
        noun = "rank" if len(block.ranks) == 1 else "ranks"
        ranks = ranks_text(block.ranks, _WIDEST_RANKS)
        kept = f"   kept for you: on {ranks}" if block.text.startswith(_FAILED) else ""
        return f"{noun} {ranks} {' '.join(plain(block.text).split())}{kept}"


class SessionNews:
    """Takes the messages of the session, and keeps the news that are not yet shown."""

    def __init__(
        self,
        there: RanksThere,
        breakpoints: ConsoleBreakpoints,
        lines: OpenLines,
        source: LocalSource,
    ) -> None:
        self._there = there
        self._breakpoints = breakpoints
        self._lines = lines
        self._source = source
        self._notices = Notices()
        self._now_s = 0.0
        #: The first ranks of this run have been named; so many waiting ones have been.
        self._introduced = False
        self._waiting_named = 0

    @property
    def due_s(self) -> float | None:
        """The time of the next `tick`."""
        return self._notices.due_s

    def lose_session(self) -> None:
        """The session is gone: its successor's ranks are named again."""
        self._introduced, self._waiting_named = False, 0
        self._notices = Notices()

    def tick(self, now_s: float) -> list[str]:
        """Return the news to show, printable."""
        return self._notices.take(now_s)

    def take(self, message: Message, now_s: float) -> list[str]:
        """Take a message; return sentences to show at once."""
        self._now_s = now_s
        kind = message.get("type")
        if kind == "answer":
            self._lines.answer(message, now_s)
        elif kind == "event":
            rank = whole(message.get("rank"))
            known = self._there.by_rank.get(-1 if rank is None else rank)
            if known is not None:
                self._event(known, text(message.get("event")), section(message, "body"))
        elif kind == "roster":
            return self._roster(message)
        elif kind == "link":
            up = message.get("up") is not False
            self._lines.link(up=up)
            return [_LINK_BACK if up else _LINK_CUT]
        return []

    # -- rosters ----------------------------------------------------------------------

    def _roster(self, message: Message) -> list[str]:
        change = self._there.take(message)
        show: list[str] = []
        for rank in change.ended:
            self._lines.has_ended(rank, _NEW_RUN if change.new_run else ENDED, self._now_s)
            if not change.new_run:
                self._notices.add(rank, "ended", self._now_s)
        if change.new_run:
            self._introduced, self._waiting_named = False, 0
            self._breakpoints.begin_again()
            count = len(self._breakpoints)
            kept = f"; it gets {counted(count, 'breakpoint')} of this console" if count else ""
            show.append(f"a new run has begun{kept}")
        if change.back:
            are = "rank {} is" if len(change.back) == 1 else "ranks {} are"
            show.append(f"{are.format(ranks_text(change.back, _WIDEST_RANKS))} back")
        if self._there.by_rank and not self._introduced and not self._there.awaited:
            self._introduced = True
            show.append(self._there.summary())
        show += self._about_waiting()
        self._send_breakpoints()
        return show

    def _about_waiting(self) -> list[str]:
        """A sentence for the first waiting ranks, and again when all of them have come."""
        waiting = len(self._there.in_state("waiting"))
        all_there = waiting == self._there.world_size
        if waiting <= self._waiting_named or (self._waiting_named and not all_there):
            return []
        self._waiting_named = waiting
        verb = "waits" if waiting == 1 else "wait"
        them = "it" if waiting == 1 else "them"
        return [
            f"{counted(waiting, 'rank')} {verb} for a debugger: `c` lets {them} run, "
            "`b FILE:LINE` first if you like"
        ]

    def _send_breakpoints(self) -> None:
        """Send what ranks lack that have come later than the breakpoints."""
        plans: dict[int, Plan] = {}
        for number, rank in self._there.by_rank.items():
            wanted = self._breakpoints.wanted(number), self._breakpoints.filters(number)
            lacks = (rank.breakpoints, rank.filters) != wanted and rank.offered != wanted
            if lacks and rank.state in ("running", "stopped"):
                # Once: the debugger may refuse them each time.
                rank.offered = wanted
                plans[number] = update_breakpoints(rank, "", self._breakpoints)
        if plans:
            self._lines.open_quietly(plans, self._now_s)

    # -- events -----------------------------------------------------------------------

    def _event(self, rank: RankThere, event: str, body: Message) -> None:
        if event == "stopped" and rank.state != "ended":
            rank.has_stopped(body)
            expected = self._lines.has_stopped(rank.rank, self._now_s)
            self._lines.open_quietly({rank.rank: self._stop(rank, expected)}, self._now_s)
        elif event == "continued":
            rank.has_continued(body)
            self._notices.forget(rank.rank)
        elif event == "exited":
            rank.exit_code = whole(body.get("exitCode"))
            self._end(rank)
        elif event == "terminated":
            self._end(rank)
        elif event == "output" and body.get("category") in ("stdout", "stderr"):
            # Others are the debugger's own words.
            self._lines.writes(rank.rank, text(body.get("output"))[:_LONGEST_OUTPUT])

    def _end(self, rank: RankThere) -> None:
        if rank.state != "ended" or self._notices.has(rank.rank):
            code = rank.exit_code
            self._notices.add(
                rank.rank, "ended" if code is None else f"ended, exit code {code}", self._now_s
            )
        rank.has_ended()
        self._lines.has_ended(rank.rank, ENDED, self._now_s)

    def _stop(self, rank: RankThere, expected: bool) -> Plan:
        """Learn where a rank has stopped. expected: a line of the user's says so."""
        temporary = any(one.temporary for one in self._breakpoints)
        if expected and not (temporary and rank.stop_reason == "breakpoint"):
            return Said("")
        epoch = rank.epoch
        frame = yield from learn_frames(rank)
        if rank.epoch != epoch or rank.state != "stopped":
            return Said("")
        if not expected:
            self._notices.add(rank.rank, self._news_of(rank), self._now_s)
        if frame is not None and rank.stop_reason == "breakpoint":
            reached = [
                one
                for one in self._breakpoints.at(frame.path, frame.line)
                if one.temporary and one.is_for(rank.rank)
            ]
            self._breakpoints.take_from(reached, [rank.rank], self._there.by_rank)
            if reached:
                yield from update_breakpoints(rank, "", self._breakpoints)
        return Said("")

    def _news_of(self, rank: RankThere) -> str:
        if not rank.exception:
            return f"stopped: {stopped_at(rank, self._source)}"
        place = f" ({rank.frame.place})" if rank.frame is not None else ""
        return f"{_FAILED}{rank.exception}{place}"
