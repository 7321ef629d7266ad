"""Rosters to select from."""

from __future__ import annotations

from tunnelkit.debug.ranks.roster import Roster, RosterEntry
from tunnelkit.debug.ranks.sample import RankState


def square(nodes: int, ranks_each: int) -> Roster:
    """Running ranks in blocks on node0, node1, ...; three classes, one with ranks that are gone."""
    return Roster(
        tuple(
            RosterEntry(
                node * ranks_each + local, f"node{node}", local_rank=local, state=RankState.RUNNING
            )
            for node in range(nodes)
            for local in range(ranks_each)
        ),
        classes={"A": (0, 1, 2), "B": (15,), "GONE": (3, 16, 17)},
    )
