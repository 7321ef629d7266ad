"""What the mirror needs from the rooms above it, and what it tells them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from tunnelkit.errors import MirrorHalted as MirrorHalted
from tunnelkit.mux.channel import Channel

#: More deleted files than this at once halt the mirror: [mirror] delete_limit.
DELETE_LIMIT_FILES = 200


class FileAgent(Protocol):
    """An agent that sees the remote root. is_node: it is the compute node itself, and what it
    reads back is proof."""

    is_node: bool

    @property
    def is_up(self) -> bool:
        """Whether a link carries the conversation at this moment."""
        ...

    def open(self, header: dict[str, Any]) -> Channel:
        """Open a channel to it."""
        ...

    async def call(self, method: str, **params: Any) -> Any:
        """Call it; waits through link cuts. Raises TunnelkitError."""
        ...


#: {relative path: sha256 hex} -> the paths whose content, read on the compute node, differs.
DigestCheck = Callable[[Mapping[str, str]], Awaitable[list[str]]]


class MirrorState(Enum):
    """STALE: the cluster can't be had or refuses; HALTED: going on might destroy something;
    CONFLICT: all is there but for files that were changed on the cluster."""

    STARTING = "starting"
    IN_SYNC = "in_sync"
    PENDING = "pending"
    CONFLICT = "conflict"
    STALE = "stale"
    HALTED = "halted"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """A moment of the mirror.

    files, bytes: what is mirrored. pending: how many paths are not yet there, and
    `pending_paths` the first of them. since: Unix time at which `state` began.
    watching: False when file events can't be had and the tree is polled instead.
    conflicts: mirrored files that were changed on the cluster, which are left alone.
    """

    state: MirrorState
    files: int = 0
    bytes: int = 0
    pending: int = 0
    pending_paths: tuple[str, ...] = ()
    since: float = field(default_factory=time.time)
    reason: str | None = None
    watching: bool = False
    conflicts: tuple[str, ...] = ()

    def describe(self) -> str:
        """The status in a few words, for a person."""
        if self.state is MirrorState.PENDING:
            text = f"{self.pending} pending"
        elif self.state is MirrorState.STALE:
            text = f"stale since {time.strftime('%H:%M:%S', time.localtime(self.since))}"
        else:
            text = self.state.value.replace("_", " ")
        return f"{text}: {self.reason}" if self.reason else text


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What one `barrier` or `resync` did.

    kept: files deleted here but changed on the cluster since they were sent; left there.
    replaced: files on the cluster that tk had not written (or that were edited there) and
    that gave way to the laptop's; their former content is in `replaced_dir`.
    proven: files whose digest the compute node has just read back.
    by_node: there was a compute node: all that was there when the barrier began is proven by it.
    """

    sent: int = 0
    sent_bytes: int = 0
    deleted: int = 0
    kept: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    replaced_dir: str | None = None
    proven: int = 0
    duration_s: float = 0.0
    by_node: bool = False


def name_paths(paths: Sequence[str], *, limit: int = 8) -> str:
    """Some paths as one line of text, odd characters escaped."""
    shown = ", ".join(_printable(path) for path in list(paths)[:limit])
    return shown if len(paths) <= limit else f"{shown} and {len(paths) - limit} more"


def _printable(path: str) -> str:
    return path if path.isprintable() else ascii(path)
