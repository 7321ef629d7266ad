"""A fence before what was sent over the live channel without an answer.

It may still be on its way when rsync, or another agent, goes on with what came after it. An agent
looks into the owner's file before it publishes: with another turn in there, it refuses.
"""

from __future__ import annotations

from tunnelkit.errors import MirrorError
from tunnelkit.mirror.context import SyncContext
from tunnelkit.mirror.remote.root import claim


async def fence(ground: SyncContext) -> None:
    """Return once nothing more is published of what was sent without an answer, if there is
    such. Raises ConnectionFailed."""
    held = ground.claim
    if not ground.is_owed or held is None:
        return
    try:
        ground.claim = await claim(ground.remote, ground.remote_root, held.owner.next_turn())
    except MirrorError:
        return  # another mirror's by now: the next look at it says so
    ground.settle()
