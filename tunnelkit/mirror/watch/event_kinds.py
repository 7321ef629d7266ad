"""The kinds of watchdog's events, and what each says about its path."""

from __future__ import annotations

import os
import stat

from watchdog import events
from watchdog.events import FileSystemEvent

from tunnelkit.mirror.watch.coalescer import EventKind

CHANGES: dict[type[FileSystemEvent], EventKind] = {
    events.DirCreatedEvent: EventKind.TREE,
    events.DirDeletedEvent: EventKind.TREE_GONE,
    events.FileClosedEvent: EventKind.DONE,
    events.FileCreatedEvent: EventKind.CREATED,
    events.FileDeletedEvent: EventKind.GONE,
    events.FileModifiedEvent: EventKind.WRITTEN,
}
MOVES: dict[type[FileSystemEvent], tuple[EventKind, EventKind]] = {
    events.DirMovedEvent: (EventKind.TREE_GONE, EventKind.TREE),
    events.FileMovedEvent: (EventKind.GONE, EventKind.PLACED),
}
#: Attributes have events of their own since watchdog 7. Before, they are modifications.
_ATTRIBUTES: list[type[FileSystemEvent]] = [
    kind
    for name in ("DirAttribEvent", "FileAttribEvent")
    if (kind := getattr(events, name, None)) is not None
] or [events.DirModifiedEvent]
# Without opened and read-only-closed events: the mirror's own reading causes them.
KINDS: list[type[FileSystemEvent]] = [*CHANGES, *MOVES, *_ATTRIBUTES]


def str_of(path: str | bytes) -> str:
    """Return a path of watchdog, which is str or bytes, as str."""
    return path if isinstance(path, str) else path.decode("utf-8", "surrogateescape")


def is_whole(path: str) -> bool:
    """Return True if a new path is complete at once (a symlink, a further hard link).

    Then no close event follows.
    """
    try:
        info = os.lstat(path)
    except OSError:
        return False
    return not stat.S_ISREG(info.st_mode) or info.st_nlink > 1
