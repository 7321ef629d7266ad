"""A session's look at the jobs that `tk submit` has noted: which of them are kept now."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from tunnelkit.errors import TunnelkitError
from tunnelkit.session.runtime import kept_note
from tunnelkit.session.runtime.control_answers import KeptJob
from tunnelkit.session.submit.kept import look
from tunnelkit.session.submit.login import Login

log = logging.getLogger("tunnelkit.session")
#: Between two looks at the cluster; the note is looked at more often, as that costs nothing.
_LOOK_S, _NOTE_S = 120.0, 15.0
#: For so long a job that isn't running may still begin.
_WAITS_S = 7 * 86400.0


async def watch_noted(login: Callable[[], Login]) -> None:
    """Bring the note up to date as long as it names jobs of this cluster, until cancelled.

    Without a note nothing is asked."""
    asked = -_LOOK_S
    while True:
        jobs = kept_note.noted_jobs()
        if jobs and time.monotonic() - asked >= _LOOK_S:
            try:
                far = login()
                if any(one["login"] == far.name for one in jobs):
                    asked = time.monotonic()
                    _, kept, running = await look(far)
                    refresh(far.name, kept, running)
            except (TunnelkitError, OSError) as error:
                log.debug("kept jobs are not known: %s", error)
            except Exception:
                log.exception("kept jobs are not known")
        await asyncio.sleep(_NOTE_S)


async def noted_kept_jobs(login: Login) -> list[KeptJob]:
    """Return the jobs that are kept now, and bring a note that is there up to date."""
    _, kept, running = await look(login)
    refresh(login.name, kept, running)
    return kept


def refresh(login: str, kept: Sequence[KeptJob], running: Sequence[str]) -> None:
    """Bring a note that is there up to date by the answer of a cluster."""
    if not kept_note.is_there():
        return
    now = time.time()
    found = {one["job"]: one for one in kept}
    jobs = []
    for one in kept_note.noted_jobs():
        if one["login"] != login:
            jobs.append(one)
        elif one["job"] in found:
            jobs.append(_noted(login, found.pop(one["job"]), now))
        elif one["job"] in running:
            jobs.append(kept_note.not_kept(login, one["job"], now))
        elif one["until_s"] is None and now - one["seen_s"] < _WAITS_S:
            jobs.append(one)
    jobs += [_noted(login, one, now) for one in found.values()]
    kept_note.write(jobs)


def _noted(login: str, job: KeptJob, now: float) -> kept_note.NotedJob:
    return {
        "login": login,
        "job": job["job"],
        "seen_s": now,
        "node": job["node"],
        "since_s": job["since_s"],
        "until_s": job["until_s"],
        "gpus": job["gpus"],
        "cpus": job["cpus"],
    }
