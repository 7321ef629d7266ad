"""File systems and quotas, as the login host sees them now."""

from __future__ import annotations

from dataclasses import dataclass

#: A write fails that would go over the limit, so a part of it may be left.
_FULL = 0.99


@dataclass(frozen=True, slots=True)
class RoomView:
    """A file system as the login host sees it now, at `path`. used: 0 to 1, as df rounds it up.
    device: as df names it: a disk, or `server:/export`. inodes_free: None if it counts none."""

    path: str
    mounted_on: str
    size_bytes: int
    free_bytes: int
    used: float
    inodes_used: float | None = None
    device: str = ""
    inodes_free: int | None = None


@dataclass(frozen=True, slots=True)
class Amount:
    """limit: the hard one; the soft one if its time of grace is over."""

    used: int
    limit: int

    @property
    def full(self) -> bool:
        """True if a large write would fail, of which a part may be left."""
        return self.used >= self.limit * _FULL

    @property
    def left(self) -> int:
        """The bytes or files up to the limit; 0 if it is reached."""
        return max(0, self.limit - self.used)


@dataclass(frozen=True, slots=True)
class QuotaView:
    """One quota. filesystem: its device, server or mount, as the quota command prints it. kind:
    `user`, `group` or `project`; owner: its name. blocks: in bytes; files: their number. None: no
    limit."""

    filesystem: str
    kind: str
    owner: str = ""
    blocks: Amount | None = None
    files: Amount | None = None

    @property
    def full(self) -> bool:
        """True if one of its limits is reached for a large write."""
        return any(one is not None and one.full for one in (self.blocks, self.files))


@dataclass(frozen=True, slots=True)
class StorageView:
    """File systems into which a running job writes its log, and this user's quotas there."""

    rooms: tuple[RoomView, ...] = ()
    quotas: tuple[QuotaView, ...] = ()


NO_STORAGE = StorageView()
