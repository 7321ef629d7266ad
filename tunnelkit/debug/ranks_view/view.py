"""All that is known of the ranks at one time, for people and for `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tunnelkit.debug.ranks.arrivals import Arrival, BlockingCalls
from tunnelkit.debug.ranks.sample import RankSample, RankState
from tunnelkit.debug.ranks.stacks import StackClass


@dataclass(frozen=True)
class RanksView:
    """The ranks, sampled and compared.

    samples: the newest of each rank. classes, arrivals: of the same. roots: the project's
    directories on the node. program: the loop's command, "" if unknown. took_s: from the first
    question to the last answer. clock: the time of day as text, "" for none. still_s: for how long
    a rank has not moved, in seconds, by rank. calls: of MPI, None where that was not asked. notes:
    what could not be asked, and why, a line each. native: py-spy was asked for stacks. absent:
    ranks that have not dialled in, and so have no sample.
    """

    samples: Sequence[RankSample]
    classes: Sequence[StackClass]
    arrivals: Sequence[Arrival] = ()
    roots: Sequence[str] = ()
    program: str = ""
    took_s: float = 0.0
    clock: str = ""
    still_s: Mapping[int, float] = field(default_factory=dict)
    calls: BlockingCalls | None = None
    notes: Sequence[str] = ()
    native: bool = False
    absent: Sequence[int] = ()

    def total(self) -> int:
        """The number of ranks, with those that have not dialled in."""
        return len(self.samples) + len(self.absent)

    def answered(self) -> int:
        """The number of ranks that answered, or that wait for a debugger."""
        return sum(did_answer(one.state) for one in self.samples)

    def nodes(self) -> int:
        """The number of nodes that the ranks run on."""
        return len({one.node for one in self.samples})

    def unmoved_s(self, found: StackClass) -> float | None:
        """For how long no rank of a class has moved, in seconds; None if unknown."""
        times = [self.still_s[rank] for rank in found.ranks if rank in self.still_s]
        return min(times) if len(times) == len(found.ranks) else None


def did_answer(state: RankState) -> bool:
    """Tell whether a rank in this state counts as one that answered."""
    return state not in (RankState.SILENT, RankState.ENDED, RankState.UNDEBUGGED)
