"""The maker of a mirror's watcher: its own, or one that shares its source of events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tunnelkit.mirror.watch.watcher import Watcher


class MakeWatch(Protocol):
    """Makes the watcher of a root; the parameters are those of `Watcher`."""

    def __call__(
        self,
        root: str,
        wake: Callable[[], None],
        *,
        interesting: Callable[[str], bool],
        wanted: Callable[[str], bool],
        known: Callable[[str], bool],
    ) -> Watcher:
        """Return a watcher that was not started."""
        ...
