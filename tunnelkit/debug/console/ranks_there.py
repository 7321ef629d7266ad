"""The ranks of the run as the session's messages describe them, and the names that select them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tunnelkit.debug.console.rank_state import RankThere
from tunnelkit.debug.console.rendering import ranks_text
from tunnelkit.debug.dap.messages import Message, objects, text, whole
from tunnelkit.debug.ranks.console_messages import State
from tunnelkit.debug.ranks.mesh import Mesh
from tunnelkit.debug.ranks.roster import Roster, RosterEntry
from tunnelkit.debug.ranks.sample import RankState
from tunnelkit.text_format import shown

#: Of a roster; the rest is not seen.
MOST_RANKS = 4_096
_LARGEST_RANK = 9_999_999
_LONGEST_COMMAND = 200
_WIDEST_RANKS = 40
_STATES: dict[State, RankState] = {
    "waiting": RankState.WAITING,
    "running": RankState.RUNNING,
    "stopped": RankState.STOPPED,
    "ended": RankState.ENDED,
}


@dataclass(frozen=True)
class RosterChange:
    """The changes of a roster. new_run: its ranks replace all others. ended: ranks that were
    there and have ended, or are no more. came: ranks that are new. back: those that a session
    before this one had."""

    new_run: bool
    ended: tuple[int, ...]
    came: tuple[int, ...]
    back: tuple[int, ...] = ()


class RanksThere:
    """All ranks, by number. classes: names for `@B`, from the last list."""

    def __init__(self) -> None:
        self.by_rank: dict[int, RankThere] = {}
        self.generation: int | None = None
        self.world_size = 0
        #: The number of ranks that dial in, sooner or later.
        self.expected = 0
        #: Those of them that have not.
        self.absent: tuple[int, ...] = ()
        self.command = ""
        self.mesh: Mesh | None = None
        self.classes: dict[str, tuple[int, ...]] = {}
        #: Ranks of a session that is gone, until its successor has them.
        self.awaited: set[int] = set()

    @property
    def alive(self) -> tuple[int, ...]:
        """The ranks that have not ended, ascending."""
        return tuple(sorted(one.rank for one in self.by_rank.values() if one.state != "ended"))

    @property
    def all_of_them(self) -> int:
        """The number of ranks that dial in: all of the run, or those of --rank."""
        return self.expected or self.world_size

    def in_state(self, state: State) -> list[int]:
        """The ranks in a state, ascending."""
        return sorted(one.rank for one in self.by_rank.values() if one.state == state)

    def lose_session(self) -> None:
        """Forget the ranks of a session that is gone: its successor names them again."""
        self.awaited.update(self.alive)
        self.by_rank = {}

    def take(self, message: Message) -> RosterChange:
        """Take a roster."""
        generation = whole(message.get("generation")) or 0
        # 0: there is no run at the moment.
        new_run = bool(generation) and bool(self.generation) and generation != self.generation
        before = {one: rank.state != "ended" for one, rank in self.by_rank.items()}
        if new_run:
            self.by_rank = {}
            self.classes = {}
            self.awaited.clear()
        self.generation = generation or self.generation
        world_size = whole(message.get("world_size")) or 0
        if world_size != self.world_size:
            self.mesh = None
        self.world_size = world_size
        self.expected = whole(message.get("expected")) or 0
        self.command = shown(text(message.get("command"))[:_LONGEST_COMMAND])
        replaced = self._take_entries(objects(message.get("ranks"))[:MOST_RANKS])
        self.absent = self._absent(message.get("absent"))
        ended = [
            rank
            for rank, lived in before.items()
            if lived and (new_run or rank in replaced or not self._lives(rank))
        ]
        came = [one for one in self.by_rank if new_run or one not in before or one in replaced]
        back = self.awaited & self.by_rank.keys()
        self.awaited -= back
        return RosterChange(new_run, tuple(sorted(ended)), tuple(sorted(came)), tuple(sorted(back)))

    def _take_entries(self, entries: Iterable[Message]) -> set[int]:
        """Update the ranks. Returns those that are other processes now."""
        present: dict[int, RankThere] = {}
        replaced: set[int] = set()
        for entry in entries:
            number = whole(entry.get("rank"))
            if number is None or not 0 <= number <= _LARGEST_RANK or number in present:
                continue
            known = self.by_rank.get(number)
            pid = whole(entry.get("pid")) or 0
            if known is not None and known.pid and known.pid != pid:
                replaced.add(number)
                known = None
            present[number] = known = known or RankThere(number)
            known.update(entry)
        self.by_rank = present
        return replaced

    def _absent(self, value: object) -> tuple[int, ...]:
        listed = value[:MOST_RANKS] if isinstance(value, list) else []
        ranks = {rank for one in listed if (rank := whole(one)) is not None}
        return tuple(
            one for one in sorted(ranks) if 0 <= one <= _LARGEST_RANK and one not in self.by_rank
        )

    def _lives(self, rank: int) -> bool:
        known = self.by_rank.get(rank)
        return known is not None and known.state != "ended"

    def roster(self) -> Roster:
        """The ranks to select from."""
        entries = tuple(
            RosterEntry(one.rank, one.node, one.local, _STATES[one.state], one.failure is not None)
            for one in self.by_rank.values()
        )
        return Roster(entries, dict(self.classes), self.mesh)

    def _absent_text(self) -> str:
        who = ranks_text(self.absent, _WIDEST_RANKS)
        if len(self.absent) == 1:
            return f"rank {who} has not dialled in"
        return f"ranks {who} have not dialled in" if self.absent else ""

    def summary(self) -> str:
        """`64 ranks on 8 nodes · torchrun train.py · 60 running, 4 stopped`.

        With absent ones: `63 of 64 ranks on 8 nodes · ... · rank 47 has not dialled in`.
        """
        ranks = list(self.by_rank.values())
        nodes = len({one.node for one in ranks})
        words = ["failed" if one.failure is not None else one.state for one in ranks]
        states = (f"{count} {word}" for word in _STATE_WORDS if (count := words.count(word)))
        everyone = counted(len(ranks) + len(self.absent), "rank")
        there = f"{len(ranks):,} of {everyone}" if self.absent else everyone
        parts = (
            f"{there} on {counted(nodes, 'node')}",
            self.command,
            ", ".join(states),
            self._absent_text(),
        )
        return " · ".join(filter(None, parts))


_STATE_WORDS = ("waiting", "running", "stopped", "failed", "ended")


def counted(count: int, noun: str) -> str:
    """`1 rank`, `2 ranks`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
