"""Ranks that a run must have, and that have not dialled in."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

#: Of a world; a node could name any size.
_MOST_RANKS = 4_096


@dataclass(frozen=True)
class DialledIn:
    """A process that has dialled in. world_size: 0 if unknown. over: it has ended, or was left."""

    rank: int
    world_size: int
    over: bool


def absent_ranks(seen: Iterable[DialledIn], only: Collection[int] | None = None) -> tuple[int, ...]:
    """Return the ranks that have never dialled in, ascending. only: those to debug, None for all.

    In doubt there are none: if the living ranks name several world sizes, as those of two programs
    or of an elastic one that starts again do, or if none is alive.
    """
    processes = list(seen)
    sizes = {one.world_size for one in processes if not one.over}
    if len(sizes) != 1:
        return ()
    [size] = sizes
    if not 0 < size <= _MOST_RANKS:
        return ()
    wanted = range(size) if only is None else {rank for rank in only if 0 <= rank < size}
    # Those of an earlier program of the same size count, too.
    there = {one.rank for one in processes if one.world_size == size}
    return tuple(sorted(set(wanted) - there))
