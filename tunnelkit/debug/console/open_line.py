"""One line that ranks are answering: their plans side by side, and when the waiting is over.

Rules of this file:

- Requests that a collective needs (`together`) go to all ranks at once, and waiting ranks begin at
  once: they wait until every rank is prepared, for 2 s after the last answer, and 30 s at most. A
  rank that is not prepared by then is never sent the line. Patience counts from the sending.
- What has been answered is shown after 1 s, and late answers 0.2 s after the first of them.
- When its patience is over, the ranks without an answer are named with a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tunnelkit.debug.console.plans import (
    Begin,
    Missing,
    Need,
    NextStop,
    Outcome,
    Plan,
    Reply,
    Request,
    Said,
)

#: Since the last answer: a busy laptop takes seconds for 256 ranks that begin.
_PREPARE_S = 2.0
_LONGEST_PREPARE_S = 30.0
FIRST_SHOWN_S = 1.0
LATE_SHOWN_S = 0.2
#: Of what a program writes while it answers.
_LONGEST_OUTPUT = 20_000
#: Of a rank's answer.
_LONGEST_ANSWER = 400_000

Outcomes = Mapping[int, Outcome]


class Sender(Protocol):
    """Sends requests for an open line."""

    def ask(self, line: OpenLine, rank: int, request: Request) -> None:
        """Send a request to a rank; its answer comes to `answer`."""

    def begin(self, line: OpenLine, rank: int) -> None:
        """Let a waiting rank begin; its answer comes to `answer`."""


@dataclass
class _Slot:
    """One rank. need: what its plan waits for; held: a request that waits for the other ranks.

    let_go: it was sent that it may run on, to its end if it likes.
    """

    plan: Plan
    need: Need | None = None
    held: bool = False
    sent: bool = False
    let_go: bool = False
    output: str = ""
    outcome: Outcome | None = None
    given_up: bool = False


@dataclass(frozen=True)
class Patience:
    """Times of a line. whole_s: until it is over. early: answers are shown before all are in.
    reason: of a rank that has not stopped by then."""

    whole_s: float = 10.0
    early: bool = True
    reason: str = "still running"


@dataclass
class OpenLine:
    """A line with the plans of its ranks. `start` it.

    show: writes the answers of some ranks; called with all that is shown at a time, and
    whether everything is. quiet: nothing of it is shown. text: as typed; "" if nobody typed it.
    kept: its answers are shown again by `attach`.
    """

    text: str
    sender: Sender
    plans: Mapping[int, Plan]
    show: Callable[[Outcomes, bool], list[str]]
    patience: Patience = field(default_factory=Patience)
    quiet: bool = False
    kept: bool = False
    #: Why no rank can answer now; "" if nothing is known of that.
    silence: str = ""
    over: bool = False
    #: Lines for the terminal, since the console took them last.
    shown: list[str] = field(default_factory=list)

    def start(self, now_s: float) -> None:
        """Send the first requests."""
        self._slots = {rank: _Slot(plan) for rank, plan in self.plans.items()}
        self._until_s = now_s + self.patience.whole_s
        self._prepare_until_s = now_s + _PREPARE_S
        self._prepare_ends_s = now_s + _LONGEST_PREPARE_S
        self._show_at_s: float | None = now_s + FIRST_SHOWN_S if self.patience.early else None
        self._unshown: set[int] = set()
        # With 1,024 ranks nothing may look at all of them for each answer.
        self._left, self._held, self._stopping = len(self._slots), 0, 0
        for rank, slot in self._slots.items():
            self._advance(rank, slot, None)
        self._settle(now_s)

    @property
    def ranks(self) -> tuple[int, ...]:
        """All its ranks, ascending."""
        return tuple(sorted(self.plans))

    @property
    def outcomes(self) -> dict[int, Outcome]:
        """The outcomes so far, by rank, ascending."""
        found = ((rank, self._slots[rank].outcome) for rank in self.ranks)
        return {rank: outcome for rank, outcome in found if outcome is not None}

    @property
    def due_s(self) -> float | None:
        """The time of the next `tick`; None if it is over."""
        if self.over:
            return None
        times = [self._prepare_until_s if self._held else self._until_s]
        if self._show_at_s is not None:
            times.append(self._show_at_s)
        return min(times)

    # -- what happens -------------------------------------------------------------

    def answer(self, rank: int, reply: Reply, now_s: float) -> None:
        """Take a rank's answer to its last request."""
        slot = self._slots[rank]
        if slot.outcome is None and not slot.held and slot.need is not None:
            output, slot.output = slot.output, ""
            self._prepare_until_s = min(now_s + _PREPARE_S, self._prepare_ends_s)
            self._advance(rank, slot, Reply(reply.success, reply.message, reply.body, output))
            self._settle(now_s)

    def has_stopped(self, rank: int, now_s: float) -> bool:
        """Take the stop of a rank. True if the line waits for it."""
        slot = self._slots.get(rank)
        if self.over or slot is None or slot.outcome is not None:
            return False
        if isinstance(slot.need, NextStop):
            self._advance(rank, slot, Reply())
            self._settle(now_s)
            return True
        if isinstance(slot.need, Request) and slot.sent and slot.need.command in _MOVING:
            # The answer to the request itself may come after the stop.
            slot.need = _EARLY_STOP
            return True
        return False

    def has_ended(self, rank: int, reason: str, now_s: float) -> None:
        """The rank is no more: that is its answer."""
        slot = self._slots.get(rank)
        if slot is not None and slot.outcome is None and not self.over:
            slot.plan.close()
            self._finish(rank, slot, Said(reason) if slot.let_go else Missing(reason))
            self._settle(now_s)

    def writes(self, rank: int, output: str) -> bool:
        """Take output of a rank's program. True if it belongs to its answer."""
        slot = self._slots.get(rank)
        if self.over or slot is None or not isinstance(slot.need, Request):
            return False
        if not slot.need.prints or slot.held:
            return False
        slot.output += output[: _LONGEST_OUTPUT - len(slot.output)]
        return True

    def tick(self, now_s: float) -> None:
        """Time has passed."""
        if not self.over:
            self._settle(now_s)

    def end(self, reason: str) -> None:
        """End the waiting."""
        if self.over:
            return
        for rank, slot in self._slots.items():
            if slot.outcome is None:
                waits = isinstance(slot.need, NextStop)
                slot.given_up = slot.sent and not slot.held
                self._finish(rank, slot, Missing(self.patience.reason if waits else reason))
        self._settle(self._until_s)

    def late_answer(self, rank: int, reply: Reply) -> str:
        """Return what a rank says after the waiting; "" for nothing. It is asked no more."""
        slot = self._slots[rank]
        if not slot.given_up:
            return ""
        slot.given_up = False
        try:
            need = slot.plan.send(reply)
        except StopIteration as end:
            return end.value.text if isinstance(end.value, Said) else ""
        slot.plan.close()
        # A statement is sent once the rank has said that the line is one.
        unsent = isinstance(need, Request) and need.together
        return "too late: it was not run" if unsent else ""

    # -- the plans ----------------------------------------------------------------

    def _advance(self, rank: int, slot: _Slot, reply: Reply | None) -> None:
        """Go on with a plan until it needs an answer. reply: None to begin it."""
        stopped_early = slot.need is _EARLY_STOP
        self._stopping -= isinstance(slot.need, NextStop)
        try:
            need = next(slot.plan) if reply is None else slot.plan.send(reply)
            if stopped_early and isinstance(need, NextStop):
                need = slot.plan.send(Reply())
        except StopIteration as end:
            slot.need = None
            self._finish(rank, slot, end.value)
            return
        slot.need = need
        self._stopping += isinstance(need, NextStop)
        slot.held = isinstance(need, Begin) or (isinstance(need, Request) and need.together)
        self._held += slot.held
        if isinstance(need, Request) and not slot.held:
            self.sender.ask(self, rank, need)

    def _finish(self, rank: int, slot: _Slot, outcome: Outcome) -> None:
        if isinstance(outcome, Said) and len(outcome.text) > _LONGEST_ANSWER:
            outcome = Said(outcome.text[:_LONGEST_ANSWER] + "...", outcome.is_value)
        self._left -= 1
        self._held -= slot.held
        self._stopping -= isinstance(slot.need, NextStop)
        slot.outcome, slot.need, slot.held = outcome, None, False
        self._unshown.add(rank)

    def _settle(self, now_s: float) -> None:
        """Send what was held, show what is due, and end if all is said or time is over."""
        if self.over:
            return
        self._release_held(now_s)
        if now_s >= self._until_s and not self._held:
            self._give_up()
        if not self._left:
            self.over = True
        if self.over:
            self._show(everything=True)
        elif self.patience.early and self._unshown:
            if self._show_at_s is None:
                self._show_at_s = now_s + LATE_SHOWN_S
            elif now_s >= self._show_at_s:
                self._show(everything=False)
        elif self._show_at_s is not None and now_s >= self._show_at_s:
            self._show_at_s = None

    def _release_held(self, now_s: float) -> None:
        late = self._left - self._held - self._stopping
        if not self._held or (late and now_s < self._prepare_until_s):
            return
        held = [rank for rank, slot in self._slots.items() if slot.held]
        for rank, slot in self._slots.items() if late else ():
            waits = slot.held or isinstance(slot.need, NextStop)
            if slot.outcome is None and not waits and not slot.sent:
                slot.plan.close()
                self._finish(rank, slot, Missing("did not answer, and was not sent the line"))
        self._held = 0
        self._until_s = max(self._until_s, now_s + self.patience.whole_s)
        for rank in held:
            slot = self._slots[rank]
            slot.held, slot.sent = False, True
            if isinstance(slot.need, Request):
                slot.let_go = slot.need.command == "continue"
                self.sender.ask(self, rank, slot.need)
            else:
                slot.let_go = True
                self.sender.begin(self, rank)

    def _give_up(self) -> None:
        for rank, slot in self._slots.items():
            if slot.outcome is None:
                waits = isinstance(slot.need, NextStop)
                slot.given_up = slot.sent and not waits
                after = f"did not answer in {self.patience.whole_s:g} s{self.silence}"
                self._finish(rank, slot, Missing(self.patience.reason if waits else after))

    def _show(self, *, everything: bool) -> None:
        self._show_at_s = None
        unshown, self._unshown = self._unshown, set()
        if not self.quiet:
            outcomes = self.outcomes
            part = {rank: outcomes[rank] for rank in sorted(unshown)}
            self.shown += self.show(part, everything)


#: Requests after which a rank stops.
_MOVING = frozenset({"next", "stepIn", "stepOut", "pause"})
#: Stands for a request whose stop has come before its answer.
_EARLY_STOP = Request("", {})
