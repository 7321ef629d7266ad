"""Stop the publication of files that were sent over the live channel without an answer.

They may still be on their way when rsync or another agent sends newer files. So tk writes another
turn into the owner file. An agent reads that file before it publishes, and refuses if the turn is
not its own.
"""

from __future__ import annotations

from tunnelkit.errors import MirrorError
from tunnelkit.mirror.context import SyncContext
from tunnelkit.mirror.remote.root import claim


async def fence(ground: SyncContext) -> None:
    """Return once nothing is published any more that was sent without an answer.

    Does nothing if all was answered. Raises ConnectionFailed.
    """
    held = ground.claim
    if not ground.is_owed or held is None:
        return
    try:
        ground.claim = await claim(ground.remote, ground.remote_root, held.owner.next_turn())
    except MirrorError:
        return  # another mirror owns it by now: the next check reports it
    ground.settle()
