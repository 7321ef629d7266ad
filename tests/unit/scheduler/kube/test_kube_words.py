"""A pod's state in words: on answers of a real API server, and on what a hostile one may say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.cli.views.jobs.why import verdict_lines
from tunnelkit.diagnosis.codes.registry import CODES
from tunnelkit.diagnosis.pods import judge_pods
from tunnelkit.diagnosis.verdict import Certainty, Stage
from tunnelkit.errors import SchedulerError, UsageError
from tunnelkit.lab.kube.pod_security import violations
from tunnelkit.model import Completed, JobState, ResourceRequest
from tunnelkit.scheduler.base import PendingCause
from tunnelkit.scheduler.kube.adapter import Kubernetes
from tunnelkit.scheduler.kube.members import parse_choice
from tunnelkit.scheduler.kube.pod_spec import PodTemplate, quantity, session_label
from tunnelkit.scheduler.kube.pod_views import parse_events, pod_views
from tunnelkit.scheduler.kube.words import judge, refused

#: Pods as Kubernetes 1.36 answered for them, without fields that nobody reads.
PODS: dict[str, Any] = json.loads((Path(__file__).parent / "pods.json").read_text())
WAITS, ENDED, RUNS = JobState.PENDING, JobState.ENDED, JobState.RUNNING


@pytest.mark.parametrize(
    ("name", "state", "cause", "words"),
    [
        ("gpu-ok", RUNS, "wait", ""),
        ("gpu-8", WAITS, "wait", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu"),
        ("selector", WAITS, "held", "1 node(s) didn't match Pod's node affinity/selector"),
        ("gated", WAITS, "quota", "Kueue has not admitted it"),
        ("no-image", WAITS, "fix", "docker.io/tk/nothere:1 can't be pulled (ErrImageNeverPull)"),
        ("pull-fails", WAITS, "held", "can't be pulled (ErrImagePull): failed to pull"),
        ("pull-fails later", WAITS, "held", "can't be pulled (ImagePullBackOff): Back-off"),
        ("no-configmap", WAITS, "fix", '(CreateContainerConfigError): configmap "nope" not found'),
        ("crashes", WAITS, "held", "is restarted; the last time it ended with exit code 1"),
        ("oom", ENDED, "wait", "killed for memory (OOMKilled): the container's limit was reached"),
        ("deadline", ENDED, "wait", "it reached its time limit"),
        ("exit-3", ENDED, "wait", "it ended with exit code 3: last words"),
        ("no-program", ENDED, "wait", "its command can't be started"),
        ("evictee", ENDED, "wait", "evicted: its node is being drained"),
    ],
)  # fmt: skip
def test_what_a_real_cluster_said(name: str, state: JobState, cause: str, words: str) -> None:
    found = judge(PODS[name])
    assert (found.state, found.cause) == (state, PendingCause(cause))
    assert words in found.why and "\n" not in found.why


def _with(status: dict[str, object], **metadata: object) -> dict[str, object]:
    spec = {"containers": [{"name": "main"}], "restartPolicy": "Never"}
    return {"metadata": {"name": "p", **metadata}, "spec": spec, "status": status}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("gpu-ok", "pod-runs"),
        ("gpu-8", "pod-no-room"),
        ("selector", "pod-fits-nowhere"),
        ("gated", "pod-gated"),
        ("no-image", "pod-image"),
        ("pull-fails later", "pod-image"),
        ("no-configmap", "pod-config"),
        ("crashes", "pod-crash-loop"),
        ("oom", "pod-out-of-memory"),
        ("deadline", "pod-time-limit"),
        ("exit-3", "pod-failed"),
        ("no-program", "pod-no-command"),
        ("evictee", "pod-evicted"),
    ],
)
def test_each_state_has_its_verdict(name: str, code: str) -> None:
    (view,) = pod_views([PODS[name]], None)
    assert view.code == code
    stage, (verdict,) = judge_pods([view])
    assert (verdict.code, stage) == (code, CODES[code].stage)
    assert verdict.certainty is Certainty.PROVEN
    if stage is not Stage.RUNNING:
        assert view.why in verdict.sentence and verdict.next_steps


def test_pods_of_one_owner_are_joined_and_the_failed_come_first() -> None:
    pods = [{**PODS[name], "metadata": {"name": f"w-{at}"}} for at, name in enumerate(
        ["gpu-ok", "gpu-8", "oom", "gpu-ok", "gpu-8"]
    )]  # fmt: skip
    stage, verdicts = judge_pods(pod_views(pods, None), owner="job/w")
    assert stage is Stage.ENDED
    assert [one.code for one in verdicts] == ["pod-out-of-memory", "pod-no-room", "pod-runs"]
    assert verdicts[0].sentence.startswith("failed: killed for memory")
    assert verdicts[1].sentence.endswith("(w-1, w-4)") and verdicts[2].sentence == "runs (w-0, w-3)"
    stage, (none,) = judge_pods([], owner="job/w")
    assert (stage, none.code, none.sentence) == (
        Stage.WAITING,
        "pod-no-pod",
        "waits: it has no pod yet",
    )


def test_events_are_warnings_the_newest_last_and_nothing_of_them_is_believed() -> None:
    def event(at: int, kind: str = "Warning", **more: object) -> dict[str, object]:
        said = {"reason": f"r{at}", "message": "no\n\x1b[31mroom", "lastTimestamp": f"2026-0{at}"}
        return {"type": kind, **said, **more}

    items = [event(3, count=7), event(1), event(2), event(4, "Normal"), event(5), 7, {"type": 3}]
    said = parse_events(Completed(0, json.dumps({"items": items}).encode(), b""))
    assert [one.partition(":")[0] for one in said] == ["r2", "r3", "r5"]
    assert said[1].endswith("(7 times)") and all(one.isprintable() for one in said)
    for bad in (b"", b"[" * 100_000, b"7", b'{"items": {}}', b'{"items": [null, "x"]}'):
        assert parse_events(Completed(0, bad, b"")) == []
    assert parse_events(Completed(403, b"", b"forbidden")) == []


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: x."},
         "by its node: The node was low on resource: x."),
        ({"phase": "Failed", "reason": "NodeLost"}, "its node was lost"),
        ({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True",
          "reason": "PreemptionByScheduler", "message": "default-scheduler: preempting"}]},
         "preempted by a pod of higher priority (default-scheduler: preempting)"),
        ({"phase": "Pending", "containerStatuses": [{"name": "main", "restartCount": 4, "state":
          {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated":
          {"exitCode": 137, "reason": "OOMKilled"}}}]},
         "was restarted 4 times and ends each time: killed for memory"),
        ({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]},
         "its node fetches the image"),
    ],
)  # fmt: skip
def test_further_states(status: dict[str, object], words: str) -> None:
    assert words in judge(_with(status)).why


def test_refusals_at_creation() -> None:
    quota = (
        'pods "q" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=4, '
        "used: requests.nvidia.com/gpu=0, limited: requests.nvidia.com/gpu=2"
    )
    words = "quota gpus is used up: asked requests.nvidia.com/gpu=4, used requests.nvidia.com/gpu=0"
    assert words in refused(quota)
    assert "does not take such a pod" in refused('violates PodSecurity "restricted:latest"')


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=8), one, max_size=3),
    max_leaves=5,
)
KEYS = st.sampled_from(
    (
        *("phase", "reason", "message", "conditions", "containerStatuses", "type", "status"),
        *("initContainerStatuses", "name", "state", "waiting", "terminated", "running"),
        *("lastState", "exitCode", "restartCount"),
    )
)
STATUS = st.dictionaries(
    KEYS, st.recursive(JSON, lambda one: st.dictionaries(KEYS, one, max_size=4), max_leaves=4)
)


@pytest.mark.hypothesis
@given(STATUS, JSON, JSON)
def test_no_answer_breaks_the_words(
    status: dict[str, object], spec: object, labels: object
) -> None:
    pod = {"metadata": {"name": "p", "labels": labels}, "spec": spec, "status": status}
    found = judge(pod)
    assert len(found.why) < 1500 and (found.why == "" or found.why.isprintable())
    for choice in ("p", "sts/p", "job/p", "deploy/p", "-l a=b"):
        parse_choice(choice).members([pod])
    done = Completed(0, json.dumps(pod).encode(), b"")
    Kubernetes("n").parse_query(done, ["pod/p"])
    stage, verdicts = judge_pods(pod_views([pod], None))
    assert {one.code for one in verdicts} <= set(CODES) and stage is CODES[verdicts[0].code].stage
    for line in verdict_lines(verdicts[0], "pod/p", "red"):
        assert len(line) < 3000 and line.isprintable()


@pytest.mark.parametrize("text", [b"", b"[]", b"[" * 90_000, b"\xff", b'{"items": 3}'])
def test_an_answer_that_is_none(text: bytes) -> None:
    adapter = Kubernetes("n")
    try:
        found = adapter.parse_query(Completed(0, text, b""), ["pod/p"])
    except SchedulerError as error:
        assert error.transient
    else:
        assert found["pod/p"].state is JobState.UNKNOWN


# -- the adapter ---------------------------------------------------------------------------


def _answer(*pods: dict[str, Any]) -> Completed:
    return Completed(0, json.dumps({"items": list(pods)}).encode(), b"")


def test_a_restarted_container_and_another_pod_are_ends() -> None:
    adapter, pod = Kubernetes("n"), PODS["gpu-ok"]
    first = adapter.parse_query(_answer(pod), ["pod/gpu-ok"])["pod/gpu-ok"]
    assert (first.state, first.nodes) == (RUNS, ("gpu-ok",))
    again = json.loads(json.dumps(pod))
    again["status"]["containerStatuses"][0]["containerID"] = "containerd://other"
    second = adapter.parse_query(_answer(again), ["pod/gpu-ok"])["pod/gpu-ok"]
    assert second.state is ENDED and "restarted" in (second.explanation or "")
    again["metadata"]["uid"] = "another"
    third = adapter.parse_query(_answer(again), ["pod/gpu-ok"])["pod/gpu-ok"]
    assert third.state is ENDED and "another pod" in (third.explanation or "")


def test_a_pod_that_is_not_there_has_ended() -> None:
    adapter, gone = Kubernetes("n"), Completed(404, b"", b'pods "x" not found')
    assert adapter.parse_query(gone, ["pod/x"])["pod/x"].native_state == ""
    assert adapter.parse_history(gone) is ENDED
    assert adapter.parse_history(_answer()) is ENDED
    with pytest.raises(SchedulerError, match="does not tell") as caught:
        adapter.parse_query(Completed(403, b"", b"pods is forbidden"), ["pod/x"])
    assert not caught.value.transient


def test_a_job_waits_for_what_its_first_pending_pod_waits_for() -> None:
    adapter = Kubernetes("n")
    status = adapter.parse_query(_answer(PODS["gpu-8"], PODS["oom"]), ["-l a=b"])["-l a=b"]
    assert status.state is WAITS and (status.explanation or "").startswith("gpu-8: no node for it")
    assert adapter.verdict(status) is PendingCause.WAIT


def test_a_pod_of_tks_own_has_no_privileges_and_what_was_asked_for() -> None:
    adapter = Kubernetes("n", template=PodTemplate("ghcr.io/me/train:12"))
    request = ResourceRequest(gpus=1, cpus=8, mem="64G", time_limit_s=14400)
    command = adapter.submit(request, job_name="tk-My_Proj-1a", body="sh -c 'exec x'", log_dir="")
    assert command.argv == ("POST", "/api/v1/namespaces/n/pods")
    pod = json.loads(command.stdin)
    (container,) = pod["spec"]["containers"]
    assert container["command"] == ["sh", "-c", "exec x"]
    wanted = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"}
    assert container["resources"] == {"requests": wanted, "limits": wanted}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    spec = pod["spec"]
    assert spec["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert spec["restartPolicy"] == "Never" and spec["activeDeadlineSeconds"] == 14400
    assert spec["automountServiceAccountToken"] is False
    assert pod["metadata"]["labels"] == {"tunnelkit.dev/session": "tk-my-proj-1a"}
    made = adapter.parse_submit(Completed(0, command.stdin, b""))
    assert made == f"pod/{pod['metadata']['name']}"
    found = adapter.parse_find(_answer({**pod, "status": {"phase": "Pending"}}), "tk-My_Proj-1a")
    assert [(one.job_id, one.state) for one in found] == [(made, WAITS)]
    assert adapter.cancel(made).argv[0] == "DELETE"


def test_a_namespace_that_asks_for_it_gets_a_pod_that_is_not_root() -> None:
    adapter = Kubernetes("n", template=PodTemplate("ghcr.io/me/train:12"))
    command = adapter.submit(ResourceRequest(), job_name="tk-p", body="x", log_dir="")
    pod = json.loads(command.stdin)
    why = violations(pod)
    assert why == (
        'violates PodSecurity "restricted:latest": runAsNonRoot != true '
        '(pod or container "main" must set securityContext.runAsNonRoot=true)'
    )
    said = Completed(403, b"", f'pods "{pod["metadata"]["name"]}" is forbidden: {why}'.encode())
    again = adapter.amended(command, said)
    assert again is not None and again.argv == command.argv
    other = json.loads(again.stdin)
    assert violations(other) == ""
    assert other["spec"]["securityContext"].pop("runAsNonRoot") is True and other == pod


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (0, ""),
        (403, 'pods is forbidden: User "me" cannot create resource "pods"'),
        (403, "violates PodSecurity: hostPath volumes"),
        (500, 'violates PodSecurity "restricted:latest": runAsNonRoot != true'),
    ],
)
def test_no_other_answer_changes_the_pod(code: int, why: str) -> None:
    adapter = Kubernetes("n", template=PodTemplate("ghcr.io/me/train:12"))
    command = adapter.submit(ResourceRequest(), job_name="tk-p", body="x", log_dir="")
    assert adapter.amended(command, Completed(code, b"", why.encode())) is None


def test_what_a_pod_can_not_be_asked_for() -> None:
    for request in (ResourceRequest(partition="gpu"), ResourceRequest(nodes=2)):
        with pytest.raises(UsageError):
            PodTemplate("x").held(request, job_name="j", command=["x"])
    with pytest.raises(UsageError, match="name of an image"):
        PodTemplate("a b").held(ResourceRequest(), job_name="j", command=["x"])
    with pytest.raises(UsageError, match="which pod"):
        Kubernetes("n").submit(ResourceRequest(), job_name="j", body="x", log_dir="")
    assert (quantity("800M"), quantity("1T"), quantity("512")) == ("800Mi", "1Ti", "512Mi")
    assert session_label("___") == "tk"


def test_a_sidecar_that_fails_does_not_end_a_program_that_runs() -> None:
    loop = {"waiting": {"reason": "CrashLoopBackOff"}}
    sidecar = {"name": "istio-proxy", "state": loop}
    main = {"name": "main", "state": {"running": {}}}
    both = {"phase": "Running", "containerStatuses": [main], "initContainerStatuses": [sidecar]}
    assert judge(_with(both)).state is RUNS
    waits = judge(_with({"phase": "Pending", "initContainerStatuses": [sidecar]}))
    assert (waits.state, waits.cause) == (WAITS, PendingCause.HELD)


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("context deadline exceeded", PendingCause.HELD),
        ("failed to reserve container name main_p_0: name is reserved for 1a2b", PendingCause.HELD),
        ("failed to sync configmap cache: timed out waiting for the condition", PendingCause.HELD),
        ('configmap "nope" not found', PendingCause.FIX),
    ],
)
def test_what_the_kubelet_heals_is_waited_for(message: str, cause: PendingCause) -> None:
    waiting = {"waiting": {"reason": "CreateContainerError", "message": message}}
    found = judge(_with({"containerStatuses": [{"name": "main", "state": waiting}]}))
    assert (found.state, found.cause) == (WAITS, cause)


def test_the_container_that_is_meant() -> None:
    """As kubectl finds it, and those that `kubectl debug` has added."""
    runs = {"state": {"running": {}}}
    status = {
        "phase": "Running",
        "containerStatuses": [{"name": "main", **runs}],
        "ephemeralContainerStatuses": [{"name": "debugger-x", **runs}],
    }
    marked = {"kubectl.kubernetes.io/default-container": "renamed-since"}
    metadata = {"name": "p", "annotations": marked}
    pod = {"metadata": metadata, "spec": {"containers": [{"name": "main"}]}, "status": status}
    assert judge(pod).state is RUNS
    assert judge(pod, "debugger-x").state is RUNS
    assert "has no container 'nothere'" in judge(pod, "nothere").why
