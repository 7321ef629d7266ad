"""The agent on a cluster: its files there, and the scripts that start it."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tunnelkit.config.schema import Settings
from tunnelkit.errors import AllocationError
from tunnelkit.link.base import ByteStream, Link
from tunnelkit.scheduler import job_script
from tunnelkit.scheduler.base import Scheduler
from tunnelkit.session.agent.attach_job import JobAttachment
from tunnelkit.session.agent.install import Installed, install, starting
from tunnelkit.session.allocation.head_start import ReadyShells
from tunnelkit.session.backends.backend import Backend

if TYPE_CHECKING:
    from tunnelkit.session.agent.pod_agent import PodFacts

Say = Callable[[str], None]

#: Limit of a job's wait for the agent's files, where nodes share no home.
_FILES_COME_S = 600


@dataclass
class AgentSetup:
    """Installs the agent `name` and writes the scripts that run it.

    say: called with a message for the user. wait_link: returns once the link is up; only its owner
    (re)connects it.
    """

    link: Link
    settings: Settings
    backend: Backend
    name: str
    say: Say
    wait_link: Callable[[], Awaitable[None]]
    _installed: Installed | None = field(default=None, init=False)
    #: True if a route has started an agent in a job that the user submitted.
    started: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.shells = ReadyShells(self.link)

    @property
    def installed(self) -> Installed:
        """The agent's files. Raises AllocationError before `install`."""
        if self._installed is None:
            raise AllocationError(
                f"tk has not prepared {self.link.name} yet", hint="see `tk status`"
            )
        return self._installed

    @property
    def _has_box(self) -> bool:
        """True if jobs get a black box, and tk's directory outlives them."""
        wanted = self.settings.allocation.black_box and self.settings.cluster.scheduler != "none"
        return wanted and self.backend.shared_home

    def learn(self, facts: PodFacts) -> None:
        """Take what a route has found out, which brought the agent's files by itself."""
        if self._installed is None and facts.gives:
            names = ", ".join(facts.gives)
            self.say(f"the pod lacks {names}: tk sets them for all that it starts there")
        self._installed = facts.installed
        self.started = self.started or not facts.ran

    async def install(self, node: str | None = None) -> None:
        """Install the agent on the login host (or `node`), unless the routes bring it.

        Raises AllocationError."""
        if self.backend.brings_agent:
            return
        self._installed = await install(
            self.link, self.settings.cluster, node=node, probe=self._has_box
        )

    async def install_on_login_host(self) -> None:
        """Install the agent where there is a login host. Raises AllocationError."""
        if not self.backend.has_login_host:
            return
        await self.install()
        if self.installed.other_python:
            why = f"{self.installed.python} is missing or too old"
            self.say(f"{self.link.name}: {why}: tk uses {self.installed.other_python}")

    async def start_stream(self, node: str | None) -> ByteStream:
        """Open a stream to the agent on `node`, which starts it. Raises ConnectionFailed."""
        argv = self.installed.argv("attach", self.name, "--start")
        return await self.link.open_stream(
            with_prologue(argv, self.settings.cluster.prologue), node=node
        )

    async def files_stream(self) -> ByteStream:
        """Open a stream to an agent for files on the login host.

        The agent starts once it is installed. Raises ConnectionFailed."""
        await self.wait_link()
        return await self.link.open_stream(starting(self.settings.cluster, "files"))

    def status_file(self, name: str | None = None) -> str:
        """Return the file into which the body of agent `name` writes its status."""
        return f"{self.installed.jobs_dir}/{name or self.name}.status"

    def attachment(self, scheduler: Scheduler, name: str | None = None) -> JobAttachment:
        """Return what starts agent `name` in a job that runs."""
        return JobAttachment(
            self.link,
            scheduler,
            self.installed,
            name=name or self.name,
            node_ssh=self.settings.cluster.node_ssh,
            say=self.say,
        )

    def say_unasked(self, node: str | None) -> None:
        """Without a scheduler a request changes nothing: say so, as no job holds what it asks."""
        unasked = self.settings.allocation.asked()
        if unasked:
            where = self.link.name
            self.say(
                f"no scheduler on {where}: nobody is asked for {', '.join(unasked)}; what you "
                f"start runs on {node or where} itself, beside other users' programs"
            )

    def body(self, scheduler: Scheduler, name: str | None = None, *, per_job: bool = False) -> str:
        """Return the script that runs agent `name` in a job."""
        name, cluster = name or self.name, self.settings.cluster
        if self.backend.job_body is not None:
            return self.backend.job_body(self.settings, name)
        words = self.backend.serve_words(scheduler, self.settings, name, self._installed)
        if not self.backend.shared_home:
            agent = starting(cluster, *words, wait_s=_FILES_COME_S)
            return job_script.plain_body(agent, cluster.prologue)
        return job_script.body(
            agent_argv=self.installed.argv(*words),
            prologue=cluster.prologue,
            status_file=self.status_file(name),
            per_job=per_job,
            box_argv=self._box_argv(),
        )

    def _box_argv(self) -> list[str]:
        """Return what runs a black box in a job; nothing if the settings want none."""
        installed = self.installed
        return installed.probe_argv("box", installed.base) if installed.probe else []


def with_prologue(argv: list[str], prologue: str) -> list[str]:
    """Return the argv that runs `argv` after the shell code `prologue`."""
    if not prologue:
        return argv
    # Its output must not get into the agent's stream.
    return ["sh", "-c", f"{{ {prologue}\n}} >&2\nexec {shlex.join(argv)}"]
