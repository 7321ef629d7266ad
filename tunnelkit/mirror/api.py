"""The mirror's interface: what it needs from the session, and what it reports."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from tunnelkit.errors import MirrorHalted as MirrorHalted
from tunnelkit.mux.channel import Channel

#: More deleted files than this at once halt the mirror: [mirror] delete_limit.
DELETE_LIMIT_FILES = 200
#: Number of names in a `PassRecord`.
NAMED = 8


class FileAgent(Protocol):
    """An agent that sees the remote root.

    is_node: the agent runs on the compute node, so a file that it reads back is proven.
    """

    is_node: bool

    @property
    def is_up(self) -> bool:
        """True while a link to the agent is attached."""
        ...

    def open(self, header: dict[str, object]) -> Channel:
        """Open a channel to the agent."""
        ...

    async def call(self, method: str, **params: object) -> object:
        """Call the agent; wait while no link is attached. Raises TunnelkitError."""
        ...


#: {relative path: sha256 hex} -> the paths whose content, read on the compute node, differs.
DigestCheck = Callable[[Mapping[str, str]], Awaitable[list[str]]]


class MirrorState(Enum):
    """The state of a mirror.

    STALE: the cluster can't be reached or refuses. HALTED: to continue might destroy files.
    CONFLICT: all files are sent but those that were changed on the cluster.
    """

    STARTING = "starting"
    IN_SYNC = "in_sync"
    PENDING = "pending"
    CONFLICT = "conflict"
    STALE = "stale"
    HALTED = "halted"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """The status of a mirror at one moment.

    files, bytes: number and size of the mirrored files. pending: number of paths that are not
    sent yet; pending_paths: the first of them. since: Unix time at which `state` began.
    watching: False if there are no file events and the tree is polled instead.
    conflicts: mirrored files that were changed on the cluster; they are not overwritten.
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
        """Return the status in a few words for the user."""
        if self.state is MirrorState.PENDING:
            text = f"{self.pending} pending"
        elif self.state is MirrorState.STALE:
            text = f"stale since {time.strftime('%H:%M:%S', time.localtime(self.since))}"
        else:
            text = self.state.value.replace("_", " ")
        return f"{text}: {self.reason}" if self.reason else text


@dataclass(frozen=True, slots=True)
class SyncReport:
    """The result of one `barrier` or `resync`.

    kept: files deleted on the laptop but changed on the cluster since they were sent; they stay.
    replaced: files on the cluster that tk had not written (or that were edited there) and
    that the laptop's replaced; their former content is in `replaced_dir`.
    proven: files whose digest the compute node has just read back.
    by_node: True if the compute node has proven every file of the barrier's beginning.
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


@dataclass(frozen=True, slots=True)
class PassRecord:
    """One pass that changed something on the cluster.

    at: Unix time of its end. files, bytes: number and size of the files that were sent.
    paths: the first of those sent or deleted.
    """

    at: float
    files: int
    bytes: int
    deleted: int
    duration_s: float
    paths: tuple[str, ...]


class MirrorHost(Protocol):
    """The session, as its mirrors use it. All calls are made in the event loop.

    name: of the mirror's root, "" for the project's.
    """

    def file_agent(self) -> FileAgent | None:
        """Return the agent that receives files now; None: all files go by rsync."""

    def file_agent_soon(self) -> Awaitable[None]:
        """Return once there is an agent, or after a moment."""
        ...

    def may_write(self) -> Awaitable[None]:
        """Return once more than an empty directory may be made on the cluster."""
        ...

    def digest_check(self, remote_root: str, /) -> DigestCheck | None:
        """Return the check by which the node reads files back; None while there is no node."""

    def mirror_changed(self, name: str, status: MirrorStatus, /) -> None:
        """Take the new status."""

    def mirror_sent(self, name: str, record: PassRecord, /) -> None:
        """Take the record of a pass that changed something on the cluster."""

    def mirror_warns(self, name: str, text: str, /) -> None:
        """Take a warning for the user."""

    def say(self, text: str, /) -> None:
        """Take a line for the user."""


def name_paths(paths: Sequence[str], *, limit: int = 8) -> str:
    """Return some paths as one line of text, unprintable characters escaped."""
    some = list(paths)[:limit]
    shown = ", ".join(path if path.isprintable() else ascii(path) for path in some)
    return shown if len(paths) <= limit else f"{shown} and {len(paths) - limit} more"
