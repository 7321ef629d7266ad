"""The mirror as JSON objects: in `tk status` and as events of `tk sync --watch`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tunnelkit.mirror.api import MirrorStatus, PassRecord
from tunnelkit.mirror.mirror import Mirror
from tunnelkit.mirror.progress import ProgressInfo
from tunnelkit.model import MirrorSpec
from tunnelkit.session.runtime.status import MirrorInfo, MirrorStateInfo
from tunnelkit.text_format import human_bytes

if TYPE_CHECKING:
    from tunnelkit.session.runtime.control_answers import (
        MirrorBatchEvent,
        MirrorEvent,
        MirrorStateEvent,
        MirrorWarningEvent,
    )

#: A first copy that took longer is reported with its duration.
_WORTH_TELLING_S = 5.0

#: Sends one event to the commands that watch.
Tell = Callable[["MirrorEvent"], None]
#: Sends the progress of a big transfer to the commands that follow; {} when it is done.
Sending = Callable[["ProgressInfo | Mapping[str, object]"], None]


def describe(mirror: Mirror, node: str | None = None) -> MirrorInfo:
    """Return one mirror for `tk status --json`."""
    status, progress = mirror.status(), mirror.progress()
    return {
        "root": mirror.spec.name,
        "node": node,
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


def without_mirror(
    spec: MirrorSpec, status: MirrorStatus, node: str, *, local: str, remote: str
) -> MirrorInfo:
    """Return a root in a pod that has no mirror of its own, or none yet."""
    return {
        "root": spec.name,
        "node": node,
        **_state(status),
        "local": local,
        "remote": remote,
        "watching": False,
        "warnings": [],
        "progress": None,
    }


def state_event(root: str, status: MirrorStatus, node: str | None = None) -> MirrorStateEvent:
    """Return the event of a mirror's new state."""
    return {"event": "state", "root": root, "node": node, "time": time.time(), **_state(status)}


def batch_event(root: str, batch: PassRecord, node: str | None = None) -> MirrorBatchEvent:
    """Return the event of a pass that changed something on the cluster."""
    return {
        "event": "batch",
        "root": root,
        "node": node,
        "time": batch.at,
        "files": batch.files,
        "bytes": batch.bytes,
        "deleted": batch.deleted,
        "duration_s": batch.duration_s,
        "paths": list(batch.paths),
    }


def first_copy(status: MirrorStatus, duration_s: float) -> str:
    """Return the message for the user when the first copy is done."""
    took = f" in {duration_s:.0f} s" if duration_s >= _WORTH_TELLING_S else ""
    return f"{status.files} files ({human_bytes(status.bytes)}){took}"


def warning_event(text: str) -> MirrorWarningEvent:
    """Return the event of a warning before something big is sent."""
    return {"event": "warning", "time": time.time(), "text": text}
