"""Every pod is left, also after one that could not be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tunnelkit.errors import ConnectionFailed
from tunnelkit.model import JobState, JobStatus
from tunnelkit.session.allocation.allocated import AllocatedJob
from tunnelkit.session.backends.backend import AgentAddress


async def test_a_pod_that_is_gone_keeps_no_other_from_being_left() -> None:
    left: list[str | None] = []

    async def leave(address: AgentAddress) -> None:
        left.append(address.node)
        if address.node == "train-1":
            raise ConnectionFailed("train-1 is gone")

    setup: Any = SimpleNamespace(
        backend=SimpleNamespace(leave=leave), link=None, settings=None, name="a"
    )
    job: Any = SimpleNamespace(scheduler=None, foreign=True)
    nodes = tuple(f"train-{number}" for number in range(20))
    status = JobStatus("7", JobState.RUNNING, "RUNNING", nodes=nodes)
    allocated = AllocatedJob(setup, job, status, lambda *event, **facts: None)
    with pytest.raises(ConnectionFailed, match="train-1 is gone"):
        await allocated.leave()
    assert sorted(map(str, left)) == sorted(nodes)
