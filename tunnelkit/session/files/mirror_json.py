"""The mirror as JSON objects: in `tk status` and as events of `tk sync --watch`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Literal, TypedDict

from tunnelkit.mirror.api import MirrorStatus
from tunnelkit.mirror.mirror import Mirror
from tunnelkit.mirror.progress import PassRecord, PassRecordInfo
from tunnelkit.session.runtime.status import MirrorInfo, MirrorStateInfo
from tunnelkit.text_format import human_bytes

#: A first copy that took longer is reported with its duration.
_WORTH_TELLING_S = 5.0

#: Sends one event to the commands that watch.
Tell = Callable[[Mapping[str, object]], None]


class StateEvent(MirrorStateInfo):
    """A mirror's new state. root: its name. time: Unix time."""

    event: Literal["state"]
    root: str
    time: float


class BatchEvent(PassRecordInfo):
    """A pass that changed something on the cluster. root: the mirror's name."""

    event: Literal["batch"]
    root: str


class WarningEvent(TypedDict):
    """A warning before something big is sent. time: Unix time."""

    event: Literal["warning"]
    time: float
    text: str


def describe(mirror: Mirror) -> MirrorInfo:
    """Return one mirror for `tk status --json`."""
    status, progress = mirror.status(), mirror.progress()
    return {
        "root": mirror.spec.name,
        **_state(status),
        "local": mirror.local_root,
        "remote": mirror.remote_root,
        "watching": status.watching,
        "warnings": [*mirror.sizes.current(), *mirror.links.current()],
        "progress": progress.to_json() if progress is not None else None,
    }


def _state(status: MirrorStatus) -> MirrorStateInfo:
    return {
        "state": status.state.value,
        "text": status.describe(),
        "since": status.since,
        "reason": status.reason,
        "files": status.files,
        "bytes": status.bytes,
        "pending": status.pending,
        "pending_paths": list(status.pending_paths),
        "conflicts": list(status.conflicts),
    }


def state_event(root: str, status: MirrorStatus) -> StateEvent:
    """Return the event of a mirror's new state."""
    return {"event": "state", "root": root, "time": time.time(), **_state(status)}


def batch_event(root: str, batch: PassRecord) -> BatchEvent:
    """Return the event of a pass that changed something on the cluster."""
    return {"event": "batch", "root": root, **batch.to_json()}


def first_copy(status: MirrorStatus, duration_s: float) -> str:
    """Return the message for the user when the first copy is done."""
    took = f" in {duration_s:.0f} s" if duration_s >= _WORTH_TELLING_S else ""
    return f"{status.files} files ({human_bytes(status.bytes)}){took}"


def warning_event(text: str) -> WarningEvent:
    """Return the event of a warning before something big is sent."""
    return {"event": "warning", "time": time.time(), "text": text}
