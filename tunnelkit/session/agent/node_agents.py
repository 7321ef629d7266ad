"""Agents on the allocation's other nodes, each with its own link once it is used.

The first node's agent starts them as job steps (agent/nodes/node_agents.py). Where it can't, as
in a PBS job, the session starts them. They end with the first node's agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count

from tunnelkit.errors import AllocationError, TunnelkitError, UsageError
from tunnelkit.link.base import ByteStream
from tunnelkit.messages.agent_calls import INFO, PEER_START
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.tasks import cancel_all, start
from tunnelkit.session.agent.client import MOST_PAUSE_S, AgentClient
from tunnelkit.session.agent.exec_streams import ExecStreams
from tunnelkit.session.agent.peer_loops import PeerLoops, here
from tunnelkit.session.runtime.status import NodeAgentInfo

#: Further nodes get their agents at first use: each agent costs a job step.
_AT_ONCE = 8
_NAME_CHARS = 64
_LET_GO = "the session lets go"


def peer_name(name: str, node: str) -> str:
    """Return the name of the agent on another node, for agents that the session starts.

    Names are unique, and at most `_NAME_CHARS` characters long.
    """
    whole = f"{name}.{node}"
    if len(whole) <= _NAME_CHARS:
        return whole
    return whole[: _NAME_CHARS - 9] + "." + hashlib.sha256(whole.encode()).hexdigest()[:8]


OnDebuggee = Callable[[Channel, Mapping[str, object]], None]


class _Peer:
    """The session's state of one other node. place: among all nodes; the first node is 0."""

    def __init__(self, node: str, place: int, debuggee: OnDebuggee) -> None:
        self.node = node
        self.place = place
        self._debuggee = debuggee
        self.pid: int | None = None
        #: True if the session started this agent, not the first agent.
        self.from_here = False
        self.failure: TunnelkitError | None = None
        self.client: AgentClient | None = None
        self.life: asyncio.Task[None] | None = None
        self.execs = ExecStreams(self.agent)
        #: At most one connection attempt and one start at a time.
        self.busy, self.starting = asyncio.Lock(), asyncio.Lock()
        #: Set by each attempt to reach the agent, and once its connection has ended.
        self.tried = asyncio.Event()

    def agent(self) -> AgentClient:
        """Return the client. Raises AllocationError if its connection has ended."""
        if self.client is None:
            raise AllocationError(f"the agent on {self.node} is gone", hint="try once more")
        return self.client

    def opened(self, channel: Channel, header: dict[str, object]) -> None:
        """Accept a channel that the agent opened: an exec's stderr, a debuggee; close any other."""
        if header.get("type") == "stderr":
            self.execs.stderr_opened(channel, header)
        elif header.get("type") == "debuggee":
            self._debuggee(channel, {**here(header, self.place), "node": self.node})
        else:
            channel.close({"error": "unexpected channel"})

    def describe(self) -> NodeAgentInfo:
        """Return the node as a JSON object, for `tk status`."""
        why = self.failure.one_line() if self.failure is not None else None
        return {"node": self.node, "agent": self.pid, "why_not": why}


