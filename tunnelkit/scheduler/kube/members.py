"""The pods that belong together: by their labels or their owner, in the order of their ranks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from tunnelkit.errors import UsageError

Pod = Mapping[str, object]

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_SELECTOR = re.compile(r"[A-Za-z0-9_./,=!() -]{1,400}")
_BATCH = "batch.kubernetes.io/"
_KUBEFLOW = "training.kubeflow.org/"
_JOBSET = "jobset.sigs.k8s.io/"
_LWS = "leaderworkerset.sigs.k8s.io/"
_VOLCANO = "volcano.sh/"


def field(found: object, *keys: str) -> object:
    """Return a field of nested objects; None if one of them is missing or none."""
    for key in keys:
        if not isinstance(found, Mapping):
            return None
        found = found.get(key)
    return found


def text(found: object, *keys: str) -> str:
    """Return a field that is a string; "" if it is none."""
    value = field(found, *keys)
    return value if isinstance(value, str) else ""


def name_of(pod: Pod) -> str:
    """Return the pod's name; "" if it has none that can be one."""
    name = text(pod, "metadata", "name")
    return name if _NAME.fullmatch(name) else ""


def label(pod: Pod, key: str) -> str:
    """Return a label's value; "" without it."""
    return text(pod, "metadata", "labels", key)


def _number(pod: Pod, *keys: str) -> int:
    """Return the first of these labels or annotations as a number; a large one if there is none."""
    for key in keys:
        # Before 1.28 a Job's index is an annotation alone.
        value = label(pod, key) or text(pod, "metadata", "annotations", key)
        if value.isdecimal() and len(value) < 9:
            return int(value)
    return 1 << 30


def _ordinal(pod: Pod) -> int:
    found = re.search(r"-([0-9]{1,8})$", name_of(pod))
    return int(found[1]) if found else 1 << 30


@dataclass(frozen=True)
class PodGroup:
    """One kind of owner.

    names: as the user may write it. label: has the owner's name, "" if only its pods name it.
    owner: the kind in `ownerReferences`, for those without a label. order: by rank. helpers: its
    JobSet's jobs that only prepare something."""

    names: tuple[str, ...]
    label: str
    owner: str
    order: Callable[[Pod], tuple[int, ...]]
    helpers: tuple[str, ...] = ()


def _by_role(pod: Pod) -> tuple[int, ...]:
    roles = ("master", "launcher", "chief", "worker")
    role = (label(pod, f"{_KUBEFLOW}replica-type") or label(pod, f"{_KUBEFLOW}job-role")).lower()
    index = _number(pod, f"{_KUBEFLOW}replica-index")
    return roles.index(role) if role in roles else len(roles), index


GROUPS = (
    PodGroup(
        ("statefulset", "sts"),
        "",
        "StatefulSet",
        lambda pod: (min(_number(pod, "apps.kubernetes.io/pod-index"), _ordinal(pod)),),
    ),
    PodGroup(("deployment", "deploy"), "", "ReplicaSet", lambda pod: (0,)),
    PodGroup(
        ("job",),
        "job-name",  # which every release sets; those before 1.27 have no other
        "",
        lambda pod: (_number(pod, f"{_BATCH}job-completion-index"),),
    ),
    PodGroup(
        ("jobset",),
        f"{_JOBSET}jobset-name",
        "",
        lambda pod: (
            _number(pod, f"{_JOBSET}job-global-index", f"{_JOBSET}job-index"),
            _number(pod, f"{_BATCH}job-completion-index"),
        ),
    ),
    PodGroup(
        ("trainjob",),
        f"{_JOBSET}jobset-name",
        "",
        lambda pod: (_number(pod, f"{_BATCH}job-completion-index"),),
        helpers=("dataset-initializer", "model-initializer"),
    ),
    PodGroup(("pytorchjob", "mpijob"), f"{_KUBEFLOW}job-name", "", _by_role),
    PodGroup(
        ("leaderworkerset", "lws"),
        f"{_LWS}name",
        "",
        lambda pod: (_number(pod, f"{_LWS}group-index"), _number(pod, f"{_LWS}worker-index")),
    ),
    PodGroup(
        ("vcjob", "volcanojob"),
        f"{_VOLCANO}job-name",
        "",
        lambda pod: (_number(pod, f"{_VOLCANO}task-index"),),
    ),
    PodGroup(
        ("raycluster",),
        "ray.io/cluster",
        "",
        lambda pod: (0 if label(pod, "ray.io/node-type") == "head" else 1,),
    ),
)


