"""Named dimensions over the ranks: `pp=2,dp=4,tp=8`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tunnelkit.debug.ranks.terms import DIMENSIONS, EVERYTHING, FAILED, STATE_WORDS, WORD
from tunnelkit.debug.ranks.text_cursor import MOST_DIGITS, TextCursor
from tunnelkit.debug.ranks.text_errors import MeshError

_TAKEN = frozenset({*DIMENSIONS, *EVERYTHING, *STATE_WORDS, FAILED})


@dataclass(frozen=True)
class Mesh:
    """Dimensions over the ranks 0, 1, ... row-major: the last one changes from rank to rank.

    names, sizes: of each dimension, the first one outermost. Raises ValueError for names that
    occur twice, sizes below 1, and for more of one than of the other.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(set(self.names)) != len(self.names) or len(self.names) != len(self.sizes):
            raise ValueError("each dimension has one name and one size")
        if any(size < 1 for size in self.sizes):
            raise ValueError("a dimension has at least the size 1")

    def size(self, name: str) -> int:
        """Return the size of a dimension. Raises ValueError for a name that it doesn't have."""
        return self.sizes[self.names.index(name)]

    def coordinate(self, name: str, rank: int) -> int | None:
        """Return the rank's place in a dimension, from 0; None for a rank outside of the mesh.

        Raises ValueError for a name that it doesn't have.
        """
        at = self.names.index(name)
        if rank >= math.prod(self.sizes):
            return None
        return rank // math.prod(self.sizes[at + 1 :]) % self.sizes[at]


def parse_mesh(text: str, world_size: int) -> Mesh:
    """Read dimensions as `pp=2,dp=4,tp=8`. world_size: the program's ranks, debugged or not.

    Raises MeshError: malformed, a name twice or taken, a product that is not `world_size`.
    """
    cursor = TextCursor(text, MeshError)
    sizes: dict[str, int] = {}
    while not sizes or cursor.take(","):
        name = _new_name(cursor, sizes)
        if not cursor.take("="):
            cursor.refuse(f"after {name} comes = and its size: {name}=2")
        cursor.skip_blanks()
        column = cursor.column
        size = cursor.take_number()
        if size is None:
            cursor.refuse(f"the size of {name} is missing: {name}=2")
        if size == 0:
            cursor.refuse(f"the size of {name} is at least 1", column)
        sizes[name] = size
    if cursor.peek():
        cursor.refuse(f"a comma or the end must follow, not {cursor.next_as_said()}")
    product = math.prod(sizes.values())
    if product != world_size:
        made = product if product < 10**MOST_DIGITS else "too many"
        cursor.refuse(f"the program has {world_size} ranks, but these sizes make {made}", 1)
    return Mesh(tuple(sizes), tuple(sizes.values()))


def _new_name(cursor: TextCursor, sizes: Mapping[str, int]) -> str:
    cursor.skip_blanks()
    column = cursor.column
    name = cursor.take_pattern(WORD)
    if not name:
        cursor.refuse(
            f"the name of a dimension is missing before {cursor.next_as_said()}: pp=2,dp=4"
        )
    if name in _TAKEN:
        cursor.refuse(f"{name} has a meaning in selections: take another name", column)
    if name in sizes:
        cursor.refuse(f"the dimension {name} is given twice", column)
    return name
