"""`scheduler = none` says honestly what it can't do."""

from __future__ import annotations

import pytest

from tunnelkit.errors import SchedulerError
from tunnelkit.model import Completed, ResourceRequest
from tunnelkit.scheduler.base import Scheduler
from tunnelkit.scheduler.none import NoScheduler
from tunnelkit.scheduler.slurm import Slurm

schedulers: list[Scheduler] = [NoScheduler(), Slurm()]  # mypy holds both to the interface


def test_nothing_is_pretended() -> None:
    none = NoScheduler()
    with pytest.raises(SchedulerError):
        none.submit(ResourceRequest(), job_name="x", body="", log_dir="/x")
    with pytest.raises(SchedulerError):
        none.query(["1"])
    with pytest.raises(SchedulerError):
        none.cancel("1")
    assert none.parse_find(Completed(0, b"", b""), "x") == []
    assert none.estimate("1") is None
    assert none.history("1") is None
    assert none.enter("", "node4", ["ls", "-l"]) == ["ls", "-l"]
