"""The record of a backend: all that differs between one sort of cluster and another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tunnelkit.config.schema import Settings
from tunnelkit.link.base import ByteStream, Link, LinkKind, LinkSetup
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import Command, Scheduler
from tunnelkit.session.agent.client import MOST_PAUSE_S
from tunnelkit.session.agent.install import Installed
from tunnelkit.session.agent.routes import HeadStart, Route
from tunnelkit.session.doctor.check import Check

if TYPE_CHECKING:
    from tunnelkit.diagnosis.verdict import Diagnosis
    from tunnelkit.scheduler.inspector import JobInspector
    from tunnelkit.session.agent.pod_agent import PodFacts


@dataclass(frozen=True)
class AgentAddress:
    """One agent in a job, and all that a route to it may need.

    name: the agent's. job_id, node: where it runs. installed: its files; None if the
    backend's routes bring them, and call `learn`. may_start: returns True if a route may start the
    agent; is_ours: the job is tk's own, and starts its agent itself.
    """

    link: Link
    scheduler: Scheduler
    settings: Settings
    installed: Installed | None
    name: str
    job_id: str
    node: str
    learn: Callable[[PodFacts], None] = lambda facts: None
    may_start: Callable[[], bool] = lambda: False
    is_ours: bool = True


#: Makes a question in the words of a scheduler; called with the link's name, too.
Question = Callable[["JobInspector", str], Sequence[str]]
AskFirst = Callable[
    [Link, Settings, Question], Awaitable[tuple[Scheduler | None, Completed | None]]
]
#: Opens a stream to a command on the login host.
Enter = Callable[[list[str]], Awaitable[ByteStream]]
FindWithJob = Callable[[Link, Settings, str], Awaitable[tuple[Scheduler | None, Completed | None]]]


@dataclass(frozen=True)
class Backend:
    """One sort of cluster. `registry.choose` is the only place that picks one.

    name: for messages. links: its kinds of link, for each value of `[cluster] link`; "auto" is the
    first that suits this computer. schedulers: its values of `[cluster] scheduler`.
    detect: returns the name of the cluster's scheduler, "none" if it has none.
    find_scheduler: returns the scheduler's adapter, None if there is none; raises SchedulerError,
    ConnectionFailed. ask_first: does the same with a question, asked in the same command; it
    returns the answer, too: None if it was not asked. find_with_job: does the same with
    `Scheduler.find` of a job name; the answer is None if it must be asked (again).
    routes: returns the routes to an agent in a job, in the order of the attempts.
    serve_words: returns the words after `agent` with which a job starts the agent.
    checks: returns the checks of `tk doctor`.

    has_login_host: True if there is a host before there is a job. The agent's files and the
    mirror's go there first, and commands without a node run there.
    shared_home: True if login host and nodes share tk's directory. Else the agent's files are sent
    to the first node once the job runs, and the scheduler alone keeps the job's answers and end.
    brings_agent: True if the routes to an agent bring its files, and start it in a job that the
    user submitted. job_body: then returns the body of a job of tk's own. ask_api: carries out a
    command for the API server. leave: removes tk's directory from a node of a job that the user
    submitted; mirrored files stay.
    diagnose: what `tk why` says of the job or pods that are named, where no inspector does.
    early_entry: returns a quick way to an agent in a job, used until the first of `routes` is made;
    None if it may not be used.
    note: what the user should know of a job that was just submitted; "" for nothing.
    serves: True if it is the backend for these settings' cluster.
    direct_route: the route's name while the link itself reaches the node.
    forwards: True if a link on the direct route carries forwards; else they go over the wire.
    most_pause_s: the longest pause between two attempts to reach an agent that was lost.
    short_names: True if a node also goes by its name up to the first dot, as hosts do.
    """

    name: str
    links: tuple[LinkKind, ...]
    schedulers: tuple[str, ...]
    detect: Callable[[Link], Awaitable[str]]
    find_scheduler: Callable[[Link, Settings], Awaitable[Scheduler | None]]
    routes: Callable[[AgentAddress], Sequence[Route]]
    serve_words: Callable[[Scheduler, Settings, str, Installed | None], list[str]]
    checks: Callable[[], tuple[Check, ...]]
    has_login_host: bool = True
    shared_home: bool = True
    direct_route: str = "ssh"
    forwards: bool = True
    most_pause_s: float = MOST_PAUSE_S
    short_names: bool = True
    serves: Callable[[Settings], bool] = lambda settings: not settings.cluster.is_kubernetes
    brings_agent: bool = False
    job_body: Callable[[Settings, str], str] | None = None
    ask_api: Callable[[Link, Command], Awaitable[Completed]] | None = None
    leave: Callable[[AgentAddress], Awaitable[None]] | None = None
    ask_first: AskFirst | None = None
    find_with_job: FindWithJob | None = None
    diagnose: Callable[[Link, Settings, str | None], Awaitable[Diagnosis]] | None = None
    early_entry: Callable[[AgentAddress, Enter], HeadStart | None] | None = None
    note: Callable[[Scheduler], str] = lambda scheduler: ""

    def make_link(self, settings: Settings, setup: LinkSetup) -> Link:
        """Return the link that the settings choose, not open yet. Raises as `LinkKind.make`."""
        wanted = settings.cluster.link
        for kind in self.links:
            if kind.name == wanted or (wanted == "auto" and kind.suits()):
                return kind.make(settings, setup)
        raise LookupError(f"{self.name} has no link {wanted!r} that suits this computer")
