"""The process of a debug target: its pid and node, and its rank if it is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tunnelkit.debug.dap.messages import whole
from tunnelkit.errors import DebugError


@dataclass(frozen=True)
class TargetIdentity:
    """The process of a target. rank: None if it is none; world_size: 0 if unknown."""

    pid: int = 0
    node: str = ""
    rank: int | None = None
    world_size: int = 0
    ancestors: tuple[int, ...] = ()
    local_rank: int = 0

    @staticmethod
    def from_header(header: Mapping[str, object]) -> TargetIdentity:
        """Return the process of the agent's `debuggee` header (wire/PROTOCOL.md).

        Raises DebugError.
        """
        rank, ancestors = header.get("rank") or (), header.get("ancestors") or ()
        node, pid = str(header.get("node") or ""), whole(header.get("pid") or 0)
        try:
            if pid is None or not isinstance(rank, list | tuple):
                raise ValueError
            if not isinstance(ancestors, list | tuple):
                raise ValueError
            return TargetIdentity(
                pid=pid,
                node=node,
                rank=int(rank[0]) if rank else None,
                world_size=int(rank[2]) if rank else 0,
                ancestors=tuple(int(pid) for pid in ancestors),
                local_rank=int(rank[1]) if rank else 0,
            )
        except (TypeError, ValueError, LookupError, ArithmeticError):
            raise DebugError(
                "the agent did not report which process has dialled in",
                hint="is it of another version? tk down, then tk up",
            ) from None

    @property
    def name(self) -> str:
        """As an editor shows it: `rank 3 · node2`."""
        return f"rank {self.rank} · {self.node}" if self.rank is not None else self.node
