"""An object whose pods the API server refuses: `tk why` and `tk up` say the reason."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tunnelkit.config.load import assemble
from tunnelkit.diagnosis.verdict import Diagnosis, Stage
from tunnelkit.model import Completed, JobState, JobStatus
from tunnelkit.scheduler.base import Command
from tunnelkit.scheduler.kube.adapter import Kubernetes
from tunnelkit.session.job.pod_diagnosis import diagnose_pods
from tunnelkit.session.runtime.background_tasks import BackgroundTasks
from tunnelkit.session.why.waiting_words import WaitingWords

QUOTA = (
    'pods "fit-0-x" is forbidden: exceeded quota: team, requested: nvidia.com/gpu=8, '
    "used: nvidia.com/gpu=4, limited: nvidia.com/gpu=8"
)


def event(name: str, message: str, reason: str = "FailedCreate") -> dict[str, object]:
    there = {"kind": "Job", "name": name}
    made = {"type": "Warning", "reason": reason, "involvedObject": there, "message": message}
    return {**made, "lastTimestamp": "2026-01-01T10:00:00Z"}


async def answer(command: Command, *pods: object) -> Completed:
    events = [event("fit", QUOTA), event("other", "no"), event("fit", "no", "BackoffLimit")]
    items = events if "/events?" in command.argv[1] else list(pods)
    return Completed(0, json.dumps({"items": items}).encode(), b"")


@pytest.mark.parametrize(("hour", "code"), [(9, "pod-no-pod"), (11, "pod-runs")])
async def test_a_quota_for_some_of_its_pods(tmp_path: Path, hour: int, code: str) -> None:
    """The first runs, the second is refused; a refusal before the last pod came is over."""
    running = {"name": "main", "state": {"running": {}}}
    pod = {
        "metadata": {"name": "fit-0-x", "creationTimestamp": f"2026-01-01T{hour:02}:00:00Z"},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": "Running", "containerStatuses": [running]},
    }

    async def ask(command: Command) -> Completed:
        return await answer(command, pod)

    found = await diagnose_pods(ask, settings_in(tmp_path), "job/fit")
    assert found.verdicts[0].code == code and found.verdicts[-1].code == "pod-runs"
    assert ("quota team" in found.verdicts[0].sentence) is (hour < 10)


def settings_in(tmp_path: Path) -> Any:
    where = {"cluster.context": "c", "cluster.namespace": "n"}
    return assemble(tmp_path, None, cwd=tmp_path, overrides=where, environ={})


async def test_the_refusal_of_its_pods_is_why_an_object_has_none(tmp_path: Path) -> None:
    found = await diagnose_pods(answer, settings_in(tmp_path), "job/fit")
    assert (found.stage, found.verdicts[0].code) == (Stage.WAITING, "pod-no-pod")
    assert "Job fit can make no pod: quota team is used up" in found.verdicts[0].sentence
    assert len(found.verdicts[0].because) == 1


async def test_tk_up_says_it_while_it_waits(tmp_path: Path) -> None:
    settings, said = settings_in(tmp_path), asyncio.Queue[str]()

    async def diagnose(link: object, settings: Any, named: str | None) -> Diagnosis:
        return await diagnose_pods(answer, settings, named)

    setup = SimpleNamespace(
        backend=SimpleNamespace(diagnose=diagnose),
        link=SimpleNamespace(name="c/n"),
        settings=settings,
    )
    cluster: Any = SimpleNamespace(
        job=SimpleNamespace(scheduler=Kubernetes("n")), setup=setup, run=answer
    )
    tasks = BackgroundTasks()
    words = WaitingWords(cluster, tasks, lambda text: None, said.put_nowait, first_s=0)
    words.is_pending(JobStatus("job/fit", JobState.PENDING, "", explanation="it has no pod yet"))
    try:
        async with asyncio.timeout(20):
            assert "quota team is used up" in await said.get()
    finally:
        await words.end()
        await tasks.cancel()
