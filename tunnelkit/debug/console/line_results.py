"""The console's answer to a line: texts to show, messages to send, a result for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tunnelkit.debug.ranks.console_messages import FromConsole


@dataclass(frozen=True)
class AnswerText:
    """Ranks with one answer. ranks: ascending; () for the console's own. text: as they gave it, its
    control characters escaped but for line breaks."""

    ranks: tuple[int, ...]
    text: str


@dataclass(frozen=True)
class Unanswered:
    """Ranks without an answer. reason: `running`, `ended`, `did not answer in 10 s`, ..."""

    ranks: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class LineResult:
    """A line that is finished.

    ranks: those that it was for; () for a line that the console answers itself. refusal: why the
    line was not understood, "" if it was.
    """

    line: str
    ranks: tuple[int, ...] = ()
    blocks: tuple[AnswerText, ...] = ()
    unanswered: tuple[Unanswered, ...] = ()
    refusal: str = ""

    @property
    def all_answered(self) -> bool:
        """True if the line was understood and each of its ranks has answered."""
        return not self.refusal and not self.unanswered


@dataclass(frozen=True)
class Step:
    """The effects of a call of the console.

    send: messages for the session, in this order. show: lines for the terminal, printable. done:
    the lines that are finished. over: the user leaves.
    """

    send: Sequence[FromConsole] = field(default=())
    show: Sequence[str] = field(default=())
    done: Sequence[LineResult] = field(default=())
    over: bool = False
