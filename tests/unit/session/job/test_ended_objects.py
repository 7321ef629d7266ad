"""An ended object that tk made in Kubernetes: tk removes it, and never takes it over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tunnelkit.errors import AllocationError
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import Command
from tunnelkit.scheduler.kube.adapter import Kubernetes
from tunnelkit.scheduler.kube.pod_spec import SESSION_LABEL, PodTemplate
from tunnelkit.session.job.cancelled_jobs import CancelledJobs
from tunnelkit.session.job.job import JobHandle, NoWatcher

OVER = {"conditions": [{"type": "Failed", "status": "True"}]}
ENDED_POD = {"phase": "Failed", "reason": "DeadlineExceeded"}


class Namespace:
    """Jobs by their names with their status, and what was deleted. refuses: each deletion."""

    def __init__(self, refuses: bool = False, **jobs: object) -> None:
        self.jobs = {name.replace("_", "-"): status for name, status in jobs.items()}
        self.deleted: list[str] = []
        self._refuses = refuses

    async def run(self, command: Command) -> Completed:
        method, path = command.argv
        if method == "DELETE":
            self.deleted.append(path.rpartition("/")[2].partition("?")[0])
            code = 403 if self._refuses else 0
            return Completed(code, b"{}", b"jobs.batch is forbidden" if code else b"")
        labels = {SESSION_LABEL: "tk-p"}
        pod = {"metadata": {"name": "p", "labels": labels}, "status": ENDED_POD}
        jobs = [
            {"metadata": {"name": name, "labels": labels}, "status": status}
            for name, status in self.jobs.items()
        ]
        items = [pod] if "/pods" in path else jobs
        return Completed(0, json.dumps({"items": items}).encode(), b"")

    def handle(self, directory: Path) -> JobHandle:
        return JobHandle(
            Kubernetes("n", template=PodTemplate("a:1", queue="q")),
            self.run,
            job_name="tk-p",
            jobs_dir=None,
            status_file=None,
            cancelled=CancelledJobs(directory / "cancelled"),
        )


@pytest.mark.parametrize("refuses", [False, True])
async def test_an_ended_job_is_removed_on_the_way_to_a_new_one(
    tmp_path: Path, refuses: bool
) -> None:
    namespace = Namespace(refuses, tk_p_000001=OVER)
    job = namespace.handle(tmp_path)
    assert await job.find() is None and namespace.deleted == []
    await job.drop_ended()
    assert namespace.deleted == ["tk-p-000001"]
    await job.drop_ended()
    assert namespace.deleted == ["tk-p-000001"]


async def test_beside_one_that_waits_it_is_left_until_down(tmp_path: Path) -> None:
    namespace = Namespace(tk_p_000001=OVER, tk_p_000002={})
    job = namespace.handle(tmp_path)
    found = await job.find()
    assert found is not None and found.job_id == "job/tk-p-000002"
    await job.drop_twins()
    assert namespace.deleted == []
    assert await job.cancel() == ["job/tk-p-000002"]
    assert namespace.deleted == ["tk-p-000002", "tk-p-000001"]


async def test_the_hint_for_one_that_ends_too_early_names_nothing_that_pods_lack(
    tmp_path: Path,
) -> None:
    job = Namespace(tk_p_000001={}).handle(tmp_path)
    await job.find()
    with pytest.raises(AllocationError, match="ended before it could be used") as ended:
        await job.wait_running(NoWatcher())
    assert "DeadlineExceeded" in str(ended.value.cause)
    assert ended.value.hint is not None
    assert "tk up" in ended.value.hint and "directory" not in ended.value.hint
