"""The pods that belong together, in the order of their ranks, and the request that finds them."""

from __future__ import annotations

import pytest

from tests.unit.scheduler.kube.test_kube_words import PODS
from tunnelkit.errors import UsageError
from tunnelkit.scheduler.kube.members import parse_choice


def _pod(name: str, *, owner: tuple[str, str] | None = None, **labels: str) -> dict[str, object]:
    spelled = {key.replace("__", "/").replace("_", "-"): value for key, value in labels.items()}
    owners = [{"kind": owner[0], "name": owner[1]}] if owner else []
    return {"metadata": {"name": name, "labels": spelled, "ownerReferences": owners}}


def _members(written: str, pods: list[dict[str, object]]) -> list[str]:
    return [str(one["metadata"]["name"]) for one in parse_choice(written).members(pods)]  # type: ignore[index]


def test_members_come_in_the_order_of_their_ranks() -> None:
    ranks = [PODS[name] for name in PODS if name.startswith("ranks-")][::-1]
    assert _members("job/ranks", ranks) == ["ranks-0-969gl", "ranks-1-2prbb", "ranks-2-2k2ww"]
    sts = [_pod(f"w-{n}", owner=("StatefulSet", "w")) for n in (10, 2, 0)]
    assert _members("sts/w", [*sts, _pod("w-1")]) == ["w-0", "w-2", "w-10"]
    deploy = [
        _pod("d-5f-x", owner=("ReplicaSet", "d-5f"), pod_template_hash="5f"),
        _pod("d-x-5f-y", owner=("ReplicaSet", "d-x-5f"), pod_template_hash="5f"),
    ]
    assert _members("deployment/d", deploy) == ["d-5f-x"]
    role, index = (f"training.kubeflow.org__replica_{one}" for one in ("type", "index"))
    kubeflow = {role: "worker"}
    torch = [
        _pod("j-worker-1", **kubeflow, **{index: "1"}),
        _pod("j-worker-0", **kubeflow, **{index: "0"}),
        _pod("j-master-0", **{role: "master", index: "0"}),
    ]
    assert _members("pytorchjob/j", torch) == ["j-master-0", "j-worker-0", "j-worker-1"]


def test_before_1_28_a_jobs_index_is_an_annotation() -> None:
    pods = [_pod(f"fit-{number}") for number in (10, 2, 0)]
    for pod, number in zip(pods, ("10", "2", "0"), strict=True):
        pod["metadata"]["annotations"] = {"batch.kubernetes.io/job-completion-index": number}  # type: ignore[index]
    assert _members("job/fit", pods) == ["fit-0", "fit-2", "fit-10"]


def test_a_trainjobs_initializers_are_no_nodes() -> None:
    """They end before the trainers begin, and the session with them."""
    name = "jobset.sigs.k8s.io__replicatedjob_name"
    pods = [
        _pod("t-dataset-initializer-0-0-x", **{name: "dataset-initializer"}),
        _pod("t-model-initializer-0-0-x", **{name: "model-initializer"}),
        _pod("t-node-0-0-x", **{name: "node"}),
    ]
    assert _members("trainjob/t", pods) == ["t-node-0-0-x"]
    assert _members("trainjob/t", pods[:2]) == []
    assert len(_members("jobset/t", pods)) == 3


def test_pods_that_go_away_come_last_and_odd_names_not_at_all() -> None:
    going = _pod("a")
    going["metadata"]["deletionTimestamp"] = "2026-11-23T06:29:36Z"  # type: ignore[index]
    pods = [going, _pod("b"), _pod("../../x"), _pod("-rf"), _pod("UP")]
    assert _members("-l app=x", pods) == ["b", "a"]


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("dev-0", "/api/v1/namespaces/n/pods/dev-0"),
        ("pod/dev-0", "/api/v1/namespaces/n/pods/dev-0"),
        ("-l app=train", "/api/v1/namespaces/n/pods?labelSelector=app%3Dtrain"),
        ("sts/w", "/api/v1/namespaces/n/pods"),
        # The one label that releases before 1.27 set, and later ones, too.
        ("job/fit", "/api/v1/namespaces/n/pods?labelSelector=job-name%3Dfit"),
        (
            "jobset/j",
            "/api/v1/namespaces/n/pods?labelSelector=jobset.sigs.k8s.io%2Fjobset-name%3Dj",
        ),
    ],
)
def test_one_request_finds_them(written: str, path: str) -> None:
    assert path == parse_choice(written).path("n")


@pytest.mark.parametrize(
    "written", ["", "A", "-x", "pod/", "pod/../secrets", "a/b/c", "-l ;rm", "cow/x"]
)
def test_what_names_no_pods(written: str) -> None:
    with pytest.raises(UsageError):
        parse_choice(written)
