"""The verdict on a job that has just ended, in one line: quick, and never an error."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable

from tunnelkit.errors import TunnelkitError
from tunnelkit.model import Completed, JobStatus
from tunnelkit.scheduler.base import Command, Scheduler
from tunnelkit.session.why.diagnose import judge
from tunnelkit.text_format import shown

#: The session's end waits no longer for it.
LIMIT_S = 3.0
#: The scheduler's state says as much as these.
_SAID_BY_STATE = frozenset(
    {"ok", "no-record", "cancelled", "preempted", "node-failed", "boot-failed", "deadline",
     "revoked", "timeout"}
)  # fmt: skip
_MOST_CHARACTERS = 300


async def end_line(
    scheduler: Scheduler,
    run: Callable[[Command], Awaitable[Completed]],
    status: JobStatus,
    box_dir: str,
) -> str | None:
    """Return why the job ended, in words that follow its state; None if the state says as much.

    box_dir: `[cluster] directory`, which has the black boxes. None also after `LIMIT_S`, or if the
    scheduler or the connection does not answer."""
    inspector = scheduler.inspector()
    # Who cancelled it is asked for elsewhere.
    if inspector is None or status.native_state.startswith("CANCELLED"):
        return None
    mark = f"tk-{secrets.token_hex(8)}"
    try:
        async with asyncio.timeout(LIMIT_S):
            done = await run(Command(tuple(inspector.inspect(status.job_id, mark, box_dir))))
        found = inspector.parse(done, status.job_id, mark)
    except (TunnelkitError, TimeoutError):
        return None
    if found.job is None or found.end is None:
        return None
    first = judge(found, status.job_id).verdicts[0]
    if first.code in _SAID_BY_STATE:
        return None
    return shown(first.predicate[:_MOST_CHARACTERS])
