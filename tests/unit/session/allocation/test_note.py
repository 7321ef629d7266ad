"""The remark on what a session's object leaves or deletes: it is said at each beginning."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tunnelkit.config.load import assemble
from tunnelkit.model import JobState, JobStatus
from tunnelkit.session.allocation.manager import AllocationManager
from tunnelkit.session.backends.kubernetes import KUBERNETES


async def test_it_is_said_of_an_object_that_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = {"cluster.context": "c", "cluster.namespace": "n"}
    settings = assemble(tmp_path, None, cwd=tmp_path, overrides=where, environ={})
    backend = replace(KUBERNETES, note=lambda scheduler: "`tk down` deletes the volume claims")
    said: list[str] = []
    unused: Any = None
    manager = AllocationManager(
        unused,
        settings,
        backend,
        name="tk-p",
        say=said.append,
        cancelled=tmp_path,
        wait_link=unused,
    )

    async def find() -> JobStatus:
        return JobStatus("statefulset/tk-p", JobState.PENDING, "")

    async def nothing(*args: object) -> None:
        pass

    job: Any = SimpleNamespace(find=find, drop_twins=nothing, scheduler=None)
    manager.job = job
    monkeypatch.setattr(manager, "wait_running", nothing)
    await manager.obtain(None, unused)
    assert "taking it over" in said[0]
    assert said[1:] == ["`tk down` deletes the volume claims"]
