"""Manifests of users: which are taken, and what tk changes in them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.errors import UsageError
from tunnelkit.model import Completed, JobState, ResourceRequest
from tunnelkit.scheduler.kube.adapter import Kubernetes
from tunnelkit.scheduler.kube.manifest import Manifest, parse_manifest
from tunnelkit.scheduler.kube.object_kinds import KINDS
from tunnelkit.scheduler.kube.pod_spec import MADE, QUEUE_LABEL, SESSION_LABEL

HOLD = ["sh", "-c", "hold"]


def container(name: str = "main", **more: object) -> dict[str, object]:
    return {"name": name, "image": "train:12", "command": ["python"], "args": ["a.py"], **more}


def template(*containers: dict[str, object], **metadata: object) -> dict[str, object]:
    there = list(containers) or [container()]
    return {"metadata": metadata, "spec": {"containers": there, "restartPolicy": "OnFailure"}}


def job(**spec: object) -> dict[str, object]:
    about = {"name": "llama", "generateName": "l-", "labels": {"app": "train"}}
    made = {"template": template(), **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": made}


POD = {"apiVersion": "v1", "kind": "Pod", **template()}
SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "train"}}
JOBSET = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "spec": {
        "replicatedJobs": [
            {"name": "driver", "template": {"spec": {"template": template()}}},
            {
                "name": "workers",
                "replicas": 2,
                "template": {"spec": {"parallelism": 4, "template": template()}},
            },
        ]
    },
}
PYTORCH = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "spec": {
        "pytorchReplicaSpecs": {
            "Master": {"replicas": 1, "template": template(container("pytorch"))},
            "Worker": {"replicas": 3, "template": template(container("pytorch"))},
        }
    },
}
LWS = {
    "apiVersion": "leaderworkerset.x-k8s.io/v1",
    "kind": "LeaderWorkerSet",
    "spec": {
        "replicas": 2,
        "leaderWorkerTemplate": {
            "size": 4,
            "leaderTemplate": template(),
            "workerTemplate": template(),
        },
    },
}
VOLCANO = {
    "apiVersion": "batch.volcano.sh/v1alpha1",
    "kind": "Job",
    "spec": {"tasks": [{"replicas": 1, "template": template()}, {"template": template()}]},
}


def read(*objects: object, container: str | None = None, queue: str | None = None) -> Manifest:
    printed = "\n".join(json.dumps(one, indent=4) for one in objects)
    return parse_manifest(printed, name="job.yaml", container=container, queue=queue)


def held(manifest: Manifest) -> Any:
    request = ResourceRequest(node=None)
    return json.loads(manifest.held(request, job_name="tk-Proj_1-ab", command=HOLD))


@pytest.mark.parametrize(
    ("written", "path", "pods"),
    [
        (POD, "/api/v1/namespaces/mine/pods", 1),
        (job(), "/apis/batch/v1/namespaces/mine/jobs", 1),
        (job(parallelism=4, completions=3), "/apis/batch/v1/namespaces/mine/jobs", 3),
        (JOBSET, "/apis/jobset.x-k8s.io/v1alpha2/namespaces/mine/jobsets", 9),
        (PYTORCH, "/apis/kubeflow.org/v1/namespaces/mine/pytorchjobs", 4),
        (LWS, "/apis/leaderworkerset.x-k8s.io/v1/namespaces/mine/leaderworkersets", 8),
        (VOLCANO, "/apis/batch.volcano.sh/v1alpha1/namespaces/mine/jobs", 2),
    ],
)
def test_each_kind_is_made_where_it_belongs_and_all_its_pods_wait(
    written: dict[str, object], path: str, pods: int
) -> None:
    before = json.dumps(written)
    manifest = read(written)
    assert manifest.path("mine") == path and manifest.pods == pods
    assert manifest.own_command == ["python", "a.py"]
    made = held(manifest)
    assert json.dumps(written) == before
    name = made["metadata"]["name"]
    assert name.startswith("tk-proj-1-ab-") and len(name) == len("tk-proj-1-ab-") + 6
    text = json.dumps(made)
    assert '"a.py"' not in text and '["python"]' not in text
    templates = list(manifest.kind.templates(made))
    assert templates
    for one, _ in templates:
        of_pod: Any = one
        assert of_pod["spec"]["containers"][0]["command"] == HOLD
        assert of_pod["metadata"]["labels"][SESSION_LABEL] == "tk-proj-1-ab"
        assert of_pod["metadata"]["annotations"][MADE] == f"{manifest.kind.choice}/{name}"
        never = "Never" if manifest.kind.choice == "pod" else "OnFailure"
        assert of_pod["spec"]["restartPolicy"] == never


def test_what_the_user_wrote_stays_but_for_what_would_end_a_container_that_waits() -> None:
    mine = {"name": "data", "mountPath": "/data"}
    written = container(
        livenessProbe={}, readinessProbe={}, startupProbe={}, lifecycle={},
        env=[
            {"name": "LR", "value": "1"}, {"name": "TK_DIR", "value": "/mine"},
            {"name": "TK_NODE", "value": "mine"},
        ],
        volumeMounts=[mine], resources={"limits": {"nvidia.com/gpu": "8"}},
    )  # fmt: skip
    one = template(container("proxy", livenessProbe={"a": 1}), written)
    made = held(read(job(template=one, backoffLimit=2), container="main", queue="team-a"))
    assert made["metadata"]["labels"] == {
        "app": "train", SESSION_LABEL: "tk-proj-1-ab", QUEUE_LABEL: "team-a",
    }  # fmt: skip
    assert "generateName" not in made["metadata"] and made["spec"]["backoffLimit"] == 2
    spec = made["spec"]["template"]["spec"]
    proxy, main = spec["containers"]
    assert proxy["command"] == ["python"] and proxy["livenessProbe"] == {"a": 1}
    assert set(main) == {"name", "image", "command", "env", "volumeMounts", "resources"}
    place = {"name": "tunnelkit", "mountPath": "/tk"}
    assert main["volumeMounts"] == [mine, place]
    assert main["env"] == [
        {"name": "LR", "value": "1"}, {"name": "TK_DIR", "value": "/tk/agent"},
        {"name": "TK_NODE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]  # fmt: skip
    assert spec["volumes"] == [{"name": "tunnelkit", "emptyDir": {}}]


def test_the_container_is_the_one_that_kubectl_takes() -> None:
    chosen = {"kubectl.kubernetes.io/default-container": "train"}
    one = template(container("sidecar"), container("train"), annotations=chosen)
    made = held(read({"apiVersion": "v1", "kind": "Pod", **one}))
    sidecar, train = made["spec"]["containers"]
    assert (sidecar["command"], train["command"]) == (["python"], HOLD)


@pytest.mark.parametrize(
    ("command", "args", "words"),
    [
        (["python"], ["a.py", "--lr", "1e-3"], ["python", "a.py", "--lr", "1e-3"]),
        (["sh", "-c"], ["python a.py --name 'x y'"], ["python", "a.py", "--name", "x y"]),
        (["/bin/bash", "-lc", "torchrun a.py"], None, ["torchrun", "a.py"]),
        (["sh", "-c", "cd /w && python a.py"], None, ["sh", "-c", "cd /w && python a.py"]),
        (["sh", "-c", "python a.py $ARGS"], None, ["sh", "-c", "python a.py $ARGS"]),
        (["python"], ["a.py", "--rank=$(RANK)"], ["python", "a.py", "--rank=$(RANK)"]),
        (["sh", "-c", "python a.py $(ARGS)"], None, ["sh", "-c", "python a.py $(ARGS)"]),
        (["sh", "-c", "A=1 python a.py"], None, ["sh", "-c", "A=1 python a.py"]),
        (["sh", "-c", "python a.py 'x"], None, ["sh", "-c", "python a.py 'x"]),
        (["sh", "-c", "python a.py\npython b.py"], None, ["sh", "-c", "python a.py\npython b.py"]),
        (["sh", "-c", "python a.py"], ["x"], ["sh", "-c", "python a.py", "x"]),
        (None, None, []),
        # Of the image's own program, which the manifest does not name.
        (None, ["--backend", "nccl"], []),
    ],
)
def test_the_own_command_is_that_of_a_shell_that_does_nothing_else(
    command: list[str] | None, args: list[str] | None, words: list[str]
) -> None:
    one = template(container(command=command, args=args))
    assert read(job(template=one)).own_command == words


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        ((), "it has none"),
        ((SERVICE,), "it has Service"),
        ((SERVICE, job()), "it has Service, Job"),
        (({"kind": "List", "items": [POD, POD]},), "it has Pod, Pod"),
        (({**job(), "apiVersion": "batch.volcano.sh/v1alpha1/x"},), "it has Job"),
        (({**job(), "apiVersion": "batch/../../v1"},), "it has Job"),
        ((job(parallelism=0),), "asks for no pod"),
        ((job(template=7),), "asks for no pod"),
        ((job(template={"spec": {"containers": [7]}}),), "has no container"),
        ((job(template={"spec": 7}),), "has no container"),
        ((7,), "it has none"),
    ],
)
def test_what_tk_cant_make_is_refused(objects: tuple[object, ...], words: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(*objects)
    assert words in refused.value.one_line() and refused.value.hint


def test_a_users_manifest_is_refused_as_it_was_written() -> None:
    adapter = Kubernetes("mine", template=read(POD))
    command = adapter.submit(ResourceRequest(node=None), job_name="tk-p", body="x", log_dir="")
    why = b'violates PodSecurity "restricted:latest": runAsNonRoot != true'
    assert adapter.amended(command, Completed(403, b"", why)) is None


def test_a_container_that_is_not_there_and_another_namespace_are_refused() -> None:
    with pytest.raises(UsageError, match="no container web"):
        read(job(), container="web")
    elsewhere = read({**job(), "metadata": {"namespace": "prod"}})
    with pytest.raises(UsageError, match="for namespace prod, this session for mine"):
        elsewhere.path("mine")
    with pytest.raises(UsageError, match="not the name of a queue"):
        held(read(job(), queue="team a"))
    with pytest.raises(UsageError, match="can't be read"):
        parse_manifest("{", name="job.yaml")
    with pytest.raises(UsageError, match="can't be read"):
        parse_manifest("[" * 100_000, name="job.yaml")


def running(name: str, phase: str = "Running") -> dict[str, object]:
    now = {"name": "main", "containerID": f"c://{name}", "state": {phase.lower(): {}}}
    status = {"phase": phase, "containerStatuses": [now] if phase == "Running" else []}
    spec = {"containers": [{"name": "main"}]}
    return {"metadata": {"name": name, "uid": name}, "spec": spec, "status": status}


OURS = "tk-proj-1-ab-0a1b2c"


@pytest.mark.parametrize(
    ("status", "ended"),
    [
        ({}, ""),
        ({"conditions": [{"type": "Suspended", "status": "True"}]}, ""),
        ({"conditions": [{"type": "Failed", "status": "False"}]}, ""),
        ({"conditions": [{"type": "FailureTarget", "status": "True"},
          {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]}, "Failed"),
        ({"conditions": [{"type": "Complete", "status": "True"}]}, "Complete"),
        ({"conditions": [{"type": "Succeeded", "status": "True"}]}, "Succeeded"),
        ({"state": {"phase": "Running"}}, ""),
        ({"state": {"phase": "Aborted"}}, "Aborted"),
    ],
)  # fmt: skip
def test_an_object_that_has_ended_is_not_taken_over(status: dict[str, Any], ended: str) -> None:
    adapter = Kubernetes("mine", template=read(job()))
    about = {"name": "tk-proj-1-ab-0a1b2c", "labels": {SESSION_LABEL: "tk-proj-1-ab"}}
    answer = Completed(0, json.dumps({"metadata": about, "status": status}).encode(), b"")
    (found,) = adapter.parse_find(answer, "tk-Proj_1-ab")
    wanted = JobState.ENDED if ended else JobState.PENDING
    assert (found.job_id, found.state) == ("job/tk-proj-1-ab-0a1b2c", wanted)
    assert (found.native_state, found.ending) == (ended, False)


def test_a_job_has_not_ended_as_long_as_one_of_its_pods_runs() -> None:
    about: dict[str, Any] = {"labels": {SESSION_LABEL: "tk-proj-1-ab"}, "annotations": {}}
    about["annotations"][MADE] = f"job/{OURS}"
    about["ownerReferences"] = [{"kind": "Job", "name": OURS}]
    pods = [running(f"p{at}", phase) for at, phase in enumerate(("Failed", "Running", "Failed"))]
    pods = [{**one, "metadata": {**about, "name": f"p{at}"}} for at, one in enumerate(pods)]
    for there, state in ((pods, JobState.RUNNING), (pods[:1], JobState.ENDED)):
        answer = Completed(0, json.dumps({"items": there}).encode(), b"")
        (found,) = Kubernetes("mine").parse_find(answer, "tk-Proj_1-ab")
        assert found.state is state


def test_it_waits_until_all_pods_have_started_and_then_no_more() -> None:
    adapter = Kubernetes("mine", template=read(job(parallelism=2), queue="team-a"))
    job_id = "job/tk-proj-1-ab-0a1b2c"

    def state(*phases: str) -> tuple[JobState, str | None]:
        pods = [running(f"p{at}", phase) for at, phase in enumerate(phases)]
        answer = Completed(0, json.dumps({"items": pods}).encode(), b"")
        status = adapter.parse_query(answer, [job_id])[job_id]
        return status.state, status.explanation

    assert state() == (JobState.PENDING, "it waits in the queue team-a")
    assert state("Running") == (JobState.PENDING, "1 of 2 pods run")
    assert state("Running", "Pending")[0] is JobState.PENDING
    assert state("Running", "Running")[0] is JobState.RUNNING
    assert state("Running")[0] is JobState.RUNNING  # a pod that is lost is another matter
    cancel = adapter.cancel(job_id)
    path = "/apis/batch/v1/namespaces/mine/jobs/tk-proj-1-ab-0a1b2c"
    assert cancel.argv == ("DELETE", f"{path}?propagationPolicy=Background")
    assert Kubernetes("mine").cancel(job_id).argv == cancel.argv


_TEXT = st.text("abz./-_ \x1b\u00e9", max_size=8)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | _TEXT,
    lambda one: st.lists(one, max_size=3) | st.dictionaries(_TEXT, one, max_size=3),
    max_leaves=12,
)
_KEYS = (
    "apiVersion", "kind", "metadata", "spec", "template", "containers", "name", "labels", "env",
    "annotations", "volumes", "volumeMounts", "replicas", "parallelism", "replicatedJobs", "items",
)  # fmt: skip
_ODD = st.recursive(
    _JSON,
    lambda one: (
        st.lists(one, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), one, max_size=6)
    ),
    max_leaves=20,
)
_KINDS = st.sampled_from([(one.kind, f"{one.group}/v1".lstrip("/")) for one in KINDS])


@given(_KINDS, st.dictionaries(st.sampled_from(_KEYS), _ODD, max_size=6))
def test_whatever_is_written_is_made_or_refused(kind: tuple[str, str], odd: dict[str, Any]) -> None:
    try:
        manifest = read({**odd, "kind": kind[0], "apiVersion": kind[1]})
        held(manifest)
    except UsageError as refused:
        assert refused.hint


_MORE = st.dictionaries(st.text("xyz", min_size=1, max_size=3), _JSON, max_size=3)


@given(_MORE, _MORE, _MORE, _MORE, st.lists(_MORE, max_size=2))
def test_all_else_that_is_written_is_made(
    spec: dict[str, Any],
    of_pod: dict[str, Any],
    of_container: dict[str, Any],
    labels: dict[str, Any],
    sidecars: list[dict[str, Any]],
) -> None:
    one = template(container(**of_container), *sidecars)
    pod: Any = one["spec"]
    pod.update(of_pod)
    written = {**job(**spec, template=one), "metadata": {"labels": labels}}
    made = held(read(written))
    # What tk has put there, taken out again.
    for about in (made["metadata"], made["spec"]["template"]["metadata"]):
        del about["labels"][SESSION_LABEL]
    del made["metadata"]["name"]
    assert set(made["spec"]["template"]["metadata"]["annotations"]) == {MADE}
    held_pod = made["spec"]["template"]["spec"]
    assert held_pod.pop("volumes") == [{"name": "tunnelkit", "emptyDir": {}}]
    main = held_pod["containers"][0]
    assert main.pop("command") == HOLD
    del main["env"], main["volumeMounts"]
    for key in ("command", "args"):
        del pod["containers"][0][key]
    assert held_pod == pod and made["metadata"] == written["metadata"]
    assert set(made["spec"]) == {*spec, "template"}
    assert all(made["spec"][key] == spec[key] for key in spec)
