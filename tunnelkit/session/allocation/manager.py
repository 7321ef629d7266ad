"""The allocation of a session: its scheduler, its job and its nodes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from tunnelkit.child_process import run_child
from tunnelkit.config.schema import Settings
from tunnelkit.errors import AllocationError, NotPermitted, TunnelkitError
from tunnelkit.link.base import Link
from tunnelkit.model import Completed, JobState, JobStatus, LostNode, job_words
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.scheduler.base import Command, Scheduler, Where
from tunnelkit.session.agent.attach_job import check_adoptable
from tunnelkit.session.allocation.agent_setup import AgentSetup, Say
from tunnelkit.session.allocation.allocated import Allocated, AllocatedJob
from tunnelkit.session.allocation.launch_record import LaunchRecord
from tunnelkit.session.allocation.left_objects import check_left_objects
from tunnelkit.session.backends.backend import Backend
from tunnelkit.session.job.cancelled_jobs import CancelledJobs
from tunnelkit.session.job.job import JobHandle, PendingWatcher
from tunnelkit.session.job.outcome import JobOutcome, wait_job_outcome
from tunnelkit.session.job.replacement import wait_replacement
from tunnelkit.session.runtime.completion_cache import learn
from tunnelkit.session.runtime.event_log import Record, unrecorded

#: Limit for a scheduler's command on the laptop.
_ON_LAPTOP_S = 30.0


class AllocationManager:
    """Gets nodes. Has no task of its own.

    name: of the job and of the agent. attach_job: id of a job that the user submitted, used
    instead of a new one. say: called with a message for the user. record: called with events.
    cancelled: the file of cancelled jobs. wait_link: returns once the link is up;
    only its owner (re)connects it. launch_record: settled once a job is the session's; None for
    what only ends an earlier session's.
    """

    def __init__(
        self,
        link: Link,
        settings: Settings,
        backend: Backend,
        *,
        name: str,
        say: Say,
        record: Record = unrecorded,
        cancelled: Path,
        wait_link: Callable[[], Awaitable[None]],
        attach_job: str | None = None,
        launch_record: LaunchRecord | None = None,
    ) -> None:
        self.setup = AgentSetup(link, settings, backend, name, say, wait_link)
        self._record = record
        self._cancelled = CancelledJobs(cancelled)
        #: The job whose agent this session or an earlier one has reached.
        self._reached = CancelledJobs(cancelled.with_name("reached"))
        self._attach_job = attach_job
        self._launch_record = launch_record
        self._is_prepared = asyncio.Event()
        #: None before `prepare`, and without a scheduler.
        self.job: JobHandle | None = None
        #: The login host before `obtain`. While a requeued job waits, the nodes that it had.
        self.allocated = Allocated(self.setup)
        self.adopted = False
        #: True if the user's job does not run: no agent can be in it.
        self.nothing_there = False
        self._entered = False

    @property
    def entered(self) -> bool:
        """True if tk started an agent in the user's job, and has to end it."""
        foreign = self.job is not None and self.job.foreign
        return self._entered or (foreign and self.setup.started)

    @property
    def is_new(self) -> bool:
        """True if this session has submitted the job: no earlier one had an agent in it."""
        return self.job is not None and self.job.submitted and not self.adopted

    # -- the cluster ------------------------------------------------------

    async def prepare(self) -> None:
        """Find the scheduler; on a login host also find Python and install the agent's zip."""
        setup = self.setup
        by_shell = setup.backend.has_login_host and setup.settings.cluster.scheduler != "none"
        if by_shell and self._launch_record is not None:  # else nothing is submitted
            setup.shells.begin(entry=setup.settings.cluster.node_ssh == "auto")
        installing = asyncio.create_task(setup.install_on_login_host())
        finding = asyncio.create_task(self._find_scheduler())
        try:
            _, (scheduler, listed) = await asyncio.gather(installing, finding)
        finally:
            await cancel_all(installing, finding)
        self._is_prepared.set()
        if scheduler is not None:
            shared = setup.backend.shared_home
            self.job = JobHandle(
                scheduler,
                self.run,
                job_name=setup.name,
                jobs_dir=setup.installed.jobs_dir if shared else None,
                status_file=setup.status_file() if shared else None,
                cancelled=self._cancelled,
                say=setup.say,
                listed=listed,
                ready=setup.shells.submit,
            )

    async def _find_scheduler(self) -> tuple[Scheduler | None, tuple[Completed, float] | None]:
        """Return the scheduler, and its answer about the session's jobs where both cost one.

        See `JobHandle`."""
        setup, asked_at = self.setup, time.monotonic()
        backend, link, settings = setup.backend, setup.link, setup.settings
        if backend.find_with_job is not None:
            scheduler, done = await backend.find_with_job(link, settings, setup.name)
            return scheduler, None if done is None else (done, asked_at)
        return await backend.find_scheduler(link, settings), None

    async def wait_prepared(self) -> None:
        """Wait until `prepare` has found all it needs: the cluster is usable."""
        await self._is_prepared.wait()

    async def repair(self) -> None:
        """Install the agent's zip again if it is gone or damaged. Raises AllocationError."""
        await self.setup.wait_link()
        await self.setup.install(self.node if self.job is None else self.files_node)

    async def leave(self) -> None:
        """Remove tk's files from the nodes of a job that the user submitted, where they would
        stay behind. Raises TunnelkitError."""
        if self.job is not None and self.job.foreign and isinstance(self.allocated, AllocatedJob):
            await self.allocated.leave()

    @property
    def node(self) -> str | None:
        """The node's name for the link; None if the login host is the node."""
        return self.allocated.node

    @property
    def files_node(self) -> str | None:
        """The node that has tk's files and the mirror's; None if they are on the login host."""
        return None if self.setup.backend.shared_home else self.node

    @property
    def asks_nodes(self) -> bool:
        """True if a node's ssh may ask the user; not while another route to the node is left."""
        return self.job is None or self.setup.settings.cluster.node_ssh == "yes"

    async def link_forwards(self) -> bool:
        """Return True if the link carries forwards to the node; else the wire must."""
        return self.setup.backend.forwards and await self.allocated.is_direct()

    async def learn_names(self) -> None:
        """Store the cluster's names for command line completion."""
        if self.job is not None:
            setup = self.setup
            project_dir = setup.settings.project_dir
            await learn(self.run, self.job.scheduler, setup.link.name, project_dir)

    async def run(self, command: Command) -> Completed:
        """Run a scheduler's command where it says. Raises ConnectionFailed, TimeoutExpired."""
        ask_api = self.setup.backend.ask_api
        if command.where is Where.API and ask_api is not None:
            await self.setup.wait_link()
            return await ask_api(self.setup.link, command)
        if command.where is Where.LAPTOP:
            return await run_child(command.argv, stdin=command.stdin, timeout_s=_ON_LAPTOP_S)
        await self.setup.wait_link()
        node = self.node if command.where is Where.NODE else None
        return await self.setup.link.run(command.argv, node=node, stdin=command.stdin)

    # -- the way to an allocation -----------------------------------------

    async def occupy(
        self,
        node: str | None,
        pending: PendingWatcher,
        reach: Callable[[Allocated], Awaitable[None]],
    ) -> None:
        """`obtain` the allocation, and `reach` its agent. Raises as both.

        If the job that was taken over is ending, another one is obtained."""
        while True:
            allocated = await self.obtain(node, pending)
            try:
                await reach(allocated)
            except AllocationError:
                if not self.adopted or not await self._is_ending(no_agent=True):
                    raise
                self.adopted = False
                continue
            if isinstance(allocated, AllocatedJob):
                allocated.may_start = False
                self._reached.add(allocated.job_id)
                self._reached.keep_only([allocated.job_id])
            return

    async def obtain(self, node: str | None, pending: PendingWatcher) -> Allocated:
        """Find the session's job, or submit it, and wait until it runs.

        Raises SchedulerError, AllocationError.
        """
        if self._attach_job is not None:
            return await self._adopt(self._attach_job, node)
        job, say = self.job, self.setup.say
        if job is None:
            node = await self._check_left_host(node)
            self.setup.say_unasked(node)
            if node is not None:
                await self.setup.install(node)
            self._settle(node)
            self.allocated = Allocated(self.setup, () if node is None else (node,))
            return self.allocated
        found = await job.find()
        if found is not None and not (found.state is JobState.RUNNING and await self._is_ending()):
            _check_same_node(found, node)
            if self._launch_record is not None:
                self._launch_record.check(found, node)
            self.adopted = True
            say(f"{job_words(found.job_id)} of this project is still there: taking it over")
            self._settle(node, taken_over=True)
            await job.drop_twins()
        else:
            await check_left_objects(self.setup, self._launch_record, self.run)
            await job.drop_ended()
            await job.wait_cancelled_gone(say)
            self._settle(node)
            submitted = await self._submit(job, node, pending)
            say(f"submitted {job_words(submitted)}")
        if note := self.setup.backend.note(job.scheduler):
            say(note)
        return await self.wait_running(job, pending)

    def _settle(self, node: str | None, *, taken_over: bool = False) -> None:
        if self._launch_record is not None:
            self._launch_record.settle(node, taken_over=taken_over)

    async def _check_left_host(self, node: str | None) -> str | None:
        """Return the host to use without a scheduler: that of an earlier session if none is named.

        Of another one it checks that no agent of that session is left there: nobody would end it.
        If it can't be reached, the user is warned. Raises AllocationError."""
        left = None if self._launch_record is None else self._launch_record.left
        if left is None or node in (None, left.node):
            return node if left is None else left.node
        setup, host = self.setup, left.node or self.setup.link.name
        try:
            await setup.install(left.node)
            argv = setup.installed.argv("attach", setup.name)
            done = await setup.link.run(argv, node=left.node)
        except TunnelkitError as error:
            setup.say(f"an agent of tk may be left on {host}: {error.one_line()}")
            return node
        if done.exit_code == 0:
            raise AllocationError(
                f"this project's session is on {host}", hint=f"tk down first, then tk up {node}"
            )
        return node

    async def wait_running(self, job: JobHandle, pending: PendingWatcher) -> Allocated:
        """Wait until the job runs (again). Raises AllocationError, SchedulerError."""
        status = await job.wait_running(pending)
        self.allocated = AllocatedJob(self.setup, job, status, self._record)
        if not self.setup.backend.shared_home:
            # The job waits for these files, and starts the agent then.
            await self.setup.install(self.files_node)
        return self.allocated

    async def wait_replaced(
        self, job: JobHandle, gone: LostNode, pending: PendingWatcher
    ) -> Allocated:
        """Wait for the node in the place of `gone`. Raises AllocationError, SchedulerError."""
        status, node = await wait_replacement(job, gone, self.allocated.had, pending)
        self.allocated = AllocatedJob(self.setup, job, status, self._record, first=node)
        return self.allocated

    async def _submit(self, job: JobHandle, node: str | None, pending: PendingWatcher) -> str:
        def waiting(seconds: float) -> None:
            why = f"the scheduler has not answered the submission for {seconds:.0f} s"
            pending.is_pending(JobStatus("", JobState.PENDING, "", explanation=why))

        request = self.setup.settings.allocation.request(node)
        body = self.setup.body(job.scheduler, per_job=True)
        return await job.submit(request, body=body, waiting=waiting)

    async def _adopt(self, job_id: str, node: str | None) -> Allocated:
        """Use a job that the user submitted, with an agent started in it."""
        allocated = await self.look_at(job_id, node)
        self._settle(node)
        if self.setup.backend.brings_agent:
            self.setup.say(f"{job_id} adopted: it is yours, `tk down` leaves it")
        elif await allocated.has_agent():
            self.setup.say(f"{job_words(job_id)}: the agent of an earlier session is there")
        else:
            self._entered = True
            await allocated.start_agent()
            self.setup.say(
                f"{job_words(job_id)} adopted: it is yours, `tk down` leaves it as it is"
            )
        return allocated

    async def look_at(self, job_id: str, node: str | None) -> AllocatedJob:
        """Return the nodes of a job that the user submitted, first the one to use.

        Raises AllocationError if the job can't be used."""
        if self.job is None:
            raise AllocationError(
                f"there is no scheduler on {self.setup.link.name} that could have job {job_id}",
                hint="leave --attach-job out: tk up NODE",
            )
        try:
            left = await self.job.find()
        except NotPermitted:
            left = None  # tk makes none without that right, and one pod needs no list
        if left is not None:
            raise AllocationError(
                f"this project already has {job_words(left.job_id)}",
                hint=f"tk down first, then tk up --attach-job {job_id}",
            )
        await check_left_objects(self.setup, self._launch_record, self.run)
        status = await self.job.adopt(job_id)
        self.adopted = True
        self.nothing_there = status.state is not JobState.RUNNING
        check_adoptable(job_id, status)
        _check_same_node(status, node)
        self.allocated = found = AllocatedJob(
            self.setup, self.job, status, self._record, first=node
        )
        return found

    # -- the end ----------------------------------------------------------

    async def _is_ending(self, *, no_agent: bool = False) -> bool:
        """True if the job that was found has lost its agent, though it is reported as running.

        Torque does that after a qdel by hand. no_agent: the node reports no agent; that counts
        if the agent was reached before, else the job may just be starting."""
        job = self.job
        # A requeued job may not have written yet that it runs again.
        if job is None or job.foreign or self.setup.settings.allocation.requeue:
            return False
        return await job.forget_if_over(no_agent and job.job_id in self._reached.ids())

    def may_cancel(self, *, young: bool) -> bool:
        """Return True if a failed `up` may end the job: this session submitted it, and it is young.

        Of a job that the user submitted only the agent ends.
        A job that was taken over, or that waited in the queue, is kept for the next `tk up`."""
        if self.entered:
            return True
        return young and self.job is not None and self.job.submitted

    def base_on(self, node: str) -> str:
        """Return tk's directory on a node whose agent was reached; most nodes share one."""
        return self.allocated.bases.get(node, self.setup.installed.base)

    def agent_changed(self, up: bool) -> None:
        """Ask for the job now: the agent's link is up, or it is lost and the question is cheap."""
        if self.job is not None and (up or self.setup.backend.ask_api is not None):
            self.job.poke()

    async def fate(self, *, gone: bool = False) -> JobOutcome:
        """Ask the scheduler for the job's outcome. Raises SchedulerError.

        gone: the agent is gone, so the scheduler will soon know the reason."""
        if self.job is None or self.allocated.job_id is None:
            return JobOutcome()
        may_come_back = self.setup.settings.allocation.requeue and not self.job.foreign
        return await wait_job_outcome(
            self.job.watch(hurried=gone), may_come_back=may_come_back, lost=self.allocated.lost_in
        )

    async def has_ended(self, no_agent: bool = False) -> str | None:
        """Return why the allocation is over, from the scheduler or the job; None if not known."""
        if self.adopted and await self._is_ending(no_agent=no_agent):
            return "its agent is gone"
        fate = await self.fate()
        ended = fate.ended
        if fate.gone is not None:
            return f"{fate.gone.name}: {fate.gone.why}"
        if ended is None or self.job is None or self.job.foreign:
            return ended
        return f"{ended}; {await self.job.last_words()}"


def _check_same_node(found: JobStatus, node: str | None) -> None:
    if node is not None and found.nodes and node not in found.nodes:
        raise AllocationError(
            f"this project already has {job_words(found.job_id)} on {', '.join(found.nodes)}",
            hint=f"tk down first, then tk up {node}",
        )
