"""An object whose pods the API server refuses: `tk why` and `tk up` say the reason."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tunnelkit.config.load import assemble
from tunnelkit.diagnosis.verdict import Certainty, Diagnosis, Stage
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


def event(
    name: str, message: str, reason: str = "FailedCreate", kind: str = "Job"
) -> dict[str, object]:
    there = {"kind": kind, "name": name}
    made = {"type": "Warning", "reason": reason, "involvedObject": there, "message": message}
    return {**made, "lastTimestamp": "2026-01-01T10:00:00Z"}


async def answer(command: Command, *pods: object) -> Completed:
    events = [event("fit", QUOTA), event("other", "no"), event("fit", "no", "BackoffLimit")]
    items = events if "/events?" in command.argv[1] else list(pods)
    return Completed(0, json.dumps({"items": items}).encode(), b"")


def pod_of(kind: str, owner: str, hour: int = 9) -> dict[str, object]:
    running = {"name": "main", "state": {"running": {}}}
    return {
        "metadata": {
            "name": f"{owner}-x",
            "creationTimestamp": f"2026-01-01T{hour:02}:00:00Z",
            "ownerReferences": [{"kind": kind, "name": owner}],
            "labels": {"pod-template-hash": owner.rpartition("-")[2]},
        },
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": "Running", "containerStatuses": [running]},
    }


@pytest.mark.parametrize(("hour", "is_refused"), [(9, True), (11, False)])
async def test_a_quota_for_some_of_its_pods(tmp_path: Path, hour: int, is_refused: bool) -> None:
    """The first runs, the second is refused; a refusal before the last pod came is over.

    It may want no further pod by now, so it runs, first of all."""

    async def ask(command: Command) -> Completed:
        return await answer(command, pod_of("Job", "fit", hour))

    found = await diagnose_pods(ask, settings_in(tmp_path), "job/fit")
    assert (found.stage, found.verdicts[0].code) == (Stage.RUNNING, "pod-runs")
    assert len(found.verdicts) == 1 + is_refused
    if is_refused:
        further = found.verdicts[1]
        assert (further.code, further.certainty) == ("pod-no-pod", Certainty.LIKELY)
        words = "most likely gets no further pod: Job fit can make no pod: quota team"
        assert further.predicate.startswith(words)


@pytest.mark.parametrize(
    ("refused", "has_pods", "is_its"),
    [
        ("train-7c", True, True),
        ("train-8d", True, True),  # the next one, which has no pod yet
        ("train-8d", False, True),
        ("train-eval-7c", True, False),
        ("train-eval-7c", False, False),
        ("train-eval", True, False),
        ("trainer-7c", True, False),
    ],
)
async def test_the_refusal_of_another_object_is_not_its_own(
    tmp_path: Path, refused: str, has_pods: bool, is_its: bool
) -> None:
    async def ask(command: Command) -> Completed:
        items: list[object] = [pod_of("ReplicaSet", "train-7c")] if has_pods else []
        if "/events?" in command.argv[1]:
            items = [event(refused, QUOTA, kind="ReplicaSet")]
        return Completed(0, json.dumps({"items": items}).encode(), b"")

    found = await diagnose_pods(ask, settings_in(tmp_path), "deployment/train")
    assert any("quota team" in one.sentence for one in found.verdicts) is is_its


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
