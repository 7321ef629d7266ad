"""The session's messages, taken by a console: rosters, events, answers."""

from __future__ import annotations

from dataclasses import dataclass

from tunnelkit.debug.console.console_breakpoints import ConsoleBreakpoints
from tunnelkit.debug.console.open_lines import OpenLines
from tunnelkit.debug.console.plans import ENDED, LocalSource, Plan, Said, learn_frames
from tunnelkit.debug.console.rank_lines import stopped_at, update_breakpoints
from tunnelkit.debug.console.rank_state import Raised, RankThere
from tunnelkit.debug.console.ranks_there import RanksThere, counted
from tunnelkit.debug.console.rendering import plain, ranks_text
from tunnelkit.debug.dap.messages import Message, section, text, whole
from tunnelkit.debug.ranks.fold import fold_answers
from tunnelkit.text_format import duration

_NEW_RUN = "ended: a new run has begun"
_LINK_CUT = "the link to the cluster is cut: ranks stay as they are, and answer once it is back"
_LINK_BACK = "the link to the cluster is back"
_LONGEST_OUTPUT = 20_000
_WINDOW_S = 0.2
_WIDEST_RANKS = 40
_WIDEST_NODE = 24
#: A failure of that age or more has its age said.
_OLD_S = 2.0


@dataclass(frozen=True)
class _News:
    """kind: ranks whose news have the same kind share a line, with the text of the lowest."""

    kind: str
    text: str
    node: str = ""
    kept: bool = False


class Notices:
    """Collects news for 0.2 s. due_s: when to take them; None if there are none."""

    def __init__(self) -> None:
        self.due_s: float | None = None
        self._news: dict[int, _News] = {}

    def add(self, rank: int, news: str, now_s: float) -> None:
        """Add what a rank has done: `stopped: train.py:88 step`. It replaces older news of it."""
        self._add(rank, _News(news, news), now_s)

    def add_failure(self, rank: RankThere, raised: Raised, now_s: float) -> None:
        """Add that a rank is kept at an uncaught exception."""
        age_s = now_s - raised.at_s
        ago = f" {duration(age_s)} ago" if age_s >= _OLD_S else ""
        place = f" ({raised.place})" if raised.place else ""
        news = f"failed{ago}: {raised.summary}{place}"
        kind = f"failed: {raised.kind} {raised.place}"
        self._add(rank.rank, _News(kind, news, rank.node[:_WIDEST_NODE], kept=True), now_s)

    def _add(self, rank: int, news: _News, now_s: float) -> None:
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
        kinds = fold_answers({rank: one.kind for rank, one in news.items()})
        return [self._line(block.ranks, [news[rank] for rank in block.ranks]) for block in kinds]

    @staticmethod
    def _line(ranks: tuple[int, ...], news: list[_News]) -> str:
        first, folded = news[0], ranks_text(ranks, _WIDEST_RANKS)
        who = f"rank {folded}" if len(ranks) == 1 else f"ranks {folded}"
        if first.node and len(ranks) == 1:
            who += f" · {first.node}"
        others = " · texts differ" if len({one.text for one in news}) > 1 else ""
        kept = f"   kept for you: on {folded}" if first.kept else ""
        return f"{' '.join(plain(f'{who} {first.text}{others}').split())}{kept}"


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
        #: Ranks whose stop at an exception no line waited for.
        self._unasked: set[int] = set()
        #: Failures that were named: rank and time.
        self._named: dict[int, float] = {}

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
        elif kind == "raised":
            rank = whole(message.get("rank"))
            known = self._there.by_rank.get(-1 if rank is None else rank)
            if known is not None and known.stops:
                known.take_raised(section(message, "raised"))
                self._raised(known)
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
        for known in self._there.by_rank.values():
            if known.raised is not None:
                self._raised(known)
        self._send_breakpoints()
        return show

    def _about_waiting(self) -> list[str]:
        """A sentence for the first waiting ranks, and again when all of them have come."""
        waiting = len(self._there.in_state("waiting"))
        # A launcher may start ranks again within a run.
        self._waiting_named = min(self._waiting_named, waiting)
        all_there = waiting == self._there.all_of_them
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
            if rank.exception and not expected:
                self._unasked.add(rank.rank)
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

    def _raised(self, rank: RankThere) -> None:
        """Say at which exception a rank has stopped, once."""
        raised = rank.raised
        if raised is None or not rank.stops or self._named.get(rank.rank) == raised.at_s:
            return
        self._named[rank.rank] = raised.at_s
        asked = rank.rank not in self._unasked
        self._unasked.discard(rank.rank)
        if raised.uncaught:
            self._notices.add_failure(rank, raised, self._now_s)
        elif not asked:
            place = f" ({raised.place})" if raised.place else ""
            self._notices.add(rank.rank, f"stopped at {raised.summary}{place}", self._now_s)

    def _end(self, rank: RankThere) -> None:
        if rank.state != "ended" or self._notices.has(rank.rank):
            code = rank.exit_code
            self._notices.add(
                rank.rank, "ended" if code is None else f"ended with exit code {code}", self._now_s
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
        if not expected and not rank.exception:
            stopped = f"stopped: {stopped_at(rank, self._source)}"
            self._notices.add(rank.rank, stopped, self._now_s)
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
