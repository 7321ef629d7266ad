"""A killed session's pod is not forgotten by a `tk up` that makes something else."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tunnelkit.config.load import assemble
from tunnelkit.errors import AllocationError
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import Command
from tunnelkit.scheduler.kube.pod_spec import SESSION_LABEL
from tunnelkit.session.allocation.left_objects import check_left_objects
from tunnelkit.session.backends.kubernetes import KUBERNETES


def settings(directory: Path, **allocation: str) -> Any:
    where = {"cluster.context": "c", "cluster.namespace": "n"}
    asked = {f"allocation.{key}": value for key, value in allocation.items()}
    return assemble(directory, None, cwd=directory, overrides={**where, **asked}, environ={})


class Namespace:
    """A namespace with a pod that the session tk-p has made, and a Job of nobody's."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def run(self, command: Command) -> Completed:
        self.asked.append(command.argv[1])
        pod = {
            "metadata": {"name": "tk-p-0a1b2c", "labels": {SESSION_LABEL: "tk-p"}},
            "spec": {"containers": [{"name": "main"}]},
            "status": {"phase": "Pending"},
        }
        items = [pod] if "/pods" in command.argv[1] else []
        return Completed(0, json.dumps({"items": items}).encode(), b"")


async def test_another_kind_is_refused_as_long_as_the_first_is_there(tmp_path: Path) -> None:
    namespace = Namespace()

    async def check(left: Any, now: Any, attached: str | None = None) -> None:
        setup: Any = SimpleNamespace(backend=KUBERNETES, link=None, settings=now, name="tk-p")
        earlier = SimpleNamespace(settings=left, attach_job=attached)
        record: Any = SimpleNamespace(left=earlier)
        await check_left_objects(setup, record, namespace.run)

    pod, queued = settings(tmp_path, image="a:1"), settings(tmp_path, image="a:1", queue="q")
    with pytest.raises(AllocationError, match="already has pod/tk-p-0a1b2c") as refused:
        await check(pod, queued)
    assert "tk down first" in str(refused.value.hint)
    with pytest.raises(AllocationError, match="already has pod/tk-p-0a1b2c"):
        await check(pod, settings(tmp_path))
    asked = len(namespace.asked)
    await check(pod, settings(tmp_path, image="b:2"))  # found by the session's own question
    await check(pod, queued, attached="pod/mine")
    assert len(namespace.asked) == asked
    await check(queued, pod)
    assert "/jobs?" in namespace.asked[-1]
