"""The allocation of a session: its scheduler, its job, and the routes to its agents."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path

from tunnelkit.child_process import run_child
from tunnelkit.config.schema import Settings
from tunnelkit.errors import AllocationError
from tunnelkit.link.base import ByteStream, Link
from tunnelkit.model import Allocation, Completed, JobState, JobStatus
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.scheduler import job_script
from tunnelkit.scheduler.base import Command, Scheduler, Where
from tunnelkit.session.agent.attach_job import (
    JobAttachment,
    check_adoptable,
)
from tunnelkit.session.agent.client import AgentGone
from tunnelkit.session.agent.install import Installed, install, starting
from tunnelkit.session.agent.node_agents import peer_name
from tunnelkit.session.agent.routes import Route, Routes
from tunnelkit.session.backends.backend import AgentAddress, Backend
from tunnelkit.session.job.cancelled_jobs import CancelledJobs
from tunnelkit.session.job.job import JobHandle, in_words
from tunnelkit.session.job.outcome import JobOutcome, wait_job_outcome, who_cancelled
from tunnelkit.session.runtime.completion_cache import learn
from tunnelkit.session.runtime.event_log import Record

Say = Callable[[str], None]


#: Limit for a scheduler's command on the laptop.
_ON_LAPTOP_S = 30.0
#: Limit of a job's wait for the agent's files, where nodes share no home.
_FILES_COME_S = 600


class AllocationManager:
    """Gets nodes, and streams to their agents. Has no task of its own.

    name: of the job and of the agent. attach_job: id of a job that the user submitted, used
    instead of a new one. say: called with a message for the user. record: called with events.
    cancelled: the file of cancelled jobs. wait_link: returns once the link is up;
    only its owner (re)connects it.
    """

    def __init__(
        self,
        link: Link,
        settings: Settings,
        backend: Backend,
        *,
        name: str,
        say: Say,
        record: Record = lambda kind, text: None,
        cancelled: Path,
        wait_link: Callable[[], Awaitable[None]],
        attach_job: str | None = None,
    ) -> None:
        self._link = link
        self._wait_link = wait_link
        self._settings = settings
        self._backend = backend
        self._name = name
        self._say = say
        self._record = record
        self._cancelled = CancelledJobs(cancelled)
        #: The job whose agent this session or an earlier one has reached.
        self._reached = CancelledJobs(cancelled.with_name("reached"))
        self._attach_job = attach_job
        self._installed: Installed | None = None
        self._is_prepared = asyncio.Event()
        self._ways: Routes | None = None
        self.scheduler: Scheduler | None = None
        self.job: JobHandle | None = None
        self.allocation: Allocation | None = None
        self.adopted = False
        #: True if the user's job does not run: no agent can be in it.
        self.nothing_there = False
        #: True if tk started an agent in the user's job, and has to end it.
        self.entered = False
        #: The reason why the allocation is over, once the scheduler has reported it.
        self.ended: str | None = None

    @property
    def node(self) -> str | None:
        """The node's name for the link; None if the login host is the node."""
        if self.allocation is None or not self.allocation.nodes:
            return None
        return self.allocation.nodes[0]

    @property
    def route(self) -> str | None:
        """The route to the agent (routes.py); None before the first stream."""
        return self._ways.route if self._ways is not None else None

    @property
    def link_forwards(self) -> bool:
        """True if the link carries forwards to the node; else the wire must."""
        direct = self.job is None or self.route == self._backend.direct_route
        return self._backend.forwards and direct

    async def learn_names(self) -> None:
        """Store the cluster's names for command line completion."""
        if self.scheduler is not None:
            await learn(self.run, self.scheduler, self._link.name, self._settings.project_dir)

    async def prepare(self) -> None:
        """Find the scheduler; on a login host also find Python and install the agent's zip."""
        installing = asyncio.create_task(self._install())
        finding = asyncio.create_task(self._find_scheduler())
        try:
            _, self.scheduler = await asyncio.gather(installing, finding)
        finally:
            await cancel_all(installing, finding)
        self._is_prepared.set()
        if self.scheduler is not None:
            shared = self._backend.shared_home
            self.job = JobHandle(
                self.scheduler,
                self.run,
                job_name=self._name,
                jobs_dir=self.installed.jobs_dir if shared else None,
                status_file=self._status_file if shared else None,
                cancelled=self._cancelled,
                say=self._say,
            )

    async def _install(self) -> None:
        if not self._backend.has_login_host:
            return
        self._installed = found = await install(self._link, self._settings.cluster)
        if found.other_python:
            why = f"{found.python} is missing or too old"
            self._say(f"{self._link.name}: {why}: tk uses {found.other_python}")

    async def repair(self) -> None:
        """Install the agent's zip again if it is gone or damaged. Raises AllocationError."""
        await self._wait_link()
        node = self.node if self.job is None else self.files_node
        self._installed = await install(self._link, self._settings.cluster, node=node)

    @property
    def files_node(self) -> str | None:
        """The node that has tk's files and the mirror's; None if they are on the login host."""
        return None if self._backend.shared_home else self.node

    async def _find_scheduler(self) -> Scheduler | None:
        return await self._backend.find_scheduler(self._link, self._settings)

    async def wait_prepared(self) -> None:
        """Wait until `prepare` has found all it needs: the cluster is usable."""
        await self._is_prepared.wait()

    @property
    def installed(self) -> Installed:
        """The result of `prepare`."""
        assert self._installed is not None
        return self._installed

    async def occupy(
        self,
        node: str | None,
        on_pending: Callable[[JobStatus], None],
        reach: Callable[[Allocation], Awaitable[None]],
    ) -> None:
        """`obtain` the allocation, and `reach` its agent. Raises as both.

        If the job that was taken over is ending, another one is obtained."""
        while True:
            allocation = await self.obtain(node, on_pending)
            try:
                await reach(allocation)
            except AllocationError:
                if not self.adopted or not await self._is_ending(no_agent=True):
                    raise
                self.adopted = False
                continue
            if allocation.job_id is not None:
                self._reached.add(allocation.job_id)
                self._reached.keep_only([allocation.job_id])
            return

    async def obtain(self, node: str | None, on_pending: Callable[[JobStatus], None]) -> Allocation:
        """Find the session's job, or submit it, and wait until it runs.

        Raises SchedulerError, AllocationError.
        """
        if self._attach_job is not None:
            return await self._adopt(self._attach_job, node)
        if self.job is None:
            if node is not None:
                self._installed = await install(self._link, self._settings.cluster, node=node)
            self.allocation = Allocation(None, () if node is None else (node,))
            return self.allocation
        found = await self.job.find()
        if found is not None and not (found.state is JobState.RUNNING and await self._is_ending()):
            self.adopted = True
            self._say(f"job {found.job_id} of this project is still there: taking it over")
            await self.job.drop_twins()
            self._check_same_node(found, node)
        else:
            await self.job.wait_cancelled_gone(self._say)
            job_id = await self._submit(node, on_pending)
            self._say(f"submitted job {job_id}")
        return await self.wait_running(on_pending)

    async def _is_ending(self, *, no_agent: bool = False) -> bool:
        """True if the job that was found has lost its agent, though it is reported as running.

        Torque does that after a qdel by hand. no_agent: the node reports no agent; that counts
        if the agent was reached before, else the job may just be starting."""
        job = self.job
        # A requeued job may not have written yet that it runs again.
        if job is None or job.foreign or self._settings.allocation.requeue:
            return False
        return await job.forget_if_over(no_agent and job.job_id in self._reached.ids())

    async def wait_running(self, on_pending: Callable[[JobStatus], None]) -> Allocation:
        """Wait until the job runs (again). Raises AllocationError, SchedulerError."""
        assert self.job is not None
        status = await self.job.wait_running(on_pending)
        self._ways = None  # it may be on another node now
        self.allocation = Allocation(status.job_id, status.nodes, status.time_left_s)
        if not self._backend.shared_home:
            # The job waits for these files, and starts the agent then.
            self._installed = await install(
                self._link, self._settings.cluster, node=self.files_node
            )
        return self.allocation

    async def _adopt(self, job_id: str, node: str | None) -> Allocation:
        """Use a job that the user submitted, with an agent started in it."""
        allocation = await self.look_at(job_id, node)
        assert self.job is not None and self.scheduler is not None
        own = self._adoption()
        first = allocation.nodes[0]
        if await own.has_agent(job_id, first):
            self._say(f"job {job_id}: the agent of an earlier session is there")
        else:
            self.entered = True
            await own.start(job_id, first, self._body(), self._status_file)
            self._say(f"job {job_id} adopted: it is yours, `tk down` leaves it as it is")
        return allocation

    async def look_at(self, job_id: str, node: str | None) -> Allocation:
        """Return the nodes of a job that the user submitted, first the one to use.

        Raises AllocationError if the job can't be used."""
        if self.job is None:
            raise AllocationError(
                f"there is no scheduler on {self._link.name} that could have job {job_id}",
                hint="leave --attach-job out: tk up NODE",
            )
        left = await self.job.find()
        if left is not None:
            raise AllocationError(
                f"this project already has job {left.job_id}",
                hint=f"tk down first, then tk up --attach-job {job_id}",
            )
        status = await self.job.adopt(job_id)
        self.adopted = True
        self.nothing_there = status.state is not JobState.RUNNING
        check_adoptable(job_id, status)
        nodes = status.nodes
        if node is not None:
            self._check_same_node(status, node)
            nodes = (node, *(one for one in nodes if one != node))
        self.allocation = Allocation(job_id, nodes, status.time_left_s)
        return self.allocation

    async def has_agent(self) -> bool:
        """True if there is an agent in the adopted job."""
        allocation = self.allocation
        assert allocation is not None and allocation.job_id is not None
        return await self._adoption().has_agent(allocation.job_id, allocation.nodes[0])

    async def start_peer(self, node: str) -> tuple[str, int] | None:
        """Start an agent on another node of the allocation; return its name and pid.

        Returns None if the first agent starts it. Raises AllocationError, ConnectionFailed."""
        if self.scheduler is None or self.scheduler.capabilities.agent_starts_peers:
            return None
        assert self.allocation is not None and self.allocation.job_id is not None
        job_id, name = self.allocation.job_id, peer_name(self._name, node)
        own, status_file = self._adoption(name), self._status_file_of(name)
        first = self._status_file
        if self.job is not None and not self.job.foreign:
            first = job_script.status_of(first, job_id)
        body = self._body(name)
        return name, await own.start_peer(job_id, node, body, status_file, ends_with=first)

    def _adoption(self, name: str | None = None) -> JobAttachment:
        assert self.scheduler is not None
        return JobAttachment(
            self._link,
            self.scheduler,
            self.installed,
            name=name or self._name,
            node_ssh=self._settings.cluster.node_ssh,
            say=self._say,
        )

    async def open_stream(self) -> ByteStream:
        """Open a stream to the agent by the first route that works (routes.py).

        Raises ConnectionFailed, HostKeyError.
        """
        await self._wait_link()
        if self.ended is not None:
            raise AgentGone("the allocation is over", cause=self.ended)
        if self.job is None:
            return await self._link.open_stream(
                self._with_prologue(self.installed.argv("attach", self._name, "--start")),
                node=self.node,
            )
        if self._ways is None:
            self._ways = Routes(
                self._link,
                self.node,
                self._ways_in(str(self.node), self._name),
                self._say,
                self._record,
            )
        return await self._ways.open()

    async def files_stream(self) -> ByteStream:
        """Open a stream to an agent for files on the login host.

        The agent starts once `prepare` has installed it. Raises ConnectionFailed."""
        await self._wait_link()
        return await self._link.open_stream(starting(self._settings.cluster, "files"))

    def _ways_in(self, node: str, name: str) -> list[Route]:
        """Return the routes to agent `name` in the job."""
        job_id = None if self.allocation is None else self.allocation.job_id
        if self.scheduler is None or job_id is None:
            raise AgentGone("there is no job that could have an agent")
        return list(
            self._backend.routes(
                AgentAddress(
                    self._link, self.scheduler, self._settings, self.installed, name, job_id, node
                )
            )
        )

    async def peer_stream(self, node: str, name: str) -> ByteStream:
        """Open a stream to agent `name` on another node, by the first node's route.

        Raises ConnectionFailed, HostKeyError."""
        await self._wait_link()
        if self.ended is not None:
            raise AgentGone("the allocation is over", cause=self.ended)
        route = self._ways.route if self._ways is not None else None
        ways = self._ways_in(node, name)
        known = [way for way in ways if way.name == route]
        return await Routes(self._link, node, known or ways, self._say).open()

    async def fate(self, *, gone: bool = False) -> JobOutcome:
        """Ask the scheduler for the job's outcome. Raises SchedulerError.

        gone: the agent is gone, so the scheduler will soon know the reason."""
        if self.job is None or self.allocation is None:
            return JobOutcome()
        may_come_back = self._settings.allocation.requeue and not self.job.foreign
        return await wait_job_outcome(self.job.watch(hurried=gone), may_come_back=may_come_back)

    async def has_ended(self, no_agent: bool = False) -> str | None:
        """Return why the allocation is over, from the scheduler or the job; None if not known."""
        if self.adopted and await self._is_ending(no_agent=no_agent):
            return "its agent is gone"
        ended = (await self.fate()).ended
        if ended is None or self.job is None or self.job.foreign:
            return ended
        return f"{ended}; {await self.job.last_words()}"

    async def describe_end(self, status: JobStatus) -> str:
        """Return in plain words how the job ended."""
        who = None
        if self.scheduler is not None:
            who = await who_cancelled(self.scheduler, self.run, status)
        return f"job {status.job_id}: {in_words(status)}" + (f" ({who})" if who else "")

    @property
    def _status_file(self) -> str:
        return self._status_file_of(self._name)

    def _status_file_of(self, name: str) -> str:
        return f"{self.installed.jobs_dir}/{name}.status"

    def _with_prologue(self, argv: list[str]) -> list[str]:
        prologue = self._settings.cluster.prologue
        if not prologue:
            return argv
        # Its output must not get into the agent's stream.
        script = f"{{ {prologue}\n}} >&2\nexec {shlex.join(argv)}"
        return ["sh", "-c", script]

    async def _submit(self, node: str | None, on_pending: Callable[[JobStatus], None]) -> str:
        assert self.job is not None

        def waiting(seconds: float) -> None:
            why = f"the scheduler has not answered the submission for {seconds:.0f} s"
            on_pending(JobStatus("", JobState.PENDING, "", explanation=why))

        request = self._settings.allocation.request(node)
        return await self.job.submit(request, body=self._body(per_job=True), waiting=waiting)

    def _body(self, name: str | None = None, *, per_job: bool = False) -> str:
        """Return the script that runs the agent in a job."""
        name, cluster = name or self._name, self._settings.cluster
        if self.scheduler is None:
            raise AllocationError(
                "there is no scheduler that could run a job",
                hint="set [cluster] scheduler in tunnelkit.toml",
            )
        words = self._backend.serve_words(self.scheduler, self._settings, name, self._installed)
        if not self._backend.shared_home:
            agent = starting(cluster, *words, wait_s=_FILES_COME_S)
            return job_script.plain_body(agent, cluster.prologue)
        return job_script.body(
            agent_argv=self.installed.argv(*words),
            prologue=cluster.prologue,
            status_file=self._status_file_of(name),
            per_job=per_job,
        )

    def _check_same_node(self, found: JobStatus, node: str | None) -> None:
        if node is not None and found.nodes and node not in found.nodes:
            raise AllocationError(
                f"this project already has job {found.job_id} on {', '.join(found.nodes)}",
                hint=f"tk down first, then tk up {node}",
            )

    async def run(self, command: Command) -> Completed:
        """Run a scheduler's command where it says. Raises ConnectionFailed, TimeoutExpired."""
        if command.where is Where.LAPTOP:
            return await run_child(command.argv, stdin=command.stdin, timeout_s=_ON_LAPTOP_S)
        await self._wait_link()
        node = self.node if command.where is Where.NODE else None
        return await self._link.run(command.argv, node=node, stdin=command.stdin)
