"""The agents of a session: the first node's, which runs the loops, and the other nodes'."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tunnelkit.debug.agent_api import AgentApi
from tunnelkit.debug.dap.messages import whole
from tunnelkit.debug.loop_agents.several import NodePart
from tunnelkit.errors import NoSessionError, TunnelkitError
from tunnelkit.messages.agent_calls import INFO, AgentInfo
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.tasks import cancel_all, first_of
from tunnelkit.session.agent.client import AgentClient, AgentGone
from tunnelkit.session.agent.exec_streams import ExecStreams
from tunnelkit.session.agent.find_python import introduced
from tunnelkit.session.agent.first_link import FirstWays
from tunnelkit.session.agent.node_agents import PeerAgents
from tunnelkit.session.allocation.allocated import Allocated
from tunnelkit.session.allocation.manager import AllocationManager
from tunnelkit.session.runtime.shutdown import ShutdownSequence
from tunnelkit.session.runtime.state import SessionState, StateMachine

#: If `tk up` fails, a job of its own that has run for less than this is cancelled.
_YOUNG_S = 60.0


@dataclass
class SessionAgents:
    """The clients of all agents. Call `reach` for each allocation, then `over`.

    say: called with a message for the user. debuggee: takes a process that dialled in.
    time_limit: called with the seconds left, as the job itself warns. on_link, on_stuck: see
    AgentClient. client: of the first node's agent; None while there is none. info: its answer to
    `info`; empty before.
    """

    cluster: AllocationManager
    states: StateMachine
    say: Callable[[str], None]
    debuggee: Callable[[Channel, Mapping[str, object]], None]
    time_limit: Callable[[int], None]
    on_link: Callable[[bool, str, TunnelkitError | None], None]
    on_stuck: Callable[[TunnelkitError | None], None]
    client: AgentClient | None = None
    info: Mapping[str, object] = field(default_factory=dict)
    #: The error after which the first agent is not tried again until the user acts, or None.
    stuck: TunnelkitError | None = None
    _broken_off: bool = False
    #: Keeps the link to the first agent, from `reach` on.
    _life: asyncio.Task[str] | None = None
    #: Gets what the first agent says of itself unasked.
    _introduction: asyncio.Future[AgentInfo] | None = None
    #: True while somebody waits in `over`.
    _minded: bool = False

    def __post_init__(self) -> None:
        self.execs = ExecStreams(self.first)
        self.peers = PeerAgents(
            self.first,
            lambda node, name: self.cluster.allocated.peer_stream(node, name),
            lambda node: self.cluster.allocated.start_peer(node),
            self.cluster.repair,
            debuggee=self.debuggee,
            on_link=self.cluster.agent_changed,
            # Pods are looked for all the time (files/pod_mirrors.py).
            on_stuck=None if self.cluster.setup.backend.brings_agent else self._peer_stuck,
            most_pause_s=self.cluster.setup.backend.most_pause_s,
            short_names=self.cluster.setup.backend.short_names,
        )

    def first(self) -> AgentClient:
        """Return the first agent's client. Raises NoSessionError, or the session's failure."""
        self.states.check()
        if self.client is None:
            raise NoSessionError(
                f"the session is not ready: {self.states.state}",
                cause=self.states.detail or None,
                hint="see `tk status`",
            )
        return self.client

    @property
    def execs_if_up(self) -> ExecStreams | None:
        """The first node's; None while its agent can't be reached."""
        return self.execs if self.client is not None and self.client.is_up else None

    async def on(self, node: str) -> AgentClient:
        """Return the client of the agent on that node. Raises TunnelkitError."""
        if node == self.node:
            return self.first()
        return await self.peers.client(node) or self.first()

    async def loops_on(self, node: str) -> AgentApi:
        """Return the agent on that node for its debug loops. Raises TunnelkitError."""
        if node == self.node:
            return self.first()
        return await self.peers.loops(node) or self.first()

    async def parts(self) -> list[NodePart]:
        """Return all nodes with their agents, the first one first. Raises TunnelkitError."""
        nodes = self.nodes
        agents = await asyncio.gather(*(self.loops_on(node) for node in nodes))
        return [NodePart(*one) for one in zip(nodes, agents, strict=True)]

    @property
    def nodes(self) -> list[str]:
        """The names of the allocation's nodes; the first agent's node is the first."""
        return [self.node, *self.peers.nodes]

    @property
    def pid(self) -> int:
        """The first agent's pid on its node; 0 if unknown."""
        return whole(self.info.get("pid")) or 0

    @property
    def node(self) -> str:
        """The first agent's node, for messages."""
        return str(self.info.get("node") or "the node")

    @property
    def is_young(self) -> bool:
        """True until the job's submission is some time ago: nobody has waited for it for long."""
        since = None if self.cluster.job is None else self.cluster.job.submitted_at
        return since is None or time.monotonic() - since < _YOUNG_S

    async def reach(self, allocated: Allocated) -> AgentClient:
        """Connect to the first agent; return its client. Raises TunnelkitError."""
        if self.client is not None:
            await self._end(self.client, "there is another agent")
        first_ways = await allocated.first_ways()
        self._introduction = asyncio.get_running_loop().create_future()
        self.client = client = self._make_client(allocated, first_ways)
        await client.connect_patiently(self.cluster.has_ended)
        self.use(client)
        info = await _info(client, self._introduction)
        self.info = dict(info)
        self.peers.allocated(allocated.nodes)
        self.say(introduced(info, allocated.job_id, self.cluster.setup.installed.python))
        return client

    def use(self, client: AgentClient) -> None:
        """Take a connected client as the first agent's, and keep its link until it is over."""
        self.client = client
        self._life = asyncio.create_task(self._live(client))

    async def over(self) -> str:
        """Return the reason once the first agent's connection has ended. Raises AgentGone.

        The caller then ends what waits for the agent; while nobody calls this, it ends by itself.
        If the caller is cancelled, no new link is attached any more.
        """
        assert self._life is not None
        self._minded = True
        try:
            return await self._life
        finally:
            self._minded = False

    @property
    def is_up(self) -> bool:
        """True while the first agent's link is attached."""
        return self.client is not None and self.client.is_up

    @property
    def is_lost(self) -> bool:
        """True once the first agent's connection has ended."""
        return self.client is not None and self.client.mux.ended is not None

    async def _live(self, client: AgentClient) -> str:
        try:
            return await client.run()
        except Exception as error:
            if not self._minded:
                # The way up, or to another node, would wait for this agent without end.
                why = error.one_line() if isinstance(error, TunnelkitError) else repr(error)
                self.states.become(SessionState.RECONNECTING, why)
                await client.close(why)
            raise

    async def _end(self, client: AgentClient, why: str) -> None:
        if self._life is not None:
            await cancel_all(self._life)
        await client.close(why)

    def _make_client(self, allocated: Allocated, first: FirstWays | None = None) -> AgentClient:
        return AgentClient(
            allocated.open_stream,
            on_channel=self._opened,
            notices={"ending": self._ending, "time-limit": self._time_is_near},
            on_link=self.on_link,
            on_stuck=self._stuck,
            repair=self.cluster.repair,
            most_pause_s=self.cluster.setup.backend.most_pause_s,
            first=first,
        )

    async def forget(self, why: str) -> None:
        """Close all connections to agents that have ended; `reach` may come again."""
        gone, self.client, self.info, self.stuck = self.client, None, {}, None
        await self.peers.close(why)
        if gone is not None:
            await self._end(gone, why)

    async def are_over(self, why: str) -> None:
        """End the connections to agents that have ended: what waits for one gets the reason."""
        await self.peers.close(why)
        if self.client is not None:
            await self._end(self.client, why)

    async def break_off(self) -> None:
        """End the connections, as nobody minds them any more; `shut_down` makes others."""
        self._broken_off, why = True, self.states.detail
        await self.peers.break_off(why)
        if self.client is not None:
            await self._end(self.client, why)

    async def shut_down(self, ending: ShutdownSequence) -> bool:
        """End the agents; return False if that is not certain."""
        client, is_cut = self.client, self._broken_off
        if client is None or not (client.is_up or is_cut):
            return client is None
        await ending.step("the other nodes' agents", self.peers.shut_down(), 5.0)
        work = self._reconnect_to_shut_down() if is_cut else client.shut_down("tk down")
        return await ending.step("the agent", work, 8.0)

    async def _reconnect_to_shut_down(self) -> None:
        client = self._make_client(self.cluster.allocated)
        try:
            with contextlib.suppress(AgentGone):  # it has ended already
                await client.connect()
                await client.shut_down("tk down")
        finally:
            await client.close("tk down")

    async def close(self, why: str, ending: ShutdownSequence) -> None:
        """Close all connections; the agents go on."""
        await ending.step("the other nodes' agents", self.peers.close(), 5.0)
        if self.client is not None:
            await ending.step("the agent's connection", self._end(self.client, why), 5.0)

    def _opened(self, channel: Channel, header: dict[str, object]) -> None:
        if header.get("type") == "debuggee":
            self.debuggee(channel, header)
        elif header.get("type") == "stderr":
            self.execs.stderr_opened(channel, header)
        elif header.get("type") == "info":
            self._introduce(header.get("info"))
            channel.close()
        else:
            channel.close({"error": "unexpected channel"})

    def _introduce(self, info: object) -> None:
        said = self._introduction
        if said is not None and not said.done() and INFO.fits(info):
            said.set_result(info)

    def _stuck(self, error: TunnelkitError | None) -> None:
        self.stuck = error
        self.on_stuck(error)

    def _peer_stuck(self, node: str, error: TunnelkitError) -> None:
        self.say(f"{node}: {error.one_line()}. It is not tried again until you run: tk auth")
        self.states.poke()

    async def _ending(self, params: Mapping[str, object]) -> None:
        self.say(f"the agent on the node is ending: {str(params.get('reason'))[:300]}")

    async def _time_is_near(self, params: Mapping[str, object]) -> None:
        left_s = params.get("left_s")
        if isinstance(left_s, int):
            self.time_limit(left_s)


async def _info(client: AgentClient, unasked: asyncio.Future[AgentInfo]) -> AgentInfo:
    """Return what the agent says of itself: it may do so unasked. Raises TunnelkitError."""
    asked = asyncio.create_task(INFO.ask(client, {}))
    try:
        await first_of(asked, unasked)
        return unasked.result() if unasked.done() else asked.result()
    finally:
        await cancel_all(asked)
