"""Options of one pass."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

_T = TypeVar("_T")

#: Called with the paths that a pass has to send or delete, before it does.
OnPending = Callable[[frozenset[str]], None]


class During(Protocol):
    """Awaits a long step of a pass; other work may be done meanwhile."""

    async def __call__(self, work: Awaitable[_T]) -> _T:
        """Return the result of `work`."""


async def awaited(work: Awaitable[_T]) -> _T:
    """Do nothing meanwhile."""
    return await work


@dataclass(frozen=True, slots=True)
class PassOptions:
    """Options of one pass.

    repair: also check that all sent files are still there.
    allow_deletes: the user has confirmed the deletes.
    force: send these again, unless their remote content is not tk's.
    ours: conflicts in which the laptop's version wins.
    again: known conflicts to check again.
    """

    repair: bool = False
    allow_deletes: bool = False
    force: frozenset[str] = frozenset()
    ours: frozenset[str] = frozenset()
    again: frozenset[str] = frozenset()

    @staticmethod
    def together(wishes: Iterable[PassOptions]) -> PassOptions:
        """Combine the options for one pass."""
        found = list(wishes)
        return PassOptions(
            any(one.repair for one in found),
            any(one.allow_deletes for one in found),
            frozenset().union(*(one.force for one in found)),
            frozenset().union(*(one.ours for one in found)),
            frozenset().union(*(one.again for one in found)),
        )


NOTHING_SPECIAL = PassOptions()
