"""What is asked of one pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tunnelkit.mirror.limits import DELETE_LIMIT_FILES

#: Told the paths that a pass has to bring there, before they are.
OnPending = Callable[[frozenset[str]], None]


@dataclass(frozen=True, slots=True)
class Wishes:
    """repair: also look whether all that was sent is still there. allow_deletes: a person has
    confirmed them. force: send these again, unless their content there is not tk's. ours:
    conflicts in which the laptop's version wins. again: known conflicts to look at again."""

    repair: bool = False
    allow_deletes: bool = False
    force: frozenset[str] = frozenset()
    ours: frozenset[str] = frozenset()
    again: frozenset[str] = frozenset()
    delete_limit: int = DELETE_LIMIT_FILES
