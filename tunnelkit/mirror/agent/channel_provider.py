"""Opens the mirror channel on the current agent, and reopens it when the agent changes.

The only owner of the channel.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from tunnelkit.errors import ConnectionFailed, MirrorError
from tunnelkit.mirror.agent.channel import Fenced, MirrorChannel, NotThere
from tunnelkit.mirror.agent.fence import fence
from tunnelkit.mirror.agent.verify import ping
from tunnelkit.mirror.api import FileAgent
from tunnelkit.mirror.context import SyncContext
from tunnelkit.mirror.record.manifest import same_time

#: An agent that does not see the root is asked again after this: its file system may lag.
_ASK_AGAIN_S = 10.0


class RootReplaced(MirrorError):
    """Error: what is at the remote root is not the directory that the files were sent into."""


class ChannelProvider:
    """Opens a live channel to the current agent, and closes it with the agent.

    on_differ: called when a published file was changed before the agent could read it back.
    """

    def __init__(
        self,
        ground: SyncContext,
        agent: Callable[[], FileAgent | None],
        on_differ: Callable[[], None] = lambda: None,
    ) -> None:
        self._ground = ground
        self._agent = agent
        self._on_differ = on_differ
        self._live: MirrorChannel | None = None
        #: the agent that refused the channel, and until when it is not asked again
        self._refused: tuple[FileAgent | None, float] = (None, 0.0)
        self._prover: str | None = None
        #: the channel's root was moved away: it is of no use
        self._moved = False
        #: the node's agent for which proofs were forgotten, as it can't serve the root
        self._unserving: FileAgent | None = None

    @property
    def node(self) -> FileAgent | None:
        """The compute node's own agent, if it carries the channel now, or None."""
        live = self._live
        return live.agent if live is not None and live.agent.is_node and live.is_usable else None

    async def live(self) -> MirrorChannel | None:
        """Return the channel for the running pass, or None if no agent can serve it now.

        Raises MirrorHalted if another mirror has taken over the target, or ConnectionFailed.
        """
        agent = self._agent()
        live = self._live
        if live is not None and (live.agent is not agent or not live.is_usable or self._moved):
            await self.close()
        if agent is None or not agent.is_up:
            return None
        who, until = self._refused
        if self._live is None and (agent is not who or time.monotonic() >= until):
            await self._open(agent)
        return self._live

    async def ping(self) -> bool:
        """Check that the node answers and sees the root (one round trip).

        False: no live channel to it is open. Raises RootReplaced if another directory, or none, is
        at the root since the proofs, which are forgotten; MirrorHalted, MirrorError or
        TunnelkitError.
        """
        node = self.node
        if node is None:
            return False
        try:
            there = await ping(node, self._ground)
        except NotThere:
            if self._prover is None:
                raise
            there = ""
        if self._prover is not None and there != self._prover:
            self._prover, self._moved = None, True
            await asyncio.to_thread(self._ground.manifest.forget_proofs)
            self._on_differ()
            raise RootReplaced(
                f"{self._ground.remote_root} is another directory now",
                hint="`tk sync` sends all files into it",
                transient=True,
            )
        return True

    async def proofs_in(self) -> None:
        """Return once all sent files were read back there, or won't be."""
        if self._live is not None:
            await self._live.proofs_in()

    async def close(self) -> None:
        """Close the channel. Idempotent."""
        live, self._live = self._live, None
        if live is not None:
            if live.is_owed:
                self._ground.owe(live.agent)
            await live.close()

    async def _open(self, agent: FileAgent) -> None:
        ground = self._ground

        async def proof(
            digests: Mapping[str, str], stamps: Mapping[str, str], differ: Mapping[str, str]
        ) -> None:
            if differ.keys() & digests.keys():
                self._on_differ()
            rows = ground.manifest.rows
            seen = {
                path: text
                for path, text in digests.items()
                # Without files that were touched there since: the next verify finds them.
                if path in stamps and path in rows and same_time(rows[path], stamps[path])
            }
            note = ground.manifest.prove if agent.is_node else ground.manifest.stamp
            await asyncio.to_thread(note, seen, stamps)

        if ground.owed_by is not agent:
            await fence(ground)
        try:
            live = await MirrorChannel.open(
                agent,
                ground.remote_root,
                ground.claim,
                host=ground.remote.destination(),
                on_proof=proof,
            )
        except Fenced:
            ground.owe(None)
            raise
        except (NotThere, ConnectionFailed) as error:
            # An agent that is up and doesn't answer hangs: rsync may work.
            if agent.is_up or isinstance(error, NotThere):
                self._refused = agent, time.monotonic() + _ASK_AGAIN_S
                await self._may_see_nothing(agent)
            return
        self._live, self._unserving, self._moved = live, None, False
        # An agent has one channel per root at a time: the former one is over.
        ground.settle()
        if agent.is_node and self._prover != live.instance:
            # A file that another agent has read back, maybe on another node, is not proven for
            # this one.
            self._prover = live.instance
            await asyncio.to_thread(ground.manifest.forget_proofs)

    async def _may_see_nothing(self, agent: FileAgent) -> None:
        """Have every file proven by an agent without a channel, once: it may not see the root."""
        if agent.is_node and agent is not self._unserving:
            self._unserving, self._prover = agent, None
            await asyncio.to_thread(self._ground.manifest.forget_proofs)
