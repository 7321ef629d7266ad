"""The ranks that are there: on which node, in which state, in which classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from tunnelkit.debug.ranks.mesh import Mesh
from tunnelkit.debug.ranks.sample import RankState

_NO_CLASSES: Mapping[str, tuple[int, ...]] = MappingProxyType({})


@dataclass(frozen=True)
class RosterEntry:
    """One rank. node: the name of the host where it runs. local_rank: its number there.

    failed: an uncaught exception ended its program, or the debugger holds it at one.
    """

    rank: int
    node: str
    local_rank: int
    state: RankState
    failed: bool = False


@dataclass(frozen=True)
class Roster:
    """All ranks that are there. entries: one for each rank, in any order.

    classes: by name, without the @: the ranks that a list has shown under it, as they were then.
    mesh: names of dimensions; None if there are none.
    """

    entries: tuple[RosterEntry, ...]
    classes: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: _NO_CLASSES)
    mesh: Mesh | None = None

    @cached_property
    def by_rank(self) -> Mapping[int, RosterEntry]:
        """The entries by rank, ascending."""
        ordered = sorted(self.entries, key=lambda entry: entry.rank)
        return MappingProxyType({entry.rank: entry for entry in ordered})

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes in the order of their lowest ranks; its index is a node's."""
        return tuple(dict.fromkeys(entry.node for entry in self.by_rank.values()))

    @property
    def dimensions(self) -> tuple[str, ...]:
        """The names of all dimensions: rank, node, local and the mesh's."""
        return ("rank", "node", "local", *(self.mesh.names if self.mesh is not None else ()))

    def places(self, dimension: str) -> Mapping[int, int]:
        """Return the place of each rank in one of the `dimensions`.

        A rank outside of the mesh has none. Raises ValueError for another name.
        """
        if dimension == "rank":
            return {rank: rank for rank in self.by_rank}
        if dimension == "node":
            index = {name: at for at, name in enumerate(self.nodes)}
            return {rank: index[entry.node] for rank, entry in self.by_rank.items()}
        if dimension == "local":
            return {rank: entry.local_rank for rank, entry in self.by_rank.items()}
        if self.mesh is None:
            raise ValueError(f"no dimension {dimension}")
        found = ((rank, self.mesh.coordinate(dimension, rank)) for rank in self.by_rank)
        return {rank: place for rank, place in found if place is not None}
