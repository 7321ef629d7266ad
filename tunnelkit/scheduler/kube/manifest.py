"""A user's manifest, made by tk: containers wait for the agent in place of their own command."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tunnelkit.errors import UsageError
from tunnelkit.model import ResourceRequest
from tunnelkit.scheduler.kube.members import field, text
from tunnelkit.scheduler.kube.object_kinds import KINDS, ObjectKind
from tunnelkit.scheduler.kube.pod_spec import MADE, PLACE, new_metadata, own_variables

_VERSION = re.compile(r"v[0-9]{1,3}((alpha|beta)[0-9]{1,3})?")
_NEEDS_SHELL = re.compile(r"[^\w\s./:=,@%+'\"-]|\n.*\S|^\w+=")
_VOLUME = "tunnelkit"
#: What would end or restart a container whose own command does not run, or whose program stands at
#: a breakpoint.
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle")
_CLAIMS_POLICY = "persistentVolumeClaimRetentionPolicy"
#: Metadata of one object, not of its copy.
_OF_ONE_OBJECT = (
    *("generateName", "uid", "resourceVersion", "creationTimestamp", "generation", "selfLink"),
    *("ownerReferences", "finalizers", "managedFields"),
    *("deletionTimestamp", "deletionGracePeriodSeconds"),
)
#: Labels by which controllers know their own pods, and adopt those that have no owner.
_BY_CONTROLLERS = (
    *("pod-template-hash", "controller-uid", "batch.kubernetes.io/controller-uid"),
    *("job-name", "batch.kubernetes.io/job-name", "batch.kubernetes.io/job-completion-index"),
    *("controller-revision-hash", "statefulset.kubernetes.io/pod-name"),
    "apps.kubernetes.io/pod-index",
)
#: Labels of operators begin so; a copied pod with them would count as a member of the original.
_BY_OPERATORS = (
    *("training.kubeflow.org/", "leaderworkerset.sigs.k8s.io/", "jobset.sigs.k8s.io/"),
    *("volcano.sh/", "ray.io/"),
)
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


@dataclass(frozen=True)
class Manifest:
    """One object that the user has written.

    written: the object, as JSON has it. version: of its API. container: as set; None for the one
    that kubectl takes. queue: of Kueue."""

    kind: ObjectKind
    version: str
    written: Mapping[str, object]
    container: str | None = None
    queue: str | None = None

    def path(self, namespace: str) -> str:
        """Return the path of such objects in the API. Raises UsageError for another namespace."""
        named = text(self.written, "metadata", "namespace")
        if named not in ("", namespace):
            raise UsageError(
                f"the manifest is for namespace {named}, this session for {namespace}",
                hint="set namespace under [cluster], or leave it out of the manifest",
            )
        return self.kind.path(namespace, self.version)

    @property
    def pods(self) -> int:
        """The number of pods that it asks for."""
        return sum(count for _, count in self.kind.templates(self.written))

    @property
    def own_command(self) -> list[str]:
        """The words of the first container's own command; empty if its image has it, to which
        `args` alone belong.

        Those of `sh -c "..."`, where nothing in it needs a shell."""
        for template, _ in self.kind.templates(self.written):
            found = _container(template, self.container)
            if not found.get("command"):
                return []
            parts = [found.get("command"), found.get("args")]
            words = [str(word) for part in parts if isinstance(part, list) for word in part]
            is_plain = len(words) == 3 and not _NEEDS_SHELL.search(words[2])
            if is_plain and re.fullmatch(r"(/\S*/)?(ba|da)?sh -l?e?c", " ".join(words[:2])):
                with suppress(ValueError):  # a quote that is not closed
                    return shlex.split(words[2])
            return words
        return []

    @property
    def _has_claims(self) -> bool:
        claims = field(self.written, "spec", "volumeClaimTemplates")
        return self.kind.kind == "StatefulSet" and isinstance(claims, list) and bool(claims)

    @property
    def note(self) -> str:
        """The end of the volume claims that are made for its pods; "" if there are none."""
        if not self._has_claims:
            return ""
        if text(self.written, "spec", _CLAIMS_POLICY, "whenDeleted") in ("", "Delete"):
            return (
                "`tk down` deletes the volume claims that are made for its pods; whenDeleted: "
                f"Retain under {_CLAIMS_POLICY} in the manifest keeps them"
            )
        return "the volume claims that are made for its pods stay after `tk down`"

    def held(self, request: ResourceRequest, *, job_name: str, command: Sequence[str]) -> bytes:
        """Return the object as JSON, with containers that run `command`. Raises UsageError.

        The manifest says what to ask for; of `request` nothing is used."""
        made = json.loads(json.dumps(self.written))
        made.pop("status", None)
        metadata = _within(made, "metadata")
        _detach(made, metadata)
        ours = new_metadata(job_name, self.queue)
        metadata["name"] = ours.name
        _within(metadata, "labels").update(ours.labels)
        if self._has_claims:
            # The controller makes them for this object alone, by its name.
            policy = _within(_within(made, "spec"), _CLAIMS_POLICY)
            policy["whenDeleted"] = policy.get("whenDeleted") or "Delete"
        for template, _ in self.kind.templates(made):
            _hold(template, self.container, command)
            about = _within(template, "metadata")
            _within(about, "labels").update(ours.of_pods)
            _within(about, "annotations")[MADE] = f"{self.kind.choice}/{ours.name}"
            if template is made:
                _within(template, "spec")["restartPolicy"] = "Never"
        return json.dumps(made).encode()


def parse_manifest(
    printed: str, *, name: str, container: str | None = None, queue: str | None = None
) -> Manifest:
    """Read the objects that kubectl prints as JSON, one after the other. Raises UsageError.

    name: of the file, for messages. container, queue: as set."""
    found = list(_objects(printed, name))
    read = [_known(each, container, queue) for each in found]
    manifests = [one for one in read if one is not None]
    if len(found) != 1 or not manifests:
        kinds = ", ".join(text(one, "kind") or "something without a kind" for one in found[:8])
        known = ", ".join(dict.fromkeys(kind.kind for kind in KINDS))
        raise UsageError(
            f"{name} must have one object that makes pods; it has {kinds or 'none'}",
            cause=f"tk can make {known}",
            hint="put the others into a file of their own, for `kubectl apply -f`",
        )
    manifest = manifests[0]
    if not manifest.pods:
        raise UsageError(f"{name} asks for no pod", hint="it needs a template, and a replica")
    for template, _ in manifest.kind.templates(manifest.written):
        _container(template, container)
    return manifest


def _objects(printed: str, name: str) -> list[Mapping[str, object]]:
    decoder, rest = json.JSONDecoder(), printed.strip()
    found: list[Mapping[str, object]] = []
    while rest:
        try:
            value, end = decoder.raw_decode(rest)
        except (ValueError, RecursionError):
            raise UsageError(
                f"{name} can't be read", hint="`kubectl apply --dry-run=client -f` checks it"
            ) from None
        rest = rest[end:].lstrip()
        items = field(value, "items") if text(value, "kind") == "List" else [value]
        found += [one for one in items if isinstance(one, dict)] if isinstance(items, list) else []
    return found


def _known(
    found: Mapping[str, object], container: str | None, queue: str | None
) -> Manifest | None:
    group, _, version = text(found, "apiVersion").rpartition("/")
    for kind in KINDS:
        if (kind.kind, kind.group) == (text(found, "kind"), group) and _VERSION.fullmatch(version):
            return Manifest(kind, version, found, container, queue)
    return None


def _hold(template: dict[str, object], name: str | None, command: Sequence[str]) -> None:
    """Have the template's container run `command`, with a place to write to."""
    container = _container(template, name)
    for key in ("args", *_PROBES):
        container.pop(key, None)
    container["command"] = list(command)
    kept = _but(_but(container.get("env"), "TK_DIR"), "TK_NODE")
    container["env"] = [*kept, *own_variables()]
    mount: object = {"name": _VOLUME, "mountPath": PLACE}
    container["volumeMounts"] = [*_but(container.get("volumeMounts"), _VOLUME), mount]
    spec = _within(template, "spec")
    volume: object = {"name": _VOLUME, "emptyDir": {}}
    spec["volumes"] = [*_but(spec.get("volumes"), _VOLUME), volume]


