"""The barrier for commands, and its meaning while there is no compute node."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from tunnelkit.errors import NoSessionError, TimeoutExpired
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.session.files.mirror_set import MirrorSet
from tunnelkit.session.handlers import mirror
from tunnelkit.session.runtime.control_answers import SyncAnswer
from tunnelkit.session.runtime.control_calls import Sync
from tunnelkit.session.runtime.state import SessionState
from tunnelkit.session.session import Session

_T = TypeVar("_T")


async def barrier(session: Session, mirrors: MirrorSet, request: Sync) -> SyncAnswer:
    """Run a barrier and return its report.

    With `proof`: raises NoSessionError without a node, TimeoutExpired while the job waits in the
    queue. Raises as `Mirror.barrier`.
    """
    if request.proof or session.comeback.busy:
        await _queued_no_more(session, request.timeout_s)
    report = await _unless_it_ends(
        session, mirrors.barrier(request.timeout_s, allow_deletes=request.allow_deletes)
    )
    why = None if report.by_node else _why_no_node(session)
    if request.proof and why is not None:
        raise NoSessionError(
            f"no compute node has read the files back, they are only on {session.link.name}",
            cause=why,
            hint="get a node: tk up",
        )
    return {**mirror.report_json(report), "unproven": why, "warnings": mirrors.news()}


def check_alive(session: Session) -> None:
    """Raise NoSessionError if the allocation is over."""
    if session.states.state is SessionState.ENDED:
        raise NoSessionError(
            "the allocation is over", cause=session.states.detail, hint="get a new one: tk up"
        )


async def _queued_no_more(session: Session, timeout_s: float) -> None:
    """Wait while a job that comes back has no node, or the files' first copy is not there yet."""
    try:
        async with asyncio.timeout(timeout_s):
            while session.states.state is SessionState.PENDING or session.comeback.busy:
                check_alive(session)
                await session.states.wait_change()
    except TimeoutError:
        raise TimeoutExpired(
            f"there is no compute node after {timeout_s:g} s",
            cause=session.states.detail,
            hint="`tk status` shows why the job waits",
            transient=True,
        ) from None


async def _unless_it_ends(session: Session, work: Coroutine[object, object, _T]) -> _T:
    """Return the result of `work`; raise NoSessionError if the allocation ends meanwhile.

    A wait for the node would never end then.
    """
    task = asyncio.ensure_future(work)
    # Over before the barrier: then the login host counts.
    over = session.states.state is SessionState.ENDED
    try:
        while not task.done():
            changed = asyncio.ensure_future(session.states.wait_change())
            await asyncio.wait({task, changed}, return_when=asyncio.FIRST_COMPLETED)
            await cancel_all(changed)
            if not over and not task.done():
                check_alive(session)
        return task.result()
    finally:
        await cancel_all(task)


def _why_no_node(session: Session) -> str:
    if session.states.state is SessionState.ENDED:
        return f"the allocation is over: {session.states.detail}"
    return f"there was no node: {session.states.state} {session.states.detail}".rstrip()
