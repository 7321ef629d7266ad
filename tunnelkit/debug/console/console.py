"""A console over many ranks: lines of the user and messages of the session in, both ways out.

Sans-IO: no terminal, no clock. Each call returns what to send and to show; `due_s` says when to
call `tick`.
"""

from __future__ import annotations

from tunnelkit.debug.console.commands import (
    Attach,
    Cast,
    Command,
    Detach,
    Go,
    Help,
    ListBreakpoints,
    ListRanks,
    NameDimensions,
    Nothing,
    On,
    OpenEditor,
    Pause,
    Quit,
    RankLine,
)
from tunnelkit.debug.console.console_breakpoints import ConsoleBreakpoints
from tunnelkit.debug.console.line_parser import LineError, parse_line
from tunnelkit.debug.console.line_plans import LinePlans, Prepared, ResolvePath
from tunnelkit.debug.console.line_results import AnswerText, LineResult, Step
from tunnelkit.debug.console.listeners import Listeners
from tunnelkit.debug.console.open_line import Patience
from tunnelkit.debug.console.open_lines import OpenLines
from tunnelkit.debug.console.plans import LocalSource, Missing, says
from tunnelkit.debug.console.rank_lines import open_editor, pause, stopped_at
from tunnelkit.debug.console.rank_list import RankList
from tunnelkit.debug.console.ranks_there import RanksThere, counted
from tunnelkit.debug.console.rendering import Rendering, plain, ranks_text
from tunnelkit.debug.console.session_news import SessionNews
from tunnelkit.debug.console.word_help import completions, help_text
from tunnelkit.debug.ranks.console_messages import ToConsole
from tunnelkit.debug.ranks.mesh import parse_mesh
from tunnelkit.debug.ranks.text_errors import MarkedTextError

__all__ = ["Console"]

_WIDEST_NODE = 24


def _unresolved(path: str) -> str | None:
    return path if path.startswith("/") else None