@dataclass(frozen=True)
class Choice:
    """The pods that the user named: one pod, an owner's, or those of a label selector.

    written: as job id and in messages."""

    written: str
    pod: str = ""
    group: PodGroup | None = None
    name: str = ""
    selector: str = ""

    def path(self, namespace: str) -> str:
        """Return the path of the request that finds them, all in one answer."""
        pods = f"/api/v1/namespaces/{namespace}/pods"
        if self.pod:
            return f"{pods}/{self.pod}"
        wanted = self.selector
        if self.group is not None and self.group.label:
            wanted = f"{self.group.label}={self.name}"
        return f"{pods}?labelSelector={quote(wanted, safe='')}" if wanted else pods

    def members(self, pods: Sequence[Pod]) -> list[Pod]:
        """Return those of `pods` that belong to it, in the order of their ranks.

        Of two pods with one index the newest counts; pods that are going away come last."""
        kept = [pod for pod in pods if name_of(pod) and self._has(pod)]
        order = self.group.order if self.group is not None else lambda pod: (0,)
        kept.sort(key=lambda pod: (_is_going(pod), order(pod), name_of(pod)))
        return kept

    def _has(self, pod: Pod) -> bool:
        if self.pod:
            return name_of(pod) == self.pod
        if self.group is None:
            return True
        if self.group.label:
            return label(pod, f"{_JOBSET}replicatedjob-name") not in self.group.helpers
        owner = owner_of(pod)
        if self.group.owner == "ReplicaSet":
            mark = label(pod, "pod-template-hash")
            return bool(mark) and owner == ("ReplicaSet", f"{self.name}-{mark}")
        return owner == (self.group.owner, self.name)


def owner_of(pod: Pod) -> tuple[str, str]:
    """Return kind and name of the pod's first owner; empty without one."""
    owners = field(pod, "metadata", "ownerReferences")
    first = owners[0] if isinstance(owners, list) and owners else None
    return text(first, "kind"), text(first, "name")


def _is_going(pod: Pod) -> bool:
    return bool(text(pod, "metadata", "deletionTimestamp"))


def parse_choice(written: str) -> Choice:
    """Read POD, pod/POD, TYPE/NAME or `-l SELECTOR`. Raises UsageError."""
    if written.startswith("-l"):
        selector = written[2:].strip()
        if not _SELECTOR.fullmatch(selector):
            raise UsageError(
                f"{selector!r} is not a label selector", hint="write it as kubectl does: app=train"
            )
        return Choice(f"-l {selector}", selector=selector)
    kind, slash, name = written.partition("/")
    if not slash:
        kind, name = "pod", written
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not the name of a pod",
            hint="names have small letters, digits, '-' and '.'; see `kubectl get pods`",
        )
    kind = kind.lower().partition(".")[0]
    if kind in ("pod", "pods", "po"):
        return Choice(f"pod/{name}", pod=name)
    for group in GROUPS:
        if kind in group.names or kind.removesuffix("s") in group.names:
            return Choice(f"{group.names[0]}/{name}", group=group, name=name)
    known = ", ".join(group.names[0] for group in GROUPS)
    raise UsageError(
        f"tk does not know what {kind!r} has for pods",
        cause=f"it knows pod, {known}",
        hint="name its pods by a label: tk up -l KEY=VALUE",
    )
