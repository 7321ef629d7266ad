"""A session whose node is gone, but not its job: it waits for the next node, and goes on there.

A job went back into the queue, or an owner's pod was replaced. Mirror, forwards and local ports go
on; debug loops end with their node. Of a replaced one their terminals start them again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tunnelkit.errors import AllocationError, TunnelkitError
from tunnelkit.model import JobStatus, LostNode
from tunnelkit.session.agents import SessionAgents
from tunnelkit.session.allocation.allocated import Allocated
from tunnelkit.session.allocation.manager import AllocationManager
from tunnelkit.session.debugging.loops import Loops
from tunnelkit.session.files.file_services import SessionFiles
from tunnelkit.session.forwards import SessionForwards
from tunnelkit.session.job.job import JobHandle
from tunnelkit.session.job.outcome import JobOutcome
from tunnelkit.session.job.time_limit import TimeLimit
from tunnelkit.session.runtime.state import SessionState, StateMachine
from tunnelkit.session.why.waiting_words import WaitingWords

#: More nodes than this, lost in this time: what replaces them fails each time.
_MOST, _WITHIN_S = 5, 600.0


@dataclass
class Comeback:
    """Call `go_on` with the outcome of a job that comes back.

    say: called with a message for the user. reach: connects to the agent of an allocation. wait_up:
    returns once the link is up. count: how often the job has come back."""

    cluster: AllocationManager
    agents: SessionAgents
    loops: Loops
    forwards: SessionForwards
    files: SessionFiles
    time_limit: TimeLimit
    states: StateMachine
    waiting: WaitingWords
    say: Callable[[str], None]
    reach: Callable[[Allocated], Awaitable[None]]
    wait_up: Callable[[], Awaitable[None]]
    count: int = 0
    #: True while it waits for the node in the place of a lost one, or starts there: there is no
    #: mirror then.
    busy: bool = False
    _lost_at: deque[float] = field(default_factory=lambda: deque(maxlen=_MOST))
    #: Nodes beside the first that were lost, by instance: said once each.
    _told: set[str] = field(default_factory=set)

    async def go_on(self, job: JobHandle, fate: JobOutcome, why: str) -> None:
        """Wait for the job's next node, then start everything again but the loops.

        why: the agent's connection ended. Raises TunnelkitError if the job does not come back."""
        self.count, self.busy = self.count + 1, fate.gone is not None
        try:
            await self._go_on(job, fate.gone, why)
        finally:
            self.busy = False

    async def _go_on(self, job: JobHandle, gone: LostNode | None, why: str) -> None:
        if gone is None:
            said = f"job {job.job_id} went back into the queue"
            self.say(f"{said} ({why}); its debug loops have ended")
        else:
            said = lost_words(gone)
            self.say(f"{said}; waiting for the one in its place")
        await self.loops.close(said, starts_again=gone is not None)
        # While the old node is known: the forwards depend on it.
        forwards = await self.forwards.take()
        await self._begin_anew(job, gone, said)
        for lost in await self.forwards.put_back(forwards):
            self.say(lost)

    async def _begin_anew(self, job: JobHandle, gone: LostNode | None, said: str) -> None:
        """Get the next node, its agent and the files; once more if it is lost meanwhile."""
        while True:
            await self._leave(said)
            if gone is None:
                await self.reach(await self.cluster.wait_running(job, self.waiting))
                return
            self._check_count(gone)
            await self.files.node_lost()
            try:
                await self.reach(await self.cluster.wait_replaced(job, gone, self.waiting))
                await self.files.start_patiently(self.wait_up)
                return
            except TunnelkitError:
                lost = await self._lost_meanwhile()
                if lost is None or lost == gone:
                    raise
            gone, said = lost, lost_words(lost)
            self.say(f"{said}; waiting for the next one")

    async def _leave(self, said: str) -> None:
        await self.agents.forget(said)
        self.files.node_changed()
        self.time_limit.runs_again()
        self.states.become(SessionState.PENDING, said)

    async def _lost_meanwhile(self) -> LostNode | None:
        """Return the node that was just used, if the job has lost it, too."""
        return (await self.cluster.fate(gone=True)).gone

    def _check_count(self, gone: LostNode) -> None:
        now = time.monotonic()
        if len(self._lost_at) == _MOST and now - self._lost_at[0] < _WITHIN_S:
            raise AllocationError(
                f"{gone.name} is the last of {_MOST + 1} that were lost in a short time",
                cause=gone.why,
                hint="once its owner keeps one running: tk up",
            )
        self._lost_at.append(now)

    def told(self, status: JobStatus) -> None:
        """Take the state of a job that has lost nodes; tell of those beside the first, once."""
        allocated = self.cluster.allocated
        for lost in status.lost:
            is_ours = allocated.instances.get(lost.name) == lost.instance
            if is_ours and lost.name != allocated.node and lost.instance not in self._told:
                self._told.add(lost.instance)
                self.say(lost_words(lost))
                self.loops.lost_nodes[lost.name] = lost.why
        allocated.now_has(status)
        self.agents.peers.now(allocated.nodes)
        self.states.poke()
        self.files.follow_pods()


def lost_words(gone: LostNode) -> str:
    """Return in one line that a node is lost, and why."""
    return f"what ran on {gone.name} is gone: {gone.why}"
