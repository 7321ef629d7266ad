"""Relative paths and the directories above them. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Iterable


def parents(path: str) -> Iterable[str]:
    """Return the directories above a relative path, nearest first, without the root."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def with_parents(paths: Iterable[str]) -> set[str]:
    """Return the paths and every directory above them."""
    found = set(paths)
    for path in list(found):
        for above in parents(path):
            if above in found:
                break
            found.add(above)
    return found
