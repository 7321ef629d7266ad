"""The backend of clusters that are reached by ssh: a login host, nodes, one shared home."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tunnelkit.config.schema import Settings
from tunnelkit.link.base import Link
from tunnelkit.link.factory import SSH_LINKS
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import Scheduler
from tunnelkit.scheduler.detect import DETECT, Detected, parse_detect
from tunnelkit.scheduler.factory import SCHEDULERS, adapter
from tunnelkit.session.agent.install import Installed
from tunnelkit.session.agent.routes import (
    HeadStart,
    LinkRoute,
    LoginSshRoute,
    ReverseRoute,
    Route,
    SchedulerRoute,
    invitation,
)
from tunnelkit.session.backends.backend import AgentAddress, Backend, Enter, Question
from tunnelkit.session.doctor.check import Check

if TYPE_CHECKING:
    from tunnelkit.scheduler.first_question import Ask

#: Detection and six commands of the scheduler, 10 s at most each.
_FIRST_S = 90.0


async def _detect(link: Link) -> Detected:
    return parse_detect(await link.run(DETECT.argv, stdin=DETECT.stdin))


async def _scheduler_name(link: Link) -> str:
    return (await _detect(link)).name


async def _find_scheduler(link: Link, settings: Settings) -> Scheduler | None:
    if settings.cluster.scheduler == "none":
        return None
    found = await _detect(link)
    return _adapter(found, link, settings)


def _adapter(found: Detected, link: Link, settings: Settings) -> Scheduler | None:
    asked = settings.allocation
    wanted = settings.cluster.scheduler
    return adapter(wanted, found, link.name, requeues=asked.requeue, queue=asked.partition)


async def _detect_and_ask(
    link: Link, settings: Settings, ask: Ask, *, version: bool = False
) -> tuple[Scheduler | None, Completed | None]:
    """Return the scheduler and its answer to a question, by one command; None if it got none."""
    from tunnelkit.scheduler.first_question import first_question, parse_first

    wanted = settings.cluster.scheduler
    if wanted == "none":
        return None, None
    mark = f"tk-{secrets.token_hex(8)}"
    command = first_question(wanted, mark, ask, version=version)
    answer = parse_first(await link.run(command.argv, timeout_s=_FIRST_S), mark)
    scheduler = _adapter(answer.detected, link, settings)
    known = scheduler is not None and scheduler.name == answer.kind
    return scheduler, answer.done if known else None


async def _ask_first(
    link: Link, settings: Settings, question: Question
) -> tuple[Scheduler | None, Completed | None]:
    def ask(scheduler: Scheduler) -> Sequence[str] | None:
        inspector = scheduler.inspector()
        return None if inspector is None else question(inspector, link.name)

    scheduler, done = await _detect_and_ask(link, settings, ask)
    return scheduler, done if done is not None and done.stdout.strip() else None


async def _find_with_job(
    link: Link, settings: Settings, job_name: str
) -> tuple[Scheduler | None, Completed | None]:
    def ask(scheduler: Scheduler) -> Sequence[str] | None:
        early = scheduler.capabilities.finds_undetected
        return scheduler.find(job_name).argv if early else None

    scheduler, done = await _detect_and_ask(link, settings, ask, version=True)
    asked = scheduler is not None and scheduler.capabilities.finds_undetected
    # No jobs are an answer, too; a failed command is asked for again.
    return scheduler, done if asked and done is not None and done.exit_code == 0 else None


def _routes(to: AgentAddress) -> list[Route]:
    """Return the routes that `[cluster] node_ssh` allows."""
    wanted, installed = to.settings.cluster.node_ssh, to.installed
    assert installed is not None, "the login host has the agent's files"
    attach = installed.argv("attach", to.name)
    by_ssh = LinkRoute(to.link, to.node, attach)
    if wanted == "yes":
        return [by_ssh]
    enter = to.scheduler.enter(to.job_id, to.node, attach, cpus=to.settings.allocation.cpus)
    if enter is not None:
        own: Route = SchedulerRoute(to.link, enter)
        return [own] if wanted == "no" else [by_ssh, own]
    dial_in = ReverseRoute(to.link, installed, to.name, to.node)
    if wanted == "no":
        return [dial_in]
    return [by_ssh, LoginSshRoute(to.link, installed, to.node, attach), dial_in]


def _early_entry(to: AgentAddress, enter: Enter) -> HeadStart | None:
    """Return the scheduler's way in, while ssh to the node logs in; None if a user wants one."""
    if to.settings.cluster.node_ssh != "auto" or to.installed is None:
        return None
    attach = to.installed.argv("attach", to.name, "--wait")
    argv = to.scheduler.enter(to.job_id, to.node, attach, cpus=to.settings.allocation.cpus)
    if argv is None:
        return None
    better = LinkRoute(to.link, to.node, attach)
    return HeadStart(SchedulerRoute.name, lambda: enter(argv), better)


def _serve_words(
    scheduler: Scheduler, settings: Settings, name: str, installed: Installed | None
) -> list[str]:
    """Return the agent's words. If no route may lead into the job, the agent connects out."""
    outward = not scheduler.capabilities.enters_jobs and settings.cluster.node_ssh != "yes"
    if installed is None or not outward:
        return ["serve", name]
    return ["serve", name, "--meet", invitation(installed, name)]


def _checks() -> tuple[Check, ...]:
    from tunnelkit.session.doctor.checks import SSH_CHECKS  # only `tk doctor` needs them

    return SSH_CHECKS


SSH = Backend(
    name="ssh",
    links=SSH_LINKS,
    schedulers=tuple(kind.name for kind in SCHEDULERS),
    detect=_scheduler_name,
    find_scheduler=_find_scheduler,
    ask_first=_ask_first,
    find_with_job=_find_with_job,
    routes=_routes,
    serve_words=_serve_words,
    checks=_checks,
    early_entry=_early_entry,
)