class Console:
    """One console. It keeps the ranks that get the lines, the breakpoints, and each rank's frame.

    columns: of the terminal. local_source: the lines of a file on the laptop, None if it is not
    there. resolve: the absolute path of a file as the user types it, None if it is not there.
    ends: the ranks end with the console.
    """

    def __init__(
        self,
        *,
        columns: int = 80,
        local_source: LocalSource,
        resolve: ResolvePath = _unresolved,
        ends: bool = False,
    ) -> None:
        self._ends = ends
        self._source = local_source
        self._there = RanksThere()
        self._breakpoints = ConsoleBreakpoints()
        self._listeners = Listeners(self._there)
        self._rendering = Rendering(columns)
        self._plans = LinePlans(self._there, self._breakpoints, local_source, resolve)
        self._lines = OpenLines(self._there, self._rendering)
        self._news = SessionNews(self._there, self._breakpoints, self._lines, local_source)
        self._repeated = ""
        self._show: list[str] = []
        self._done: list[LineResult] = []
        self._over = False

    # -- state ----------------------------------------------------------------------

    @property
    def prompt(self) -> str:
        """`(tk 0-63) `, `(tk 13 · node4) `: those that lines go to; `(tk) ` if none is there."""
        return self._listeners.prompt

    @property
    def due_s(self) -> float | None:
        """When to call `tick`, on the clock of `now_s`; None if nothing is waited for."""
        times = [time for time in (self._lines.due_s, self._news.due_s) if time is not None]
        return min(times, default=None)

    @property
    def busy(self) -> bool:
        """True while a line of the user's has no answer yet."""
        return self._lines.busy

    @property
    def moving(self) -> bool:
        """True while a rank that lines go to runs."""
        return self._listeners.any_in("running")

    @property
    def standing(self) -> frozenset[tuple[int, int]]:
        """The ranks that lines go to and that stand, each with a number of its stop."""
        return self._listeners.standing

    @property
    def all_there(self) -> bool:
        """True once every rank that is expected has dialled in."""
        return len(self._there.by_rank) >= max(1, self._there.expected)

    @property
    def all_stopped(self) -> bool:
        """True once all ranks of the run are there, and stopped."""
        stopped = len(self._there.in_state("stopped"))
        return stopped == len(self._there.by_rank) >= max(1, self._there.all_of_them)

    @property
    def has_living(self) -> bool:
        """True while a rank is there that has not ended."""
        return bool(self._there.alive)

    @property
    def columns(self) -> int:
        """The width of the terminal; it may be set."""
        return self._rendering.columns

    @columns.setter
    def columns(self, columns: int) -> None:
        """Take the width of a terminal that has another one now."""
        self._rendering.columns = Rendering(columns).columns

    def complete(self, text: str) -> list[str]:
        """Return whole lines that begin with the text, for the TAB key."""
        return completions(text, self._there)

    # -- what happens ----------------------------------------------------------------

    def message(self, message: ToConsole, now_s: float) -> Step:
        """Take a message of the session. Anything that is none is passed over."""
        news = self._news.take({**message}, now_s)
        gone = self._listeners.drop_ended()
        for sentence in [*news, *([gone] if gone else [])]:
            self._show += self._rendering.sentence(sentence)
        return self._step(now_s)

    def tick(self, now_s: float) -> Step:
        """Time has passed."""
        return self._step(now_s)

    def interrupt(self, now_s: float) -> Step:
        """Ctrl-C: wait no longer, and say who has not answered. The ranks are not interrupted."""
        self._lines.interrupt()
        return self._step(now_s)

    def lose_session(self, now_s: float) -> Step:
        """The session is gone. Nothing is sent again, but for the breakpoints, to its successor."""
        self._lines.lose_session()
        self._there.lose_session()
        self._news.lose_session()
        return self._step(now_s)

    def line(self, text: str, now_s: float) -> Step:
        """Take a line that the user typed, or "EOF" for Ctrl-D."""
        text = text.strip("\r\n")
        try:
            self._take_line(text, now_s)
        except MarkedTextError as error:
            self._refuse(text, error)
        return self._step(now_s)

    def _step(self, now_s: float) -> Step:
        self._lines.tick(now_s)
        for news in self._news.tick(now_s):
            self._show += self._rendering.sentence(news)
        shown, done = self._lines.take()
        show, self._show = self._show + shown, []
        all_done, self._done = self._done + done, []
        return Step(self._lines.outbox.take(), show, all_done, self._over)

    # -- lines -----------------------------------------------------------------------

    def _take_line(self, text: str, now_s: float) -> None:
        command = parse_line(text, outer=self._listeners.outer)
        if isinstance(command, Nothing):
            if self._repeated and len(self._listeners.ranks) == 1:
                text = self._repeated
                command = parse_line(text, outer=False)
            else:
                self._done.append(LineResult(text))
                return
        elif not isinstance(command, RankLine) or len(self._listeners.ranks) != 1:
            self._repeated = ""
        else:
            self._repeated = text
        match command:
            case Cast():
                self._cast(command, text, now_s)
            case ListRanks():
                self._list(command, text, now_s)
            case Pause(selection, at):
                self._pause(self._selected(selection, text, at), text, now_s)
            case Attach(rank, at):
                self._attach(rank, at, text)
            case OpenEditor(rank, at):
                self._open_editor(rank, at, text, now_s)
            case _ if isinstance(command, RankLine):
                self._for_listeners(command, text, now_s)
            case _:
                self._say(text, self._own_answer(command, text))

    def _own_answer(self, command: Command, text: str) -> str:
        """The answer to a line that needs no rank."""
        match command:
            case On("", _):
                return f"lines go to {self._listed()}"
            case On(selection, at):
                self._listeners.choose(selection, text, at)
                return self._whereabouts()
            case Detach():
                self._listeners.back()
                return f"lines go to {self._listed()}"
            case NameDimensions(names, at):
                return self._name_dimensions(names, text, at)
            case ListBreakpoints():
                return "\n".join(self._plans.breakpoint_lines())
            case Help(word):
                return help_text(word)
            case Quit():
                self._over = True
                return self._left_behind()
        return ""

    def _for_listeners(self, command: RankLine, text: str, now_s: float) -> None:
        ranks = self._listeners.ranks
        if not ranks:
            why = "all ranks have ended" if self._there.by_rank else "no ranks are there yet"
            raise LineError(why)
        everyone = (
            self._listeners.outer if isinstance(command, Go) else (self._listeners.is_everyone)
        )
        prepared = self._plans.prepare(command, ranks, all_ranks=everyone)
        self._open(command, prepared, text, now_s)

    def _cast(self, command: Cast, text: str, now_s: float) -> None:
        ranks = self._listeners.select(command.selection, text, command.at)
        prepared = self._plans.prepare(command.command, ranks, all_ranks=False)
        title = f"ranks({command.selection.strip()})   {counted(len(ranks), 'rank')}"
        self._show += self._rendering.wrapped(plain(title))
        self._open(command.command, prepared, text, now_s)

    def _open(self, command: RankLine, prepared: Prepared, text: str, now_s: float) -> None:
        for note in prepared.notes:
            self._show += self._rendering.sentence(note)
        self._lines.open(text, prepared.plans, prepared.patience, command, now_s)

    def _selected(self, selection: str, text: str, at: int) -> tuple[int, ...]:
        if selection:
            return self._listeners.select(selection, text, at)
        return self._listeners.ranks

    def _list(self, command: ListRanks, text: str, now_s: float) -> None:
        ranks = tuple(self._there.by_rank)
        if command.selection:
            ranks = self._listeners.select(command.selection, text, command.at)
        if not ranks:
            raise LineError("no ranks are there yet")
        listed = RankList({rank: self._there.by_rank[rank] for rank in ranks}, now_s)
        plans = {
            rank: listed.plan(self._there.by_rank[rank], self._source) for rank in sorted(ranks)
        }

        def finished() -> list[str]:
            if not command.each:
                self._there.classes = listed.classes()
            return listed.lines(self._rendering, each=command.each)

        self._lines.open_list(text, plans, finished, now_s)

    def _pause(self, ranks: tuple[int, ...], text: str, now_s: float) -> None:
        known = self._there.by_rank
        plans = {
            rank: pause(known[rank], self._source)
            if rank in known
            else says(Missing("is not there"))
            for rank in ranks
        }
        self._lines.open_pause(text, plans, now_s)

    def _attach(self, rank: str, at: int, text: str) -> None:
        self._listeners.choose(rank, text, at, attach=True)
        said = self._there.by_rank[self._listeners.ranks[0]].said
        self._say(text, "\n".join(filter(None, (self._whereabouts(), said))))

    def _open_editor(self, rank: str, at: int, text: str, now_s: float) -> None:
        (number,) = self._listeners.select(rank, text, at)
        plans = {number: open_editor(self._there.by_rank[number])}
        self._lines.open(text, plans, Patience(), None, now_s)

    # -- the console's own answers ---------------------------------------------------

    def _say(self, line: str, text: str) -> None:
        text = plain(text)
        if text:
            self._show += self._rendering.wrapped(text)
        self._done.append(LineResult(line, blocks=(AnswerText((), text),) if text else ()))

    def _refuse(self, text: str, error: MarkedTextError) -> None:
        self._show += self._rendering.refusal(error.message, error.text, error.column)
        self._done.append(LineResult(text, refusal=" ".join(plain(error.message).split())))

    def _listed(self) -> str:
        return ranks_text(self._listeners.ranks, self.columns - 20) or "nobody: no rank is there"

    def _whereabouts(self) -> str:
        """`63 · node8 · stopped at train.py:88 step`, if it is one rank; else who it is."""
        ranks = self._listeners.ranks
        if len(ranks) != 1 or ranks[0] not in self._there.by_rank:
            return f"lines go to {self._listed()}"
        rank = self._there.by_rank[ranks[0]]
        state: str = rank.state
        if state == "waiting":
            state = "waits for a debugger"
        elif rank.state == "stopped" and rank.failure is not None:
            state = "failed"
        if rank.failure is not None:
            state = f"{state}: {rank.failure.summary} ({rank.failure.place})"
        elif rank.state == "stopped" and rank.frame is not None:
            state = f"stopped at {stopped_at(rank, self._source)}"
        return " · ".join(filter(None, (str(rank.rank), rank.node[:_WIDEST_NODE], state)))

    def _name_dimensions(self, names: str, text: str, at: int) -> str:
        if not names:
            mesh = self._there.mesh
            sizes = zip(mesh.names, mesh.sizes, strict=True) if mesh is not None else ()
            return ",".join(f"{name}={size}" for name, size in sizes) or (
                "no dimensions have names: mesh pp=2,dp=4"
            )
        size = self._there.world_size or len(self._there.by_rank)
        try:
            self._there.mesh = parse_mesh(names, size)
        except MarkedTextError as error:
            column = at + error.column if error.column else 0
            raise LineError(error.message, text=text, column=column) from None
        return ""

    def _left_behind(self) -> str:
        """A line about ranks that stay stopped when the console leaves."""
        stopped = self._there.in_state("stopped")
        if not stopped or self._ends:
            return ""
        ranks = ranks_text(stopped, self.columns // 2)
        return f"left as they are: {ranks} stopped"
