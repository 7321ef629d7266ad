"""Objects that make pods: a Job, also suspended as Kueue does it, and a StatefulSet."""

from __future__ import annotations

import copy
import secrets
import uuid
from collections.abc import Mapping, Sequence

from tunnelkit.lab.kube.wire import Json

#: Resources of the API by their name, with the kind of one.
KINDS = {"jobs": "Job", "statefulsets": "StatefulSet"}


class Owner:
    """One object. `pods` are those that its controller makes."""

    def __init__(self, resource: str, given: Json) -> None:
        metadata = _of(given, "metadata")
        self.kind, self.resource = KINDS[resource], resource
        self.name = str(metadata.get("name"))
        self.json: Json = {**given, "metadata": {**metadata, "uid": str(uuid.uuid4())}}

    @property
    def spec(self) -> Json:
        """Its spec, to be changed in place."""
        return _of(self.json, "spec")

    @property
    def labels(self) -> Json:
        """Its labels."""
        return _of(_of(self.json, "metadata"), "labels")

    def pods(self) -> list[Json]:
        """Return the pods to make: none for a Job that is suspended."""
        is_job = self.kind == "Job"
        count = self.spec.get("parallelism" if is_job else "replicas", 1)
        if (is_job and self.spec.get("suspend")) or not isinstance(count, int):
            return []
        return [self._pod(number) for number in range(count)]

    def look(self, pods: Sequence[Json]) -> None:
        """Note the end of a Job with its pods, as its controller does: none is made again."""
        phases = [_of(pod, "status").get("phase") for pod in pods if owned_by(pod, self)]
        if self.kind != "Job" or not phases:
            return
        failed = "Failed" in phases
        if failed or set(phases) == {"Succeeded"}:
            ended = {"type": "Failed" if failed else "Complete", "status": "True"}
            _of(self.json, "status")["conditions"] = [ended]

    def _pod(self, number: int) -> Json:
        made = copy.deepcopy(_of(self.spec, "template"))
        metadata = _of(made, "metadata")
        if self.kind == "Job":
            mark = {
                "job-name": self.name,
                "batch.kubernetes.io/job-name": self.name,
                "batch.kubernetes.io/job-completion-index": str(number),
            }
            name = f"{self.name}-{number}-{secrets.token_hex(2)}"
        else:
            mark = {"apps.kubernetes.io/pod-index": str(number)}
            name = f"{self.name}-{number}"
        if self.spec.get("completionMode") == "Indexed":
            for one in _containers(made):
                index: Json = {"name": "JOB_COMPLETION_INDEX", "value": str(number)}
                one["env"] = [*_listed(one.get("env")), index]
        owner = {"kind": self.kind, "name": self.name}
        labels = {**_of(metadata, "labels"), **mark}
        made["metadata"] = {**metadata, "name": name, "labels": labels, "ownerReferences": [owner]}
        return made


def owned_by(pod: Mapping[str, object], owner: Owner) -> bool:
    """True if the pod belongs to that object."""
    metadata = pod.get("metadata")
    owners = metadata.get("ownerReferences") if isinstance(metadata, dict) else None
    return owners == [{"kind": owner.kind, "name": owner.name}]


def _containers(template: Json) -> list[Json]:
    return [
        one for one in _listed(_of(template, "spec").get("containers")) if isinstance(one, dict)
    ]


def _listed(found: object) -> list[object]:
    return found if isinstance(found, list) else []


def _of(parent: Json, key: str) -> Json:
    found = parent.setdefault(key, {})
    return found if isinstance(found, dict) else {}
