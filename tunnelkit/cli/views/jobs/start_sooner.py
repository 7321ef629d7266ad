"""`tk why --start-sooner`: shorten a waiting job's time limit, after a question."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tunnelkit.cli.terminal.output import say
from tunnelkit.cli.views.jobs.why import WhyOptions
from tunnelkit.diagnosis.verdict_json import DiagnosisInfo
from tunnelkit.errors import SchedulerError, UsageError
from tunnelkit.text_format import shown

if TYPE_CHECKING:
    from tunnelkit.session.runtime.control_client import SessionClient
    from tunnelkit.session.why.sources import WhySources

#: A year: longer limits are none.
_MOST_MINUTES = 527_040


class _Asked(Protocol):
    """The cluster, by a session or without one."""

    async def why(self, job: str | None) -> DiagnosisInfo: ...

    async def shorten(self, job: str, minutes: int) -> None: ...


@dataclass(frozen=True)
class _BySession:
    client: SessionClient

    async def why(self, job: str | None) -> DiagnosisInfo:
        from tunnelkit.session.runtime.control_calls import Why

        return await self.client.call(Why(job=job))

    async def shorten(self, job: str, minutes: int) -> None:
        from tunnelkit.session.runtime.control_calls import Shorten

        await self.client.call(Shorten(job=job, minutes=minutes))


@dataclass(frozen=True)
class _Alone:
    sources: WhySources

    async def why(self, job: str | None) -> DiagnosisInfo:
        from tunnelkit.diagnosis.verdict_json import to_json
        from tunnelkit.session.why.diagnose import diagnose

        return to_json(await diagnose(self.sources, job))

    async def shorten(self, job: str, minutes: int) -> None:
        from tunnelkit.session.why.start_sooner import shorten

        await shorten(self.sources, job, minutes)


def start_sooner(options: WhyOptions, limit: str, *, yes: bool) -> None:
    """Shorten the job's time limit to `limit`: minutes, or "auto" for what would start it now.

    yes: without a question. Raises UsageError, SchedulerError."""
    from tunnelkit.cli.terminal.context import run

    minutes = None if limit == "auto" else _minutes(limit)
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            "without a terminal nobody can be asked", hint="tk why --start-sooner MINUTES --yes"
        )
    for line in run(_start_sooner(options, minutes, yes)):
        say(line)


def _minutes(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:9]) <= _MOST_MINUTES:
        raise UsageError(
            f"{text!r} is no time limit in minutes",
            hint="such as 38; or auto, for the offer of tk why",
        )
    return int(text)


async def _start_sooner(options: WhyOptions, minutes: int | None, yes: bool) -> list[str]:
    async with _cluster(options) as cluster:
        info = await cluster.why(options.job)
        job, chosen = info["job_id"], minutes if minutes is not None else _offered(info)
        if info["stage"] != "waiting":
            raise SchedulerError(f"job {job} does not wait any more", hint=f"tk why {job}")
        if not yes and not await _agreed(f"Shorten the time limit of job {job} to {chosen} min?"):
            return ["nothing was changed"]
        await cluster.shorten(job, chosen)
    return [f"job {job} has a time limit of {chosen} min now, and keeps its place"]


def _offered(info: DiagnosisInfo) -> int:
    for one in info["verdicts"]:
        if one["sooner_min"] is not None:
            return one["sooner_min"]
    job = info["job_id"]
    cause = info["verdicts"][0]["sentence"] if info["verdicts"] else None
    raise SchedulerError(
        f"no shorter time limit is known that would start job {job} now",
        cause=None if cause is None else shown(cause),
        hint=f"tk why {job}",
    )


async def _agreed(question: str) -> bool:
    from tunnelkit.cli.terminal.tty import answer_prompt

    answer = await answer_prompt(f"{question} [y/N] ", True)
    return answer is not None and answer.strip().lower() in ("y", "yes")


@asynccontextmanager
async def _cluster(options: WhyOptions) -> AsyncIterator[_Asked]:
    """Ask by the session's connection, else by a connection of this command."""
    from tunnelkit.cli.terminal.by_session import live_session, prompter
    from tunnelkit.cli.terminal.context import settings
    from tunnelkit.session.runtime import control_client
    from tunnelkit.session.why.sources import own_sources

    other = options.profile is not None or options.login is not None
    if (paths := None if other else live_session()) is not None:
        async with control_client.connect(paths) as session:
            yield _BySession(session)
        return
    chosen = settings(profile=options.profile, cluster__login=options.login)
    async with own_sources(chosen, prompter()) as sources:
        yield _Alone(sources)