def _container(template: object, name: str | None) -> dict[str, object]:
    """Return the container to hold: by its name, by kubectl's annotation, or the first."""
    there = field(template, "spec", "containers")
    known = [one for one in there if isinstance(one, dict)] if isinstance(there, list) else []
    wanted = name or text(template, "metadata", "annotations", _DEFAULT_CONTAINER)
    for one in known:
        if not wanted or one.get("name") == wanted:
            return one
    names = ", ".join(str(one.get("name")) for one in known)
    raise UsageError(
        f"the manifest has no container {wanted}" if wanted else "the manifest has no container",
        cause=f"it has {names}" if names else None,
        hint="name one of them: --container NAME" if names else "each pod needs one",
    )


def _detach(made: dict[str, object], metadata: dict[str, object]) -> None:
    """Remove what `kubectl get -o yaml` adds, and what ties a copy to what was copied."""
    was_made = "uid" in metadata
    for key in _OF_ONE_OBJECT:
        metadata.pop(key, None)
    if not was_made:
        return
    spec = _within(made, "spec")
    about = field(spec, "template", "metadata")
    for one in (metadata, about):
        labels = field(one, "labels")
        if isinstance(labels, dict):
            for key in _BY_CONTROLLERS:
                labels.pop(key, None)
    if made.get("kind") == "Pod":
        labels = _within(metadata, "labels")
        for key in [one for one in labels if one.startswith(_BY_OPERATORS)]:
            del labels[key]
        spec.pop("nodeName", None)
        spec.pop("hostname", None)  # of a StatefulSet's pod: its peers would find two
    elif made.get("apiVersion") == "batch/v1":
        spec.pop("selector", None)
        spec.pop("manualSelector", None)


def _within(parent: dict[str, object], key: str) -> dict[str, object]:
    """Return the object at `key`, made if it is not there."""
    found = parent.get(key)
    made: dict[str, object] = found if isinstance(found, dict) else {}
    parent[key] = made
    return made


def _but(found: object, name: str) -> list[object]:
    listed = found if isinstance(found, list) else []
    return [one for one in listed if text(one, "name") != name]
