"""Copies: what tk makes of a user's object, and what a user makes of one of tk's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.scheduler.kube.test_kube_manifest import (
    OURS,
    POD,
    held,
    job,
    read,
    running,
    template,
)
from tunnelkit.model import Completed
from tunnelkit.scheduler.kube.adapter import Kubernetes
from tunnelkit.scheduler.kube.pod_spec import MADE, SESSION_LABEL


@pytest.mark.parametrize(
    ("name", "made", "owner", "job_id"),
    [
        (f"{OURS}-0-x", f"job/{OURS}", OURS, f"job/{OURS}"),
        (f"{OURS}-7f-x", f"deployment/{OURS}", f"{OURS}-7f", f"deployment/{OURS}"),
        (OURS, "", "", f"pod/{OURS}"),
        # What a user has made of a copy: of a pod, of its owner's pod, of the whole owner.
        ("my-copy", "", "", None),
        ("my-copy", f"job/{OURS}", "", None),
        ("my-job-0-x", f"job/{OURS}", "my-job", None),
        ("tk-proj-1-ab-mine00", "", "", None),
        ("p", "statefulset/prod-db", "prod-db", None),
        ("p", f"job/{OURS}/../x", OURS, None),
        ("p", f"secret/{OURS}", OURS, None),
    ],
)
def test_a_pod_that_tk_did_not_make_is_never_tks_to_delete(
    name: str, made: str, owner: str, job_id: str | None
) -> None:
    about: dict[str, Any] = {"name": name, "labels": {SESSION_LABEL: "tk-proj-1-ab"}}
    about["annotations"] = {MADE: made} if made else {}
    about["ownerReferences"] = [{"kind": "Any", "name": owner}] if owner else []
    pod = {**running("p"), "metadata": about}
    answer = Completed(0, json.dumps({"items": [pod]}).encode(), b"")
    found = Kubernetes("mine").parse_find(answer, "tk-Proj_1-ab")
    assert [one.job_id for one in found] == ([job_id] if job_id else [])


def test_an_object_that_tk_did_not_make_is_never_tks_to_delete() -> None:
    """A user's copy of tk's StatefulSet bears the session's label, too."""
    labels = {SESSION_LABEL: "tk-proj-1-ab"}
    items = [{"metadata": {"name": name, "labels": labels}} for name in ("my-copy", OURS)]
    answer = Completed(0, json.dumps({"items": items}).encode(), b"")
    found = Kubernetes("mine", template=read(job())).parse_find(answer, "tk-Proj_1-ab")
    assert [one.job_id for one in found] == [f"job/{OURS}"]


def stateful(**spec: object) -> dict[str, object]:
    claims = [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]
    made = {"template": template(), "volumeClaimTemplates": claims, **spec}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {}, "spec": made}


def test_the_claims_of_a_copy_of_a_stateful_set_go_with_it() -> None:
    """They are new ones, as the copy has a name of its own. The manifest's own word counts."""
    manifest = read(stateful())
    assert held(manifest)["spec"]["persistentVolumeClaimRetentionPolicy"] == {
        "whenDeleted": "Delete"
    }
    assert "`tk down` deletes the volume claims" in manifest.note
    kept = {"whenDeleted": "Retain", "whenScaled": "Retain"}
    manifest = read(stateful(persistentVolumeClaimRetentionPolicy=kept))
    assert held(manifest)["spec"]["persistentVolumeClaimRetentionPolicy"] == kept
    assert "stay after `tk down`" in manifest.note
    for part in ({}, None, {"whenScaled": "Delete"}, {"whenDeleted": None}):
        manifest = read(stateful(persistentVolumeClaimRetentionPolicy=part))
        policy = held(manifest)["spec"]["persistentVolumeClaimRetentionPolicy"]
        assert policy == {**(part or {}), "whenDeleted": "Delete"}
        assert "`tk down` deletes the volume claims" in manifest.note
    for other in (stateful(volumeClaimTemplates=[]), job()):
        assert "persistentVolumeClaimRetentionPolicy" not in held(read(other))["spec"]
        assert read(other).note == ""


def test_a_copy_of_a_running_object_belongs_to_nothing_in_the_cluster() -> None:
    """Else the owner, or a finalizer, would decide over it; and a controller adopts a pod that has
    the labels of its own, and then deletes one that is too many."""
    marks = {
        "pod-template-hash": "7f",
        "controller-uid": "1",
        "batch.kubernetes.io/controller-uid": "1",
        "statefulset.kubernetes.io/pod-name": "train-0",
        "controller-revision-hash": "train-1",
        "training.kubeflow.org/job-name": "train",
        "training.kubeflow.org/replica-type": "worker",
        "leaderworkerset.sigs.k8s.io/name": "train",
        "jobset.sigs.k8s.io/jobset-name": "train",
        "volcano.sh/job-name": "train",
        "ray.io/cluster": "train",
    }
    about = {
        "uid": "1",
        "labels": {"app": "train", **marks},
        "ownerReferences": [{"kind": "StatefulSet", "name": "train"}],
        "finalizers": ["batch.kubernetes.io/job-tracking"],
        "managedFields": [{}],
    }
    plain: Any = template()
    spec = {**plain["spec"], "nodeName": "n1", "hostname": "train-0", "subdomain": "train"}
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data-train-0"}}
    made = held(read({**POD, "metadata": about, "spec": {**spec, "volumes": [claim]}}))
    assert set(made["metadata"]) == {"name", "labels", "annotations"}
    assert set(made["metadata"]["labels"]) == {"app", SESSION_LABEL}
    assert not {"nodeName", "hostname"} & set(made["spec"])
    assert claim in made["spec"]["volumes"]

    one = template(labels={"app": "train", "controller-uid": "1", "job-name": "llama"})
    selector = {"matchLabels": {"controller-uid": "1"}}
    exported = job(template=one, selector=selector)
    exported["metadata"] = about
    made = held(read(exported))
    assert "selector" not in made["spec"]
    assert set(made["spec"]["template"]["metadata"]["labels"]) == {"app", SESSION_LABEL}


def test_a_hand_written_pod_keeps_what_it_says() -> None:
    plain: Any = template()
    spec = {**plain["spec"], "nodeName": "n1", "hostname": "a"}
    made = held(read({**POD, "spec": spec}))
    assert (made["spec"]["nodeName"], made["spec"]["hostname"]) == ("n1", "a")
