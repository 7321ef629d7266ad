"""The list of ranks: which ones are where, equal ones in one row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tunnelkit.debug.console.plans import (
    LocalSource,
    Plan,
    Request,
    Said,
    learn_frames,
    local_lines,
)
from tunnelkit.debug.console.rank_state import Raised, RankThere, StoppedFrame
from tunnelkit.debug.console.rendering import Rendering, columns_of, ranks_text
from tunnelkit.debug.ranks.question import position, where_are_you
from tunnelkit.debug.ranks.sample import StackFrame
from tunnelkit.text_format import duration, shown

_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python[0-9.]+/|^<")
_WIDEST_RANKS = 20
_WIDEST_NODE = 20
_WIDEST_PLACE = 40


@dataclass
class RankList:
    """The places of ranks. A rank that has not answered has none; its state is known all the same.

    places: by rank, as the plans have found them. now_s: on the laptop's monotonic clock.
    """

    ranks: Mapping[int, RankThere]
    now_s: float = 0.0
    places: dict[int, str] = field(default_factory=dict)

    def plan(self, rank: RankThere, source: LocalSource) -> Plan:
        """Find the place of one rank; it is never stopped."""
        place = ""
        if rank.state == "stopped":
            yield from learn_frames(rank)
            place = _stopped_place(rank.frames or (), source)
        elif rank.state == "running":
            question = where_are_you(known=rank.knows_look)
            reply = yield Request("evaluate", {**question})
            found = position({"success": reply.success, "body": reply.content})
            rank.knows_look = found is not None
            place = _running_place(found["frames"]) if found is not None else ""
        self.places[rank.rank] = place
        return Said("  ".join(filter(None, (place, self.state(rank.rank)))))

    def state(self, number: int) -> str:
        """The state of a rank, for people."""
        rank = self.ranks[number]
        if rank.state == "waiting":
            return "waits for a debugger"
        if rank.state == "stopped" and rank.failure is not None:
            return f"failed{self._age(rank.failure)}: {rank.failure.summary}"
        if rank.state == "stopped":
            why = rank.exception or rank.stop_reason
            return f"stopped: {why}" if why else "stopped"
        if rank.state == "ended" and rank.exit_code is not None:
            return f"ended with exit code {rank.exit_code}"
        if rank.state == "running" and number not in self.places:
            return "running, did not answer"
        return rank.state

    def _age(self, failure: Raised) -> str:
        age_s = self.now_s - failure.at_s
        return f" {duration(age_s)} ago" if age_s >= 1 else ""

    def _kind(self, number: int) -> str:
        """The part of the state by which ranks are compared: exceptions by their types."""
        rank = self.ranks[number]
        failed = rank.state == "stopped" and rank.failure is not None
        return f"failed: {rank.failure.kind}" if failed and rank.failure else self.state(number)

    def classes(self) -> dict[str, tuple[int, ...]]:
        """The ranks of each row, by the name of the row."""
        rows: dict[tuple[str, str], list[int]] = {}
        for rank in sorted(self.ranks):
            rows.setdefault((self.places.get(rank, ""), self._kind(rank)), []).append(rank)
        return {_name(at): tuple(ranks) for at, ranks in enumerate(rows.values())}

    def lines(self, rendering: Rendering, *, each: bool) -> list[str]:
        """The table. each: a row for each rank."""
        rows = self._each() if each else self._folded()
        return list(columns_of(rows, rendering.columns))

    def _folded(self) -> list[list[str]]:
        rows = [["", "ranks", "n", "where", "state"]]
        for name, ranks in self.classes().items():
            place, state = self._told(ranks[0])
            count = str(len(ranks))
            rows.append([name, ranks_text(ranks, _WIDEST_RANKS), count, place, state])
        return rows

    def _each(self) -> list[list[str]]:
        rows = [["rank", "node", "local", "pid", "where", "state"]]
        for number, rank in sorted(self.ranks.items()):
            node = shown(rank.node)[:_WIDEST_NODE]
            numbers = [str(rank.local), str(rank.pid)]
            rows.append([str(number), node, *numbers, *self._told(number)])
        return rows

    def _told(self, rank: int) -> tuple[str, str]:
        place = shown(self.places.get(rank, ""))
        if len(place) > _WIDEST_PLACE:
            place = place[: _WIDEST_PLACE - 3] + "..."
        return place, shown(self.state(rank))


def _name(at: int) -> str:
    """A, B, ..., Z, AA, ..."""
    name = ""
    while at >= 0:
        name = chr(ord("A") + at % 26) + name
        at = at // 26 - 1
    return name


def _stopped_place(frames: tuple[StoppedFrame, ...], source: LocalSource) -> str:
    """`train.py:88 step > all_reduce`: the program's innermost frame, and the innermost of all."""
    if not frames:
        return ""
    own = next((frame for frame in frames if local_lines(frame, source) is not None), frames[0])
    below = f" > {frames[0].function}" if own is not frames[0] else ""
    return own.place + below


def _running_place(frames: tuple[StackFrame, ...]) -> str:
    """The same of a running rank, whose paths are those of the node."""
    if not frames:
        return ""
    found = (frame for frame in reversed(frames) if not _LIBRARY.search(frame.file))
    own = next(found, frames[-1])
    below = f" > {frames[-1].function}" if own is not frames[-1] else ""
    return f"{own.file.rpartition('/')[2]}:{own.line} {own.function}{below}"
