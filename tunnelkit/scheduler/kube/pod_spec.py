"""The pod that tk makes: one that namespaces with restricted pod security take.

Only that it may not run as root is said where the namespace asks for it: many images do."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from tunnelkit.errors import UsageError
from tunnelkit.model import ResourceRequest
from tunnelkit.scheduler.kube.object_kinds import JOB, POD, ObjectKind

SESSION_LABEL = "tunnelkit.dev/session"
#: Annotation of each pod: the TYPE/NAME of the object that tk made for it.
MADE = "tunnelkit.dev/made"
#: Kueue starts what has it once there is room in that queue.
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
GPU = "nvidia.com/gpu"
_RESOURCE = re.compile(r"[A-Za-z0-9./-]{1,120}")
_QUEUE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_IMAGE = re.compile(r"[A-Za-z0-9._/:@-]{1,255}")
_MEM = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMGT]?)(i?)B?", re.IGNORECASE)
#: tk's own place in the pod: its files, HOME and the mirror.
PLACE = "/tk"
_END_S = 30


@dataclass(frozen=True)
class PodTemplate:
    """The settings for tk's own pods. gpu_resource: its name in requests. queue: of Kueue, which
    starts a Job's pod once there is room; None: a pod alone."""

    image: str
    gpu_resource: str = GPU
    container: str = "main"
    queue: str | None = None

    @property
    def kind(self) -> ObjectKind:
        """The kind of object that is made."""
        return POD if self.queue is None else JOB

    @property
    def pods(self) -> int:
        """The number of pods that it asks for."""
        return 1

    def path(self, namespace: str) -> str:
        """Return the path of such objects in the API."""
        return self.kind.path(namespace)

    def held(self, request: ResourceRequest, *, job_name: str, command: Sequence[str]) -> bytes:
        """Return the object as JSON. Raises UsageError for what the API can't take."""
        _check(request, self)
        ours = new_metadata(job_name, self.queue)
        spec = _pod_spec(request, self, command)
        about: dict[str, object] = {"name": ours.name, "labels": ours.labels}
        made: dict[str, object] = {"apiVersion": "v1", "kind": "Pod", "metadata": about}
        if self.queue is None:
            return json.dumps({**made, "spec": spec}).encode()
        pod = {"labels": ours.of_pods, "annotations": {MADE: f"job/{ours.name}"}}
        template = {"metadata": pod, "spec": spec}
        # Kueue ends the suspension. A pod that ends is not replaced: what ran in it is gone.
        job = {"suspend": True, "backoffLimit": 0, "template": template}
        return json.dumps({**made, "apiVersion": "batch/v1", "kind": "Job", "spec": job}).encode()


@dataclass(frozen=True)
class NewMetadata:
    """The name of an object that tk makes, its labels, and those of its pods."""

    name: str
    labels: dict[str, str]
    of_pods: dict[str, str]


def new_metadata(job_name: str, queue: str | None) -> NewMetadata:
    """Return name and labels. Raises UsageError if `queue` can't be a queue's name.

    Names are unique: a second answer to one request can't make a second object."""
    if queue is not None and not _QUEUE.fullmatch(queue):
        raise UsageError(
            f"{queue!r} is not the name of a queue",
            hint="`kubectl get localqueues` lists Kueue's queues",
        )
    label = session_label(job_name)
    of_pods = {SESSION_LABEL: label}
    labels = of_pods if queue is None else {**of_pods, QUEUE_LABEL: queue}
    return NewMetadata(f"{label}-{secrets.token_hex(3)}", labels, of_pods)


def without_root(pod: bytes) -> bytes:
    """Return the pod, which may not run as root."""
    made = json.loads(pod)
    made["spec"]["securityContext"]["runAsNonRoot"] = True
    return json.dumps(made).encode()


def session_label(job_name: str) -> str:
    """Return the label's value for a job name: as a name of the API may be."""
    return re.sub(r"[^a-z0-9-]+", "-", job_name.lower()).strip("-")[:50] or "tk"


def own_variables() -> list[object]:
    """Return tk's variables of a container: its place, and the pod's name; a host name is shorter,
    or another."""
    named = {"fieldRef": {"fieldPath": "metadata.name"}}
    return [
        {"name": "TK_DIR", "value": f"{PLACE}/agent"},
        {"name": "TK_NODE", "valueFrom": named},
    ]


def quantity(mem: str) -> str:
    """Return memory as the API writes it: 16G, as a scheduler means it, is 16Gi."""
    found = _MEM.fullmatch(mem.strip())
    if found is None:
        raise UsageError(f"{mem!r} is no amount of memory", hint="write it as 64G")
    unit = found[2].upper() or "M"
    return f"{found[1]}{unit}i"


def _pod_spec(
    request: ResourceRequest, template: PodTemplate, command: Sequence[str]
) -> dict[str, object]:
    container = {
        "name": template.container,
        "image": template.image,
        "command": list(command),
        "workingDir": PLACE,
        "env": [*own_variables(), {"name": "HOME", "value": PLACE}],
        "resources": _resources(request, template),
        "volumeMounts": [
            {"name": "tk", "mountPath": PLACE},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - in the pod
        ],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    spec: dict[str, object] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": _END_S,
        "automountServiceAccountToken": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        # The default /dev/shm of 64 MB is too small for workers of a DataLoader.
        "volumes": [
            {"name": "tk", "emptyDir": {}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
        ],
    }
    if request.time_limit_s is not None:
        spec["activeDeadlineSeconds"] = request.time_limit_s
    if request.node is not None:
        spec["nodeSelector"] = {"kubernetes.io/hostname": request.node}
    return spec


def _resources(request: ResourceRequest, template: PodTemplate) -> dict[str, dict[str, str]]:
    wanted: dict[str, str] = {}
    if request.cpus is not None:
        wanted["cpu"] = str(request.cpus)
    if request.mem is not None:
        wanted["memory"] = quantity(request.mem)
    if request.gpus:
        wanted[template.gpu_resource] = str(request.gpus)
    return {"requests": wanted, "limits": wanted} if wanted else {}


_NOT_HERE = {
    "partition": "nodeSelector and queues are the cluster's",
    "account": "a namespace has no accounts",
    "qos": "a namespace has no such thing",
    "reservation": "a namespace has no such thing",
    "constraint": "node features are labels there",
}


def _check(request: ResourceRequest, template: PodTemplate) -> None:
    if not _IMAGE.fullmatch(template.image):
        raise UsageError(
            f"{template.image!r} is not the name of an image", hint="such as ghcr.io/me/train:12"
        )
    if not _RESOURCE.fullmatch(template.gpu_resource):
        raise UsageError(f"{template.gpu_resource!r} is not a resource", hint=f"such as {GPU}")
    for key, why in _NOT_HERE.items():
        if getattr(request, key) is not None:
            raise UsageError(f"a pod can't be asked for by {key}", cause=why, hint="leave it out")
    if request.nodes != 1:
        raise UsageError("tk makes one pod", hint="make the others yourself: tk up TYPE/NAME")
    if request.requeue or request.exclusive or request.extra:
        raise UsageError(
            "a pod can't be asked for with requeue, exclusive or extra options",
            hint="leave them out",
        )
