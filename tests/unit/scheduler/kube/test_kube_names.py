"""The names of pods and their owners for TAB: of real answers, and of hostile ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tunnelkit.errors import UsageError
from tunnelkit.model import Completed
from tunnelkit.scheduler.kube.members import parse_choice
from tunnelkit.scheduler.kube.names import usable
from tunnelkit.session.runtime.completion_cache import ClusterNames, parse_pods

PODS: dict[str, Any] = json.loads((Path(__file__).parent / "pods.json").read_text())


def owned(name: str, kind: str, owner: str, **labels: str) -> dict[str, object]:
    spelled = {key.replace("_", "-"): value for key, value in labels.items()}
    owners = [{"kind": kind, "name": owner}]
    return {"metadata": {"name": name, "labels": spelled, "ownerReferences": owners}}


def test_what_is_offered_names_the_pods_that_it_was_found_by() -> None:
    pods = [
        owned("w-0", "StatefulSet", "w"),
        owned("d-5f-x", "ReplicaSet", "d-5f", pod_template_hash="5f"),
        owned("r-x", "ReplicaSet", "r-other", pod_template_hash="5f"),
        *(PODS[name] for name in PODS if name.startswith("ranks-")),
    ]
    names, owners = usable(pods)
    assert names[:3] == ["w-0", "d-5f-x", "r-x"]
    assert owners == ["statefulset/w", "deployment/d", "job/ranks"]
    for owner in owners:
        assert parse_choice(owner).members(pods)


def test_pods_that_are_over_are_left_out() -> None:
    names, _ = usable(list(PODS.values()))
    assert "gpu-ok" in names and "gpu-8" in names
    assert "exit-3" not in names and "evictee" not in names


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"[" * 90_000, b'{"items": 3}', b'{"items": [1, {"metadata": []}]}']
)
def test_an_answer_that_is_none(body: bytes) -> None:
    found = parse_pods(Completed(0, body, b""))
    assert (found.nodes, found.owners) == ((), ())


def test_a_name_never_needs_quoting() -> None:
    pods = [owned("$(rm)", "StatefulSet", "w"), owned("w-0", "StatefulSet", "w;reboot")]
    body = json.dumps({"items": pods}).encode()
    assert parse_pods(Completed(0, body, b"")) == ClusterNames(("w-0",))
    assert parse_pods(Completed(403, b"", b"forbidden")).problem == "forbidden"
    with pytest.raises(UsageError):
        parse_choice("statefulset/w;reboot")
