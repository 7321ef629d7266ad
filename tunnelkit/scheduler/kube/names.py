"""The names of a namespace's pods and of their owners, for command line completion."""

from __future__ import annotations

from collections.abc import Sequence

from tunnelkit.scheduler.kube.members import GROUPS, Pod, label, name_of, owner_of, text

_OVER = ("Succeeded", "Failed")


def usable(pods: Sequence[Pod]) -> tuple[list[str], list[str]]:
    """Return the pods that `tk up` may use, and TYPE/NAME of those that own them."""
    names: dict[str, None] = {}
    owners: dict[str, None] = {}
    for pod in pods:
        over = text(pod, "status", "phase") in _OVER or text(pod, "metadata", "deletionTimestamp")
        if name_of(pod) and not over:
            names[name_of(pod)] = None
            owners.update((one, None) for one in _owners(pod))
    return list(names), list(owners)


def _owners(pod: Pod) -> list[str]:
    found, known = [], set[str]()
    kind, owner = owner_of(pod)
    for group in GROUPS:
        if group.label:
            name = "" if group.label in known else label(pod, group.label)
            known.add(group.label)
        elif kind != group.owner:
            name = ""
        elif kind == "ReplicaSet":
            mark = label(pod, "pod-template-hash")
            name = owner.removesuffix(f"-{mark}") if mark and owner.endswith(f"-{mark}") else ""
        else:
            name = owner
        if name:
            found.append(f"{group.names[0]}/{name}")
    return found
