"""An owner's pods in time: which are gone and why, and that the job goes on in those after them."""

from __future__ import annotations

import json

import pytest

from tunnelkit.errors import SchedulerError
from tunnelkit.model import Completed, JobState, JobStatus
from tunnelkit.scheduler.kube.adapter import Kubernetes

Json = dict[str, object]
_UP: Json = {"running": {}}


def pod(
    name: str,
    uid: str,
    *,
    state: Json = _UP,
    last: Json | None = None,
    run: int = 0,
    **status: object,
) -> Json:
    """A StatefulSet's pod. run: of its container; last: how the one before ended."""
    one = {
        "name": "main",
        "state": state,
        "lastState": last or {},
        "containerID": f"c://{uid}-{run}",
    }
    owner = {"kind": "StatefulSet", "name": "w"}
    return {
        "metadata": {"name": name, "uid": uid, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": "Running", "containerStatuses": [one], **status},
    }


def going(one: Json, **condition: str) -> Json:
    metadata, status = one["metadata"], one["status"]
    assert isinstance(metadata, dict) and isinstance(status, dict)
    metadata["deletionTimestamp"] = "2026-11-26T20:00:00Z"
    if condition:
        status["conditions"] = [{"type": "DisruptionTarget", "status": "True", **condition}]
    return one


class Cluster:
    """Asks one adapter again and again about statefulset/w."""

    def __init__(self) -> None:
        self._adapter = Kubernetes("n")

    def has(self, *pods: Json, job_id: str = "statefulset/w", more: str = "") -> JobStatus:
        """Return what it says of these pods. more: the mark of a list that goes on."""
        answer = {"metadata": {"continue": more}, "items": pods}
        done = Completed(0, json.dumps(answer).encode(), b"")
        return self._adapter.parse_query(done, [job_id])[job_id]


FAILED = {"containerStatuses": [], "phase": "Failed"}
OOM: Json = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}


@pytest.mark.parametrize(
    ("after", "why"),
    [
        ([], "it was deleted"),
        ([pod("w-0", "b")], "it was deleted, and another pod has its name now"),
        ([going(pod("w-0", "a"))], "it is being deleted"),
        ([going(pod("w-0", "a", reason="NodeLost"))], "its node was lost"),
        ([going(pod("w-0", "a"), reason="EvictionByEvictionAPI")],
         "evicted: its node is being drained"),
        ([pod("w-0", "a", reason="Evicted", message="low on memory.", **FAILED)],
         "Evicted, by its node: low on memory."),
        ([pod("w-0", "a", reason="NodeLost", **FAILED)], "NodeLost, its node was lost"),
        ([pod("w-0", "a", state=OOM)],
         "its container was restarted (killed for memory (OOMKilled): the container's limit was "
         "reached)"),
        ([pod("w-0", "a", run=1)], "its container was restarted"),
    ],
)  # fmt: skip
def test_why_what_ran_in_a_pod_is_gone(after: list[Json], why: str) -> None:
    cluster = Cluster()
    (instance,) = cluster.has(pod("w-0", "a")).instances
    status = cluster.has(*after)
    assert status.state is not JobState.ENDED
    (lost,) = status.lost
    assert (lost.name, lost.instance, lost.why, lost.returns) == ("w-0", instance, why, True)
    assert cluster.has(*after).lost == (lost,), "it is said once"


def test_the_job_waits_for_the_pod_in_its_place_and_says_for_what() -> None:
    cluster = Cluster()
    first = cluster.has(pod("w-0", "a"), pod("w-1", "b"))
    assert first.nodes == ("w-0", "w-1") and first.lost == ()
    assert cluster.has().native_state == "Replacing"
    pending = pod("w-0", "c", state={}, phase="Pending", conditions=[
        {"type": "PodScheduled", "status": "True"}])  # fmt: skip
    status = cluster.has(pending)
    assert status.state is JobState.PENDING and "its node fetches" in (status.explanation or "")
    # The other pod runs meanwhile.
    status = cluster.has(pending, pod("w-1", "d"))
    assert (status.state, status.nodes) == (JobState.RUNNING, ("w-1",))
    assert "w-0: its node" not in str(status.lost) and "fetches" in (status.explanation or "")
    status = cluster.has(pod("w-0", "c"), pod("w-1", "d"))
    assert status.nodes == ("w-0", "w-1") and status.explanation is None
    assert set(status.instances).isdisjoint(first.instances)
    assert [one.name for one in status.lost] == ["w-0", "w-1"]


def test_a_pod_that_ended_well_does_not_return() -> None:
    cluster = Cluster()
    cluster.has(pod("w-0", "a"))
    ended: Json = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    status = cluster.has(pod("w-0", "a", state=ended, phase="Succeeded"))
    assert status.state is JobState.ENDED and not status.lost[0].returns


def test_a_pod_is_found_among_many_of_others() -> None:
    others = [{**pod(f"a-{at}", f"o{at}"), "metadata": {"name": f"a-{at}"}} for at in range(1500)]
    cluster = Cluster()
    for _ in range(2):
        status = cluster.has(*others, pod("w-0", "a"))
        assert (status.state, status.nodes, status.lost) == (JobState.RUNNING, ("w-0",), ())


def test_a_pod_that_is_not_in_a_part_of_the_list_is_not_deleted() -> None:
    cluster = Cluster()
    cluster.has(pod("w-0", "a"), pod("w-1", "b"))
    with pytest.raises(SchedulerError, match="a part of the list") as unknown:
        cluster.has(pod("w-0", "a"), more="w-0")
    assert unknown.value.transient and unknown.value.hint
    assert cluster.has(pod("w-0", "a"), pod("w-1", "b")).lost == ()


def test_of_more_pods_than_are_used_none_is_lost_by_a_new_one() -> None:
    cluster = Cluster()
    pods = [pod(f"w-{at}", str(at)) for at in range(1, 600)]
    assert len(cluster.has(*pods).nodes) == 512
    status = cluster.has(pod("w-0", "new"), *pods)
    assert (status.nodes[0], len(status.nodes), status.lost) == ("w-0", 512, ())


def test_of_many_that_were_lost_the_newest_are_kept() -> None:
    cluster = Cluster()
    for number in range(100):
        status = cluster.has(pod("w-0", str(number)))
    assert len(status.lost) == 64 and status.lost[-1].instance == "98 c://98-0"


def test_a_pod_that_was_named_itself_ends_and_says_why() -> None:
    cluster = Cluster()
    assert cluster.has(pod("w-0", "a"), job_id="pod/w-0").state is JobState.RUNNING
    status = cluster.has(pod("w-0", "a", run=1, last=OOM), job_id="pod/w-0")
    assert (status.state, status.lost) == (JobState.ENDED, ())
    assert "restarted (killed for memory (OOMKilled)" in (status.explanation or "")


def test_a_program_that_ended_well_beside_a_sidecar_has_no_successor() -> None:
    cluster = Cluster()
    cluster.has(pod("w-0", "u1"))
    done: Json = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    over = pod("w-0", "u1", state=done)
    spec = over["spec"]
    assert isinstance(spec, dict)
    spec["restartPolicy"] = "Never"
    (lost,) = cluster.has(over).lost
    assert (lost.returns, lost.why) == (False, "it ended with exit code 0")
