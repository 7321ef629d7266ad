"""The nodes that a session has, and the streams to their agents."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from tunnelkit.link.base import ByteStream
from tunnelkit.model import JobStatus, LostNode
from tunnelkit.scheduler import job_script
from tunnelkit.session.agent.client import AgentGone
from tunnelkit.session.agent.first_link import FirstWays
from tunnelkit.session.agent.node_agents import peer_name
from tunnelkit.session.agent.routes import Route, Routes
from tunnelkit.session.allocation.agent_setup import AgentSetup
from tunnelkit.session.backends.backend import AgentAddress
from tunnelkit.session.job.job import JobHandle
from tunnelkit.session.runtime.event_log import Record

if TYPE_CHECKING:
    from tunnelkit.session.agent.pod_agent import PodFacts

_LEAVES_AT_ONCE = 8


class Allocated:
    """Nodes without a job: the one that the user named, or none and the login host serves."""

    #: The job that has the nodes, its id for steps, and the seconds left of its time.
    job_id: str | None = None
    step_id: str | None = None
    time_left_s: int | None = None

    def __init__(self, setup: AgentSetup, nodes: tuple[str, ...] = ()) -> None:
        self._setup = setup
        self.nodes = nodes
        #: The node's name for the link; None if the login host is the node.
        self.node = nodes[0] if nodes else None
        #: Which node of each name it is, where nodes are replaced.
        self.instances: dict[str, str] = {}
        #: The nodes' addresses for one another, where the scheduler knows them.
        self.addresses: dict[str, str] = {}
        #: Why a breakpoint may end what a node runs by itself.
        self.risks: dict[str, str] = {}
        #: tk's directory on each node that has one of its own, once its agent was reached.
        self.bases: dict[str, str] = {}
        #: The same as it was at first. One that came later may be in the place of a lost one.
        self.had: dict[str, str] = {}
        #: The reason why the allocation is over, once the scheduler has reported it.
        self.ended: str | None = None

    def lost_in(self, status: JobStatus) -> LostNode | None:
        """Return the first node if the job has lost it by that report."""
        instance = self.instances.get(self.node or "")
        return next((one for one in status.lost if one.instance == instance), None)

    @property
    def others(self) -> dict[str, str]:
        """The nodes but the first, in order, and which node of its name each is."""
        return {one: self.instances.get(one, "") for one in self.nodes[1:]}

    @property
    def route(self) -> str | None:
        """The route to the agent (routes.py); None before the first stream, or without a job."""
        return None

    async def is_direct(self) -> bool:
        """Return True if the link itself reaches the node; waits until that is known."""
        return True

    async def first_ways(self) -> FirstWays | None:
        """Return two ways to the very first link to the agent; None: `open_stream` alone."""
        return None

    async def open_stream(self) -> ByteStream:
        """Open a stream to the agent. Raises ConnectionFailed, HostKeyError, AgentGone."""
        await self._wait_usable()
        return await self._setup.start_stream(self.node)

    async def peer_stream(self, node: str, name: str) -> ByteStream:
        """Open a stream to agent `name` on another node, by the first node's route.

        Raises as `open_stream`."""
        raise AgentGone("there is no job that could have an agent")

    async def start_peer(self, node: str) -> tuple[str, int] | None:
        """Start an agent on another node of the allocation; return its name and pid.

        Returns None if the first agent starts it. Raises AllocationError, ConnectionFailed."""
        return None

    async def _wait_usable(self) -> None:
        await self._setup.wait_link()
        if self.ended is not None:
            raise AgentGone("the allocation is over", cause=self.ended)

    def _about(self, status: JobStatus) -> None:
        self.addresses = addresses_in(status)
        self.risks = dict(zip(status.nodes, status.risks, strict=False))

    def now_has(self, status: JobStatus) -> None:
        """Take the nodes that the job has now; the first one stays."""
        there = dict(zip(status.nodes, status.instances, strict=True))
        if self.node is not None and there.get(self.node) == self.instances.get(self.node):
            self.instances = there
            self._about(status)
            self.nodes = (self.node, *(one for one in status.nodes if one != self.node))


class AllocatedJob(Allocated):
    """The nodes of a running job. first: the node to use. record: called with the routes tried."""

    job_id: str
    step_id: str
    node: str

    def __init__(
        self,
        setup: AgentSetup,
        job: JobHandle,
        status: JobStatus,
        record: Record,
        *,
        first: str | None = None,
    ) -> None:
        nodes = status.nodes
        if first is not None:
            nodes = (first, *(one for one in nodes if one != first))
        super().__init__(setup, nodes)
        self.instances = dict(zip(status.nodes, status.instances, strict=False))
        self.had = self.instances
        self._about(status)
        self.job_id, self.time_left_s = status.job_id, status.time_left_s
        self.step_id = status.step_id
        self._job = job
        self._record = record
        #: False once the agent has been reached: one that is gone then must not be started again.
        self.may_start = job.foreign
        self._routes: Routes | None = None

    @property
    def route(self) -> str | None:
        """See `Allocated.route`."""
        return self._routes.route if self._routes is not None else None

    async def is_direct(self) -> bool:
        """See `Allocated.is_direct`."""
        await self._routed().settled.wait()
        return self.route == self._setup.backend.direct_route

    async def first_ways(self) -> FirstWays | None:
        """See `Allocated.first_ways`."""
        setup, early = self._setup, self._setup.backend.early_entry
        if early is None or self._job.foreign or not await setup.shells.is_far():
            return None
        head = early(self._address(self.node, setup.name), setup.shells.enter)
        if head is None:
            return None
        routes = self._routed()
        return FirstWays(
            lambda: routes.enter(head),
            lambda: routes.entered(head),
            lambda: routes.open_better(head),
        )

    async def leave(self) -> None:
        """Remove tk's directory from the nodes, which go on without it. Raises TunnelkitError."""
        setup = self._setup
        if setup.backend.leave is None:
            return
        leave, at_once = setup.backend.leave, asyncio.Semaphore(_LEAVES_AT_ONCE)

        async def leave_one(node: str) -> None:
            scheduler, name = self._job.scheduler, setup.name
            async with at_once:
                await leave(
                    AgentAddress(
                        setup.link, scheduler, setup.settings, None, name, self.step_id, node
                    )
                )

        # One that is gone must not keep the others from being left.
        done = await asyncio.gather(*map(leave_one, self.nodes), return_exceptions=True)
        for one in done:
            if isinstance(one, BaseException):
                raise one

    async def has_agent(self) -> bool:
        """True if there is an agent in the job. Raises ConnectionFailed, AllocationError."""
        return await self._setup.attachment(self._job.scheduler).has_agent(self.step_id, self.node)

    async def start_agent(self) -> None:
        """Start an agent in the job, which the user submitted. Raises AllocationError."""
        setup, scheduler = self._setup, self._job.scheduler
        await setup.attachment(scheduler).start(
            self.step_id, self.node, setup.body(scheduler), setup.status_file()
        )

    async def open_stream(self) -> ByteStream:
        """Open a stream to the agent by the first route that works (routes.py).

        Raises ConnectionFailed, HostKeyError, AgentGone."""
        await self._wait_usable()
        return await self._routed().open()

    async def peer_stream(self, node: str, name: str) -> ByteStream:
        """See `Allocated.peer_stream`."""
        await self._wait_usable()
        await self._routed().settled.wait()
        ways = self._ways(node, name)
        known = [way for way in ways if way.name == self.route]
        return await Routes(self._setup.link, node, known or ways, self._setup.say).open()

    async def start_peer(self, node: str) -> tuple[str, int] | None:
        """See `Allocated.start_peer`."""
        setup, scheduler = self._setup, self._job.scheduler
        if scheduler.capabilities.agent_starts_peers:
            return None
        if setup.backend.brings_agent:
            return setup.name, 0  # the first stream starts it
        name, first = peer_name(setup.name, node), setup.status_file()
        if not self._job.foreign:
            first = job_script.status_of(first, self.job_id)
        pid = await setup.attachment(scheduler, name).start_peer(
            self.step_id,
            node,
            setup.body(scheduler, name),
            setup.status_file(name),
            ends_with=first,
        )
        return name, pid

    def _routed(self) -> Routes:
        setup = self._setup
        if self._routes is None:
            ways = self._ways(self.node, setup.name)
            self._routes = Routes(setup.link, self.node, ways, setup.say, self._record)
        return self._routes

    def _ways(self, node: str, name: str) -> list[Route]:
        """Return the routes to agent `name` in the job."""
        return list(self._setup.backend.routes(self._address(node, name)))

    def _address(self, node: str, name: str) -> AgentAddress:
        setup = self._setup
        return AgentAddress(
            setup.link,
            self._job.scheduler,
            setup.settings,
            None if setup.backend.brings_agent else setup.installed,
            name,
            self.step_id,
            node,
            learn=lambda facts: self._learn(node, facts),
            may_start=lambda: self.may_start or node != self.node,
            is_ours=not self._job.foreign,
        )

    def _learn(self, node: str, facts: PodFacts) -> None:
        self.bases[node] = facts.installed.base
        if node == self.node:
            self._setup.learn(facts)


def addresses_in(status: JobStatus) -> dict[str, str]:
    """Return the nodes' addresses, those that are one."""
    from ipaddress import ip_address  # most clusters need none

    known: dict[str, str] = {}
    for node, address in zip(status.nodes, status.addresses, strict=False):
        with contextlib.suppress(ValueError):
            known[node] = str(ip_address(address))
    return known
