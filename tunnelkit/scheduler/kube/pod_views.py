"""Pods and their events as evidence for `tk why`. Pure; nothing in it is believed."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from urllib.parse import quote

from tunnelkit.diagnosis.pods import PodView
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import Command, Where
from tunnelkit.scheduler.kube.members import (
    Choice,
    Pod,
    field,
    name_of,
    owner_of,
    text,
)
from tunnelkit.scheduler.kube.words import judge, line, refused

_MOST_EVENTS = 3
_MOST_BYTES = 8 << 20
#: Those whose pods are made by further objects, in whose names theirs comes first.
_BY_OTHERS = ("jobset", "trainjob", "pytorchjob", "leaderworkerset")
#: What a Deployment adds to its name for that of a ReplicaSet.
_HASH = re.compile(r"-[b-df-hj-np-tv-xz2-9]{1,10}")


def pod_views(pods: Sequence[Pod], container: str | None) -> list[PodView]:
    """Return the pods as evidence, without events."""
    found = []
    for pod in pods:
        state = judge(pod, container)
        found.append(PodView(name_of(pod), state.code, state.native, state.why))
    return found


def ask_events(namespace: str, pod: Pod) -> Command:
    """Return the request for a pod's events."""
    selector = quote(f"involvedObject.uid={text(pod, 'metadata', 'uid')}", safe="")
    path = f"/api/v1/namespaces/{namespace}/events?limit=100&fieldSelector={selector}"
    return Command(("GET", path), b"", Where.API)


def ask_refusals(namespace: str) -> Command:
    """Return the request for the events of controllers that could make no pod."""
    selector = quote("type=Warning,reason=FailedCreate", safe="")
    path = f"/api/v1/namespaces/{namespace}/events?limit=500&fieldSelector={selector}"
    return Command(("GET", path), b"", Where.API)


def parse_refusals(done: Completed, choice: Choice, pods: Sequence[Pod]) -> list[str]:
    """Return the newest of those events of the object, or of what it has made, each in a line.

    pods: those that it has; what was refused before the newest of them was made is over."""
    newest = max((text(pod, "metadata", "creationTimestamp") for pod in pods), default="")
    owners = {owner_of(pod) for pod in pods}
    found = []
    for event in _warnings(done):
        kind, name = (text(event, "involvedObject", key) for key in ("kind", "name"))
        is_its = name == choice.name or (kind, name) in owners or _may_have_made(choice, kind, name)
        if not owners and choice.group is not None and choice.group.names[0] in _BY_OTHERS:
            is_its = is_its or name.startswith(f"{choice.name}-")
        if text(event, "reason") == "FailedCreate" and is_its and _time_of(event) >= newest:
            why = refused(text(event, "message"))
            found.append(f"{line(kind)} {line(name)} can make no pod: {why}")
    return found[-_MOST_EVENTS:]


def _may_have_made(choice: Choice, kind: str, name: str) -> bool:
    """Return True for a ReplicaSet of a Deployment: `train-eval-7c` is none of `train`."""
    of_deployment = choice.group is not None and choice.group.owner == "ReplicaSet"
    if not of_deployment or kind != "ReplicaSet" or not name.startswith(choice.name):
        return False
    return _HASH.fullmatch(name[len(choice.name) :]) is not None


def _time_of(event: object) -> str:
    return text(event, "lastTimestamp") or text(event, "eventTime")


def parse_events(done: Completed) -> list[str]:
    """Return the newest warnings, each in a line; none if the answer can't be read."""
    return [_words(one) for one in _warnings(done)[-_MOST_EVENTS:]]


def _warnings(done: Completed) -> list[dict[str, object]]:
    """Return the warnings in the answer, the newest last."""
    try:
        listed = json.loads(done.stdout[:_MOST_BYTES]) if done.exit_code == 0 else None
    except (ValueError, RecursionError):
        listed = None
    items = field(listed, "items")
    found = [
        one
        for one in (items[:1000] if isinstance(items, list) else ())
        if isinstance(one, dict) and text(one, "type") == "Warning"
    ]
    found.sort(key=_time_of)
    return found


def _words(event: object) -> str:
    count = field(event, "count")
    times = f" ({count} times)" if isinstance(count, int) and count > 1 else ""
    return f"{line(text(event, 'reason'))}: {line(text(event, 'message'))}{times}"
