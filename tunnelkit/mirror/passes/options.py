"""What is asked of one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

#: Told the paths that a pass has to bring there, before they are.
OnPending = Callable[[frozenset[str]], None]


@dataclass(frozen=True, slots=True)
class PassOptions:
    """repair: also look whether all that was sent is still there. allow_deletes: a person has
    confirmed them. force: send these again, unless their content there is not tk's. ours:
    conflicts in which the laptop's version wins. again: known conflicts to look at again."""

    repair: bool = False
    allow_deletes: bool = False
    force: frozenset[str] = frozenset()
    ours: frozenset[str] = frozenset()
    again: frozenset[str] = frozenset()

    @staticmethod
    def together(wishes: Iterable[PassOptions]) -> PassOptions:
        """All of them, for one pass."""
        found = list(wishes)
        return PassOptions(
            any(one.repair for one in found),
            any(one.allow_deletes for one in found),
            frozenset().union(*(one.force for one in found)),
            frozenset().union(*(one.ours for one in found)),
            frozenset().union(*(one.again for one in found)),
        )


NOTHING_SPECIAL = PassOptions()
