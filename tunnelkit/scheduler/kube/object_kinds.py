"""The kinds of objects that tk can make from a user's manifest, and where they describe their pods.

Groups, plurals and fields are those of the API references of Kubernetes, JobSet, Kubeflow's
training operator, LeaderWorkerSet and Volcano.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tunnelkit.scheduler.kube.members import field

#: A template of pods, to be changed in place, and how many pods are made of it.
Templates = Iterator[tuple[dict[str, object], int]]


@dataclass(frozen=True)
class ObjectKind:
    """One kind. choice: as TYPE/NAME has it. version: used where no manifest says another."""

    kind: str
    choice: str
    group: str
    version: str
    plural: str
    templates: Callable[[object], Templates]

    def path(self, namespace: str, version: str = "") -> str:
        """Return the path of its objects in the API."""
        api = f"/apis/{self.group}/{version or self.version}" if self.group else "/api/v1"
        return f"{api}/namespaces/{namespace}/{self.plural}"


def _itself(found: object) -> Templates:
    if isinstance(found, dict):
        yield found, 1


def _replicated(found: object) -> Templates:
    yield from _one(field(found, "spec", "template"), _count(found, "spec", "replicas"))


def _job(found: object) -> Templates:
    at_once = _count(found, "spec", "parallelism")
    in_all = _count(found, "spec", "completions", default=at_once)
    yield from _one(field(found, "spec", "template"), min(at_once, in_all))


def _jobset(found: object) -> Templates:
    for job in _items(field(found, "spec", "replicatedJobs")):
        for template, count in _job(field(job, "template")):
            yield template, count * _count(job, "replicas")


def _kubeflow(found: object) -> Templates:
    roles = field(found, "spec", "pytorchReplicaSpecs")
    for role in roles.values() if isinstance(roles, dict) else ():
        yield from _one(field(role, "template"), _count(role, "replicas"))


def _leader_worker(found: object) -> Templates:
    groups = _count(found, "spec", "replicas")
    both = field(found, "spec", "leaderWorkerTemplate")
    size, leader = _count(both, "size"), field(both, "leaderTemplate")
    if isinstance(leader, dict):
        yield leader, groups
        size -= 1
    yield from _one(field(both, "workerTemplate"), groups * size)


def _volcano(found: object) -> Templates:
    for task in _items(field(found, "spec", "tasks")):
        yield from _one(field(task, "template"), _count(task, "replicas"))


def _one(template: object, count: int) -> Templates:
    if isinstance(template, dict):
        yield template, count


def _items(found: object) -> list[object]:
    return found if isinstance(found, list) else []


def _count(found: object, *keys: str, default: int = 1) -> int:
    number = field(found, *keys)
    is_number = isinstance(number, int) and not isinstance(number, bool)
    return number if is_number and isinstance(number, int) and number >= 0 else default


POD = ObjectKind("Pod", "pod", "", "v1", "pods", _itself)
JOB = ObjectKind("Job", "job", "batch", "v1", "jobs", _job)
KINDS = (
    POD,
    JOB,
    ObjectKind("StatefulSet", "statefulset", "apps", "v1", "statefulsets", _replicated),
    ObjectKind("Deployment", "deployment", "apps", "v1", "deployments", _replicated),
    ObjectKind("JobSet", "jobset", "jobset.x-k8s.io", "v1alpha2", "jobsets", _jobset),
    ObjectKind("PyTorchJob", "pytorchjob", "kubeflow.org", "v1", "pytorchjobs", _kubeflow),
    ObjectKind(
        "LeaderWorkerSet",
        "leaderworkerset",
        "leaderworkerset.x-k8s.io",
        "v1",
        "leaderworkersets",
        _leader_worker,
    ),
    ObjectKind("Job", "vcjob", "batch.volcano.sh", "v1alpha1", "jobs", _volcano),
)

#: Conditions by which controllers say that an object has ended, and Volcano's phases.
_ENDS = ("Complete", "Completed", "Succeeded", "Failed")
_LAST_PHASES = ("Completed", "Failed", "Aborted", "Terminated")


def how_ended(found: object) -> str:
    """Return the controller's condition that ends the object; "" as long as it may have pods."""
    conditions = field(found, "status", "conditions")
    for one in conditions[:64] if isinstance(conditions, list) else ():
        kind = field(one, "type")
        if isinstance(kind, str) and kind in _ENDS and field(one, "status") == "True":
            return kind
    phase = field(found, "status", "state", "phase")
    return phase if isinstance(phase, str) and phase in _LAST_PHASES else ""


def kind_of(choice: str) -> ObjectKind:
    """Return the kind for the word before the slash in TYPE/NAME; a pod for one that has none."""
    return next((one for one in KINDS if one.choice == choice), POD)
