"""The frames of `tk top`: by the session's connection, else by one of this command."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from tunnelkit.errors import ConnectionFailed, NoSessionError, TunnelkitError

if TYPE_CHECKING:
    from tunnelkit.diagnosis.top.frame import TopInfo
    from tunnelkit.session.runtime.paths import SessionPaths

_AGAIN_S = 2.0


@dataclass(frozen=True)
class TopSource:
    """The job and the cluster that are asked for. job: None: the session's, else the newest."""

    job: str | None
    profile: str | None
    login: str | None


async def frames(source: TopSource) -> AsyncGenerator[TopInfo]:
    """Yield frames until the job ends. Raises TunnelkitError."""
    from tunnelkit.cli.terminal.context import find_session

    paths = None
    if source.profile is None and source.login is None:
        try:
            paths = find_session()
        except NoSessionError:
            paths = None
    found = _by_own_link(source) if paths is None else _by_session(paths, source)
    async with aclosing(found) as asked:
        async for frame in asked:
            yield frame


async def patient_frames(source: TopSource) -> AsyncGenerator[TopInfo | str]:
    """Yield frames, and what is the matter while there are none; tries again after a loss.

    Raises TunnelkitError before the first frame.
    """
    has_begun = False
    while True:
        try:
            async with aclosing(frames(source)) as asked:
                async for frame in asked:
                    has_begun = True
                    yield frame
            return
        except (NoSessionError, ConnectionFailed) as error:
            if not has_begun:
                raise
            yield f"{error.one_line()}; trying again"
        await asyncio.sleep(_AGAIN_S)


async def _by_session(paths: SessionPaths, source: TopSource) -> AsyncGenerator[TopInfo]:
    from tunnelkit.session.runtime import control_client
    from tunnelkit.session.runtime.blocking_client import session_gone
    from tunnelkit.session.runtime.control_calls import TopStream

    async with control_client.connect(paths) as session:
        channel, buffer = session.open(TopStream(job=source.job)), b""
        while data := await channel.read():
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines[-1:]:
                # The newest alone: a slow terminal shows no old ones.
                yield cast("TopInfo", json.loads(line))
        end = await control_client.end_of(channel)
        if "failure" in end:
            raise TunnelkitError.from_json(end["failure"])
        if end.get("error"):
            raise session_gone()


async def _by_own_link(source: TopSource) -> AsyncGenerator[TopInfo]:
    from tunnelkit.cli.terminal.context import settings
    from tunnelkit.cli.terminal.tty import answer_prompt
    from tunnelkit.diagnosis.top.history import TopHistory
    from tunnelkit.session.top.job_top import JobTop
    from tunnelkit.session.top.probe_stream import by_steps
    from tunnelkit.session.why.running import no_way_in
    from tunnelkit.session.why.sources import own_cluster, sources_by

    prompter = answer_prompt if sys.stdin.isatty() and sys.stderr.isatty() else None
    chosen = settings(profile=source.profile, cluster__login=source.login)
    async with own_cluster(chosen, prompter) as found:
        start = by_steps(found.scheduler, found.link, chosen.cluster.python)
        if start is None:
            raise no_way_in(found.link.name)
        top = JobTop(sources_by(found, chosen), start, TopHistory())
        async with aclosing(top.frames(source.job)) as asked:
            async for frame in asked:
                yield frame
