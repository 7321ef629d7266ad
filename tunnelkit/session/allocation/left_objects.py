"""Objects that a killed session has made in the cluster, of another kind than those of now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tunnelkit.config.schema import Settings
from tunnelkit.errors import AllocationError, NotPermitted
from tunnelkit.model import Completed, JobState, job_words
from tunnelkit.scheduler.base import Command
from tunnelkit.session.allocation.agent_setup import AgentSetup
from tunnelkit.session.allocation.launch_record import LaunchRecord


async def check_left_objects(
    setup: AgentSetup,
    record: LaunchRecord | None,
    run: Callable[[Command], Awaitable[Completed]],
) -> None:
    """Raise AllocationError if a killed session's pod or object is still there.

    Each kind of object has a list of its own in the API: that of now has no other kind in it, and
    once the record is replaced nobody would look for it again."""
    left = None if record is None else record.left
    if left is None or left.settings is None or setup.backend.ask_api is None:
        return
    if left.attach_job is not None or _made(left.settings) == _made(setup.settings):
        return
    scheduler = await setup.backend.find_scheduler(setup.link, left.settings)
    if scheduler is None:
        return
    try:
        found = scheduler.parse_find(await run(scheduler.find(setup.name)), setup.name)
    except NotPermitted:
        return  # then it has made none
    for one in found:
        if one.state is not JobState.ENDED:
            raise AllocationError(
                f"this project already has {job_words(one.job_id)}",
                cause="a session that was killed has made it",
                hint="tk down first, then tk up again as you wrote it",
            )


def _made(settings: Settings) -> tuple[object, ...]:
    asked = settings.allocation
    return asked.image is None, asked.manifest, asked.queue is None
