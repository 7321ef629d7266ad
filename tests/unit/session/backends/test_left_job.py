"""`tk up` for something else than what a killed session has left: refused, nothing forgotten."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.session.backends.test_another_backend import NODE, PATIENCE_S, cells, session
from tunnelkit.config.schema import Origin, Settings
from tunnelkit.errors import AllocationError, TunnelkitError, UsageError
from tunnelkit.link.base import Link
from tunnelkit.scheduler.base import Scheduler
from tunnelkit.session.backends.backend import Backend
from tunnelkit.session.host import SessionHost
from tunnelkit.session.runtime.launch_spec import LaunchSpec
from tunnelkit.session.runtime.paths import session_paths
from tunnelkit.session.session import Session

__all__ = ["session"]


async def _nobody(text: str, echo: bool) -> str | None:
    return None


class Starts:
    """The starts of one project's sessions. A killed session leaves its job and its record."""

    def __init__(self, settings: Settings, backend: Backend) -> None:
        # Names that any tk reads: the record is read back.
        cluster = replace(settings.cluster, link="auto", scheduler="auto")
        self.settings, self.backend = replace(settings, cluster=cluster), backend
        self.paths = session_paths(settings.project_dir)
        self.said: list[str] = []

    async def up(
        self, node: str | None = None, job: str | None = None, gpus: int | None = None
    ) -> Session:
        """Bring a session up, as `tk up NODE --attach-job JOB --gpus N` does."""
        settings = self.settings
        if gpus is not None:
            wanted = replace(settings.allocation, gpus=gpus)
            origins = {**settings.origins, "allocation.gpus": Origin("flag", "--gpus")}
            settings = replace(settings, allocation=wanted, origins=origins)
        launch = LaunchSpec(settings, node, attach_job=job)
        launch.save(self.paths.launch_wanted)
        host = SessionHost(prompter=_nobody, say=self.said.append, changed=lambda: None)
        made = Session(launch, self.paths, self.backend, host)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await made.up()
        except TunnelkitError:
            await made.close("it is refused")
            raise
        return made

    async def killed(self, made: Session) -> None:
        await made.close("it was killed")


def directory_of(session: Session) -> Path:
    return session.launch.settings.project_dir.parent / "cell"


async def test_a_job_is_refused_as_another_one_and_taken_over_as_itself(session: Session) -> None:
    starts = Starts(session.launch.settings, cells(directory_of(session)))
    first = await starts.up(NODE, gpus=1)
    await starts.killed(first)
    recorded = starts.paths.launch.read_text()
    with pytest.raises(AllocationError, match=f"already has job .* on {NODE}"):
        await starts.up("node5")
    with pytest.raises(AllocationError, match="already has job"):
        await starts.up(job="4711")
    with pytest.raises(UsageError, match="gpus is 1, not 4"):
        await starts.up(gpus=4)
    assert starts.paths.launch.read_text() == recorded

    again = await starts.up()
    assert first.cluster.job is not None and again.cluster.job is not None
    assert again.cluster.job.job_id == first.cluster.job.job_id
    record = LaunchSpec.load(starts.paths.launch)
    assert (record.node, record.settings.allocation.gpus) == (NODE, 1)
    async with asyncio.timeout(PATIENCE_S):
        await again.down()
    # With no job left the same request goes through, on whichever node.
    other = await starts.up(gpus=4)
    record = LaunchSpec.load(starts.paths.launch)
    assert (record.node, record.settings.allocation.gpus) == (None, 4)
    async with asyncio.timeout(PATIENCE_S):
        await other.down()


async def test_without_a_scheduler_an_agent_on_another_host_is_not_forgotten(
    session: Session,
) -> None:
    async def none(link: Link, settings: Settings) -> Scheduler | None:
        return None

    cell = directory_of(session)
    (cell / "pid").write_text("no job\n")
    starts = Starts(session.launch.settings, replace(cells(cell), find_scheduler=none))
    first = await starts.up(NODE)
    (cell / "pid").write_text(str(first.agents.pid))  # ended with the fixture, at the latest
    await starts.killed(first)
    with pytest.raises(AllocationError, match=f"session is on {NODE}") as caught:
        await starts.up("hostB")
    assert "tk down first, then tk up hostB" in caught.value.one_line()
    assert LaunchSpec.load(starts.paths.launch).node == NODE

    again = await starts.up()
    assert (again.cluster.node, LaunchSpec.load(starts.paths.launch).node) == (NODE, NODE)
    async with asyncio.timeout(PATIENCE_S):
        await again.down()
    # The agent has ended, though its record is there: hostB is tried.
    with pytest.raises(TunnelkitError, match="there is no cell hostB"):
        await starts.up("hostB")
    # A host that is gone keeps nobody from another one.
    (cell / "pid").unlink()
    with pytest.raises(TunnelkitError, match="there is no cell hostB"):
        await starts.up("hostB")
    assert any(f"may be left on {NODE}" in text for text in starts.said)
