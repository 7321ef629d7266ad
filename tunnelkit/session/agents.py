"""The agents of a session: the first node's, which runs the loops, and the other nodes'."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from tunnelkit.errors import NoSessionError, TunnelkitError
from tunnelkit.mux.channel import Channel
from tunnelkit.session.agent.client import AgentClient
from tunnelkit.session.agent.exec_streams import ExecStreams
from tunnelkit.session.agent.find_python import introduced
from tunnelkit.session.agent.node_agents import PeerAgents
from tunnelkit.session.allocation.allocated import Allocated
from tunnelkit.session.allocation.manager import AllocationManager
from tunnelkit.session.runtime.shutdown import ShutdownSequence
from tunnelkit.session.runtime.state import StateMachine

#: If `tk up` fails, a job of its own that has run for less than this is cancelled.
_YOUNG_S = 60.0


class SessionAgents:
    """The clients of all agents. Call `reach` for each allocation, then `client.run`.

    say: called with a message for the user. debuggee: takes a process that dialled in.
    time_limit: called with the seconds left, as the job itself warns. on_link, on_stuck: see
    AgentClient.
    """

    def __init__(
        self,
        cluster: AllocationManager,
        states: StateMachine,
        *,
        say: Callable[[str], None],
        debuggee: Callable[[Channel, Mapping[str, object]], None],
        time_limit: Callable[[int], None],
        on_link: Callable[[bool, str], None],
        on_stuck: Callable[[TunnelkitError | None], None],
    ) -> None:
        self._cluster = cluster
        self._states = states
        self._say = say
        self._debuggee = debuggee
        self._time_limit = time_limit
        self._on_link = on_link
        self._on_stuck = on_stuck
        #: The client of the first node's agent; None while there is none.
        self.client: AgentClient | None = None
        #: Its answer to `info`; empty before.
        self.info: Mapping[str, object] = {}
        self.execs = ExecStreams(self.first)
        self.peers = PeerAgents(
            self.first,
            lambda node, name: cluster.allocated.peer_stream(node, name),
            lambda node: cluster.allocated.start_peer(node),
            cluster.repair,
        )
        self._allocated_at: float | None = None

    def first(self) -> AgentClient:
        """Return the first agent's client. Raises NoSessionError, or the session's failure."""
        self._states.check()
        if self.client is None:
            raise NoSessionError(
                f"the session is not ready: {self._states.state}",
                cause=self._states.detail or None,
                hint="see `tk status`",
            )
        return self.client

    @property
    def node(self) -> str:
        """The first agent's node, for messages."""
        return str(self.info.get("node") or "the node")

    @property
    def is_young(self) -> bool:
        """True until the allocation is some time old."""
        return self._allocated_at is None or time.monotonic() - self._allocated_at < _YOUNG_S

    async def reach(self, allocated: Allocated) -> AgentClient:
        """Connect to the first agent; return its client. Raises TunnelkitError."""
        self._allocated_at = time.monotonic()
        self.client = client = AgentClient(
            allocated.open_stream,
            on_channel=self._opened,
            notices={"ending": self._ending, "time-limit": self._time_is_near},
            on_link=self._on_link,
            on_stuck=self._on_stuck,
            repair=self._cluster.repair,
        )
        await client.connect_patiently(self._cluster.has_ended)
        answer = await client.call("info")
        self.info = info = answer if isinstance(answer, dict) else {}
        self.peers.allocated(allocated.nodes)
        self._say(introduced(info, allocated.job_id, self._cluster.setup.installed.python))
        return client

    async def forget(self, why: str) -> None:
        """Close all connections to agents that have ended; `reach` may come again."""
        gone, self.client, self.info = self.client, None, {}
        await self.peers.close()
        if gone is not None:
            await gone.close(why)

    async def shut_down(self, ending: ShutdownSequence) -> bool:
        """End the agents; return False if that is not certain."""
        if self.client is None or not self.client.is_up:
            return self.client is None
        await ending.step("the other nodes' agents", self.peers.shut_down(), 5.0)
        return await ending.step("the agent", self.client.shut_down("tk down"), 8.0)

    async def close(self, why: str, ending: ShutdownSequence) -> None:
        """Close all connections; the agents go on."""
        await ending.step("the other nodes' agents", self.peers.close(), 5.0)
        if self.client is not None:
            await ending.step("the agent's connection", self.client.close(why), 5.0)

    def _opened(self, channel: Channel, header: dict[str, object]) -> None:
        if header.get("type") == "debuggee":
            self._debuggee(channel, header)
        elif header.get("type") == "stderr":
            self.execs.stderr_opened(channel, header)
        else:
            channel.close({"error": "unexpected channel"})

    async def _ending(self, params: Mapping[str, object]) -> None:
        self._say(f"the agent on the node is ending: {str(params.get('reason'))[:300]}")

    async def _time_is_near(self, params: Mapping[str, object]) -> None:
        left_s = params.get("left_s")
        if isinstance(left_s, int):
            self._time_limit(left_s)
