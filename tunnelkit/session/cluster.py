"""From a link to an agent that runs on the node: scheduler, job, and the way in."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Awaitable, Callable

from tunnelkit.config.schema import Settings
from tunnelkit.errors import AllocationError
from tunnelkit.link.base import ByteStream, Link
from tunnelkit.model import Allocation, Completed, JobState, JobStatus
from tunnelkit.scheduler import holder
from tunnelkit.scheduler.base import Command, Scheduler
from tunnelkit.session.agent_client import AgentGone
from tunnelkit.session.detect import scheduler_of
from tunnelkit.session.install import Installed, install
from tunnelkit.session.job import JobHolder, in_words
from tunnelkit.session.schedulers import adapter
from tunnelkit.session.ways import ByDialIn, ByLoginSsh, ByScheduler, BySsh, Way, Ways, invitation

Say = Callable[[str], None]
#: A job whose agent is gone is mostly just ending: how long the scheduler is asked.
_ASK_END_S = 15.0


class Cluster:
    """Gets nodes and streams to their agent. Holds no task of its own.

    name: of the job and of the agent. say: told what a person would like to know.
    wait_link: returns once the link is up; only its owner ever (re)connects it.
    """

    def __init__(
        self,
        link: Link,
        settings: Settings,
        *,
        name: str,
        say: Say,
        wait_link: Callable[[], Awaitable[None]],
    ) -> None:
        self._link = link
        self._wait_link = wait_link
        self._settings = settings
        self._name = name
        self._say = say
        self._installed: Installed | None = None
        self._ways: Ways | None = None
        self.scheduler: Scheduler | None = None
        self.job: JobHolder | None = None
        self.allocation: Allocation | None = None
        self.adopted = False
        #: Why the allocation is over, once the scheduler has told.
        self.ended: str | None = None

    @property
    def node(self) -> str | None:
        """The node as the link names it; None where the login host is the node."""
        if self.allocation is None or not self.allocation.nodes:
            return None
        return self.allocation.nodes[0]

    @property
    def route(self) -> str | None:
        """How the node is entered (ways.py); None before the first stream."""
        return self._ways.route if self._ways is not None else None

    async def prepare(self) -> None:
        """Look at the login host: scheduler, Python, the agent's zip."""
        cluster = self._settings.cluster
        self._installed = await install(self._link, cluster.python)
        if cluster.scheduler == "none":
            return
        found = await scheduler_of(self._link)
        self.scheduler = adapter(cluster.scheduler, found, str(self._link.login))
        if self.scheduler is not None:
            self.job = JobHolder(
                self.scheduler, self._run, job_name=self._name, status_file=self._status_file
            )

    @property
    def installed(self) -> Installed:
        """What `prepare` found."""
        assert self._installed is not None
        return self._installed

    async def obtain(self, node: str | None, on_pending: Callable[[JobStatus], None]) -> Allocation:
        """Have the allocation: find our job, or submit it, and wait until it runs.

        Raises SchedulerError, AllocationError.
        """
        if self.job is None:
            if node is not None:
                self._installed = await install(
                    self._link, self._settings.cluster.python, node=node
                )
            self.allocation = Allocation(None, () if node is None else (node,))
            return self.allocation
        found = await self.job.find()
        if found is not None:
            self.adopted = True
            self._say(f"job {found.job_id} of this project is still there: taking it over")
            self._check_same_node(found, node)
        else:
            job_id = await self._submit(node)
            self._say(f"submitted job {job_id}")
        status = await self.job.wait_running(on_pending)
        self.allocation = Allocation(status.job_id, status.nodes, status.time_left_s)
        return self.allocation

    async def open_stream(self) -> ByteStream:
        """A stream to the agent, by the first of the ways that works (ways.py).

        Raises ConnectionFailed, HostKeyError.
        """
        if self.ended is not None:
            raise AgentGone("the allocation is over", cause=self.ended)
        if self.job is None:
            return await self._link.open_stream(
                self._with_prologue(self.installed.argv("attach", self._name, "--start")),
                node=self.node,
            )
        if self._ways is None:
            self._ways = Ways(self._link, self.node, self._ways_in(), self._say)
        return await self._ways.open()

    def _ways_in(self) -> list[Way]:
        """The ways into our job, as the settings allow them."""
        assert self.scheduler is not None
        assert self.allocation is not None and self.allocation.job_id is not None
        wanted, node = self._settings.cluster.node_ssh, str(self.node)
        attach = self.installed.argv("attach", self._name)
        by_ssh = BySsh(self._link, self.node, attach)
        if wanted == "yes":
            return [by_ssh]
        enter = self.scheduler.enter(
            self.allocation.job_id, node, attach, cpus=self._settings.allocation.cpus
        )
        if enter is not None:
            own: Way = ByScheduler(self._link, enter)
            return [own] if wanted == "no" else [by_ssh, own]
        dial_in = ByDialIn(self._link, self.installed, self._name, node)
        if wanted == "no":
            return [dial_in]
        return [by_ssh, ByLoginSsh(self._link, self.installed, node, attach), dial_in]

    async def has_ended(self) -> str | None:
        """Why the allocation is over, as the scheduler tells; None if it isn't (known to be)."""
        if self.job is None or self.allocation is None:
            return None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ASK_END_S):
                async with contextlib.aclosing(self.job.watch()) as states:
                    async for status in states:
                        if status.state is JobState.ENDED:
                            return f"job {status.job_id}: {in_words(status)}"
        return None

    @property
    def _status_file(self) -> str:
        return f"{self.installed.jobs_dir}/{self._name}.status"

    def _serve_argv(self) -> list[str]:
        """The agent in the job. Where the scheduler has no way in, it looks for a place to dial."""
        assert self.scheduler is not None
        entered = self.scheduler.enter("1", "node", [])
        if entered is not None or self._settings.cluster.node_ssh == "yes":
            return self.installed.argv("serve", self._name)
        return self.installed.argv(
            "serve", self._name, "--meet", invitation(self.installed, self._name)
        )

    def _with_prologue(self, argv: list[str]) -> list[str]:
        prologue = self._settings.cluster.prologue
        if not prologue:
            return argv
        # Its output must not enter the stream that the agent is about to use.
        script = f"{{ {prologue}\n}} >&2\nexec {shlex.join(argv)}"
        return ["sh", "-c", script]

    async def _submit(self, node: str | None) -> str:
        assert self.job is not None
        installed = self.installed
        body = holder.body(
            agent_argv=self._serve_argv(),
            prologue=self._settings.cluster.prologue,
            status_file=self._status_file,
        )
        request = self._settings.allocation.request(node)
        return await self.job.submit(request, body=body, log_dir=installed.jobs_dir)

    def _check_same_node(self, found: JobStatus, node: str | None) -> None:
        if node is not None and found.nodes and node not in found.nodes:
            raise AllocationError(
                f"this project already has job {found.job_id} on {', '.join(found.nodes)}",
                hint=f"tk down first, then tk up {node}",
            )

    async def _run(self, command: Command) -> Completed:
        await self._wait_link()
        return await self._link.run(list(command.argv), stdin=command.stdin)