class PeerAgents:
    """The other nodes' agents. Call `allocated`, then `start`; `close` closes all links.

    agent: returns the client of the first node's agent.
    dial: opens a stream to an agent, called with (node, agent name).
    start: starts an agent on a node and returns its name and pid; None if the first agent must
    start it.
    repair: see AgentClient.
    debuggee: takes a process that dialled in. on_link: called with True when a link to one of them
    is attached, with False when it is lost. on_stuck: called with the node and the error when the
    attempts to reach its agent stop until `retry`; None if others retry the clients all the time.
    most_pause_s: see AgentClient.
    short_names: True if a node also goes by its name up to the first dot.
    """

    def __init__(
        self,
        agent: Callable[[], AgentClient],
        dial: Callable[[str, str], Awaitable[ByteStream]],
        start: Callable[[str], Awaitable[tuple[str, int] | None]],
        repair: Callable[[], Awaitable[None]] | None = None,
        *,
        debuggee: OnDebuggee,
        on_link: Callable[[bool], None] = lambda up: None,
        on_stuck: Callable[[str, TunnelkitError], None] | None = None,
        most_pause_s: float = MOST_PAUSE_S,
        short_names: bool = True,
    ) -> None:
        self._short_names = short_names
        self._on_link = on_link
        self._on_stuck = on_stuck
        self._most_pause_s = most_pause_s
        self._repair = repair
        self._debuggee = debuggee
        self._agent = agent
        self._dial = dial
        self._start_there = start
        self._first = ""
        self._peers: dict[str, _Peer] = {}
        #: Called with a node whose agent came, went, or lost its link.
        self.changed: Callable[[str], None] = lambda node: None
        self._dropping: set[asyncio.Task[None]] = set()

    def allocated(self, nodes: Sequence[str]) -> None:
        """Set the allocation's nodes; the first one is the first agent's node."""
        self._first = nodes[0] if nodes else ""
        self._peers = {
            node: _Peer(node, place, self._debuggee) for place, node in enumerate(nodes[1:], 1)
        }

    def now(self, nodes: Sequence[str]) -> None:
        """Take the nodes that the allocation has now; the links to those that stay go on."""
        known = self._peers
        kept = {known[node].place for node in nodes[1:] if node in known}
        free = (place for place in count(1) if place not in kept)
        self._peers = {
            node: known.get(node) or _Peer(node, next(free), self._debuggee) for node in nodes[1:]
        }
        for peer in known.values():
            if self._peers.get(peer.node) is not peer:
                start(self._dropping, self._drop(peer))

    def forget(self, node: str) -> None:
        """Let go of the agent on a node that is gone; its name is another node's by now."""
        peer = self._peers.get(node)
        if peer is not None:
            self._peers[node] = _Peer(node, peer.place, self._debuggee)
            start(self._dropping, self._drop(peer))

    @property
    def nodes(self) -> list[str]:
        """The names of the other nodes."""
        return list(self._peers)

    async def start(self) -> None:
        """Start the agents of the first `_AT_ONCE` nodes. `describe` reports failures."""
        first = list(self._peers.values())[:_AT_ONCE]
        await asyncio.gather(*(self._start(peer) for peer in first), return_exceptions=True)

    async def execs(self, node: str) -> ExecStreams | None:
        """Return the ExecStreams of `node`, or None if it is the first node.

        Raises UsageError if the node is not in the allocation, AllocationError if no agent can be
        started there.
        """
        peer = await self._connected(node)
        return None if peer is None else peer.execs

    async def client(self, node: str) -> AgentClient | None:
        """Return the client of the agent on `node`, or None if it is the first node.

        Raises as `execs`.
        """
        peer = await self._connected(node)
        return None if peer is None else peer.agent()

    def current(self, node: str) -> AgentClient | None:
        """Return the client of the agent on another node, as it is now; None without one."""
        peer = self._peers.get(node)
        return None if peer is None else peer.client

    def execs_if_up(self, node: str) -> ExecStreams | None:
        """Return the ExecStreams of another node; None while its agent can't be reached."""
        peer = self._peers.get(node)
        is_up = peer is not None and peer.client is not None and peer.client.is_up
        return peer.execs if peer is not None and is_up else None

    async def loops(self, node: str) -> PeerLoops | None:
        """Return the agent on `node` for its debug loops, or None if it is the first node.

        Raises as `execs`.
        """
        peer = await self._connected(node)
        return None if peer is None else PeerLoops(peer.agent(), peer.place)

    async def _connected(self, node: str) -> _Peer | None:
        name = self._named(node)
        if name == self._first:
            return None
        peer = self._peers[name]
        await self._connect(peer)
        return peer

    def _named(self, node: str) -> str:
        """Return the node's whole name. Raises UsageError."""
        names = [name for name in (self._first, *self._peers) if name]
        if node in names:
            return node
        short = [name for name in names if self._short_names and name.partition(".")[0] == node]
        if len(short) == 1:
            return short[0]
        raise UsageError(
            f"{node} is not a node of this allocation",
            cause=f"it has {', '.join(names) or 'none but the login host'}",
            hint="`tk status` lists them; more of them: tk up --nodes N",
        )

    def describe(self) -> list[NodeAgentInfo]:
        """Return all other nodes as JSON objects, for `tk status`."""
        return [peer.describe() for peer in self._peers.values()]

    async def retry(self) -> None:
        """Try once more to reach the agents whose attempts had stopped; return once that is done.

        `on_stuck` gets the errors of those that stop again.
        """
        if self._on_stuck is None:
            return
        stuck = [peer for peer in self._peers.values() if peer.client and peer.failure]
        for peer in stuck:
            peer.tried.clear()
            peer.agent().retry()
        await asyncio.gather(*(peer.tried.wait() for peer in stuck))

    async def shut_down(self) -> None:
        """End the agents that the session started: PBS would kill them before their cleanup.

        Agents that the first agent started end with it.
        """
        ours = [peer for peer in self._peers.values() if peer.from_here and peer.pid is not None]
        await asyncio.gather(*(self._end(peer) for peer in ours), return_exceptions=True)

    async def close(self, why: str = _LET_GO) -> None:
        """Close the links. The agents end with the first one. why: for what still waits."""
        peers, self._peers = list(self._peers.values()), {}
        await asyncio.gather(*(self._drop(peer, why) for peer in peers), *self._dropping)

    async def break_off(self, why: str) -> None:
        """Close the links, but know the agents: `shut_down` connects to them again."""
        await asyncio.gather(*(self._drop(peer, why) for peer in self._peers.values()))

    async def _start(self, peer: _Peer) -> str:
        """Start the peer's agent if it does not run; return the agent's name."""
        async with peer.starting:
            try:
                started = await self._start_there(peer.node)
                peer.from_here = started is not None
                if started is None:
                    agent = await PEER_START.ask(self._agent(), {"node": peer.node})
                    started = agent["name"], agent["pid"]
            except TunnelkitError as error:
                peer.pid, peer.failure = None, error
                raise
            (name, peer.pid), peer.failure = started, None
            return name

    async def _connect(self, peer: _Peer) -> None:
        async with peer.busy:
            if peer.client is not None:
                if peer.failure is not None and self._on_stuck is not None:
                    raise peer.failure  # nobody would end the wait
                return
            name = await self._start(peer)
            client = AgentClient(
                lambda: self._dial(peer.node, name),
                on_channel=peer.opened,
                notices={},
                on_link=lambda up, why, error: self._linked(peer, up, error),
                on_stuck=lambda error: self._stuck(peer, error),
                repair=self._repair,
                most_pause_s=self._most_pause_s,
            )
            await client.connect_patiently(_never)
            if not peer.pid:
                # A pod's agent is started by the stream that leads to it.
                peer.pid = (await INFO.ask(client, {}))["pid"]
            peer.client = client
            peer.life = asyncio.create_task(self._mind(peer, client))
            self.changed(peer.node)

    def _linked(self, peer: _Peer, up: bool, error: TunnelkitError | None) -> None:
        if up or error is not None:
            peer.tried.set()
        self._on_link(up)
        self.changed(peer.node)

    def _stuck(self, peer: _Peer, error: TunnelkitError | None) -> None:
        peer.failure = error
        if error is not None and self._on_stuck is not None:
            self._on_stuck(peer.node, error)

    async def _end(self, peer: _Peer) -> None:
        await self._connect(peer)
        if peer.client is not None:
            await peer.client.shut_down("tk down")

    async def _mind(self, peer: _Peer, client: AgentClient) -> None:
        """Run the client until its connection ends; the next use then makes a new client."""
        try:
            with contextlib.suppress(TunnelkitError):
                await client.run()
        finally:
            peer.tried.set()
        peer.client = None
        self.changed(peer.node)
        await client.close("it is gone")

    async def _drop(self, peer: _Peer, why: str = _LET_GO) -> None:
        if peer.life is not None:
            await cancel_all(peer.life)
        if peer.client is not None:
            await peer.client.close(why)
            peer.client = None


async def _never(no_agent: bool) -> str | None:
    """Implement has_ended: never. The first agent's client watches the allocation."""
    return None
