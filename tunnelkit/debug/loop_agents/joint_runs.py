"""The runs of a loop that has a part on each of several nodes, from what each part reports.

Pure. A run begins on all nodes at once, and has ended once all of its parts have. If a part fails
before an editor has the run, the others are ended: they would wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tunnelkit.debug.dap.messages import Message, whole

#: Events of a part that are the loop's: the first one of each run counts.
_FIRST_COUNTS = frozenset({"starting", "armed", "attached"})
#: Events that each part has to itself.
_ALWAYS = frozenset({"rank"})


@dataclass
class _Run:
    """ended: the end of each part that has ended, in the order of their ends. said: events of
    which the loop has had the first. waiting: the pause that a part makes after its end."""

    ended: dict[int, Message] = field(default_factory=dict)
    said: set[str] = field(default_factory=set)
    waiting: Message | None = None

    @property
    def failed(self) -> list[int]:
        """The parts that have failed, in that order."""
        return [part for part, end in self.ended.items() if _failed(end)]


@dataclass(frozen=True)
class Outcome:
    """The consequences of an event of a part.

    events: the loop's, in their order. begin: this run may begin on all nodes. end: the reason why
    all other parts must be ended; "" for none.
    """

    events: tuple[Message, ...] = ()
    begin: int | None = None
    end: str = ""


class JointRuns:
    """The loop's runs so far. nodes: by part. keeps: a part that fails may be kept for an editor,
    and so may the others."""

    def __init__(self, nodes: Sequence[str], *, keeps: bool = False) -> None:
        self._nodes = list(nodes)
        self._keeps = keeps
        self._front = 1
        self._run = _Run()
        #: The last run whose pause the loop has had.
        self._paused = 0
        self._lost: dict[int, str] = {}
        self._stopped: set[int] = set()

    def goes_on(self, part: int, generation: int, state: str, last_end: Message) -> None:
        """Take what a part of an adopted loop is at. Call it for each part, then `adopted`."""
        self._front = max(self._front, generation)
        if state in ("ended", "waiting"):
            self._run.ended[part] = {**last_end, "event": "ended", "generation": generation}
        elif state == "attached":
            self._run.said.update(_FIRST_COUNTS)
        elif state == "armed":
            self._run.said.update({"starting", "armed"})

    def adopted(self) -> Outcome:
        """Forget the ends of earlier runs; the next run may have been due."""
        ended = self._run.ended
        self._run.ended = {
            part: end for part, end in ended.items() if end.get("generation") == self._front
        }
        return self._when_all_ended()

    @property
    def front(self) -> int:
        """The run whose turn it is."""
        return self._front

    @property
    def has_begun(self) -> bool:
        """True once a part of the run in front has begun, or has failed to."""
        return "starting" in self._run.said or bool(self._run.ended)

    @property
    def state(self) -> str:
        """The state of an adopted loop."""
        if "attached" in self._run.said:
            return "attached"
        return "armed" if "armed" in self._run.said else "starting"

    def note(self, part: int, event: Message) -> Outcome:
        """Take an event of a part."""
        name = event.get("event")
        number = whole(event.get("generation", 0))
        if part in self._lost or number is None or not isinstance(name, str):
            return Outcome()
        if name == "stopped":
            return self._part_stopped(part, event)
        if name == "waiting":
            return self._part_waits(number, event)
        if number != self._front:
            return Outcome()
        if name in _FIRST_COUNTS:
            return self._first(name, event)
        if name == "ended":
            return self._part_ended(part, event)
        if name in _ALWAYS:
            return Outcome(({**event, "node": self._nodes[part]},))
        return Outcome((event,)) if part == 0 else Outcome()

    def lost(self, part: int, why: str) -> Outcome:
        """Take the end of a part's agent. No run begins after it."""
        if part in self._lost or part in self._stopped:
            return Outcome()
        self._lost[part] = why
        node = self._nodes[part]
        said: Message = {
            "event": "node-lost",
            "generation": self._front,
            "node": node,
            "why": why,
        }
        return Outcome((said,), end=f"{node} is lost")

    # -- inside -----------------------------------------------------------

    def _first(self, name: str, event: Message) -> Outcome:
        if name in self._run.said:
            return Outcome()
        self._run.said.add(name)
        more: Message = {"nodes": self._nodes} if name == "starting" else {}
        return Outcome(({**event, **more},))

    def _part_ended(self, part: int, event: Message) -> Outcome:
        if part in self._run.ended:
            return Outcome()
        self._run.ended[part] = event
        if len(self._run.ended) == len(self._nodes):
            return self._when_all_ended()
        by_itself = event.get("why") in ("ended", "not started")
        if not by_itself or self._run.failed != [part]:
            return Outcome()
        said: Message = {**event, "event": "part-ended", "node": self._nodes[part]}
        goes_on = "attached" in self._run.said or self._keeps
        return Outcome((said,), end="" if goes_on else f"{self._nodes[part]} has failed")

    def _part_waits(self, number: int, event: Message) -> Outcome:
        """A part pauses after its end: so does the loop, once the run's last part has ended."""
        if number == self._front:
            self._run.waiting = self._run.waiting or event
            return Outcome()
        is_late = "starting" in self._run.said or self._paused == number
        if number != self._front - 1 or is_late:
            return Outcome()
        self._paused = number
        return Outcome((event,))

    def _when_all_ended(self) -> Outcome:
        """The run has ended once all of its parts have: the first failure is its end."""
        ended = self._run.ended
        if len(ended) < len(self._nodes):
            return Outcome()
        part = [*self._run.failed, *reversed(ended)][0]
        said: list[Message] = [{**ended[part], "node": self._nodes[part]}]
        if self._run.waiting is not None:
            said.append(self._run.waiting)
            self._paused = self._front
        self._front, self._run = self._front + 1, _Run()
        return Outcome(tuple(said), begin=self._front)

    def _part_stopped(self, part: int, event: Message) -> Outcome:
        self._stopped.add(part)
        everybody = len(self._stopped | {*self._lost}) == len(self._nodes)
        return Outcome((event,)) if everybody else Outcome()


def _failed(end: Message) -> bool:
    return bool(end.get("error") or end.get("signal") or end.get("code"))
