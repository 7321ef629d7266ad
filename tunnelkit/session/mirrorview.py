"""The mirror as commands see it: in `tk status` and as events of `tk sync --watch`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tunnelkit.mirror.base import MirrorStatus
from tunnelkit.mirror.mirror import Mirror
from tunnelkit.mirror.progress import Batch

#: Tells the commands that look on of one event.
Tell = Callable[[dict[str, Any]], None]


def describe(mirror: Mirror) -> dict[str, Any]:
    """The mirror's part of `tk status --json`."""
    status, progress = mirror.status(), mirror.progress()
    return {
        **_state(status),
        "local": mirror.local_root,
        "remote": mirror.remote_root,
        "watching": status.watching,
        "warnings": list(mirror.sizes.current()),
        "progress": progress.to_json() if progress is not None else None,
    }


def _state(status: MirrorStatus) -> dict[str, Any]:
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


def state_event(status: MirrorStatus) -> dict[str, Any]:
    """The mirror's state has changed."""
    return {"event": "state", "time": time.time(), **_state(status)}


def batch_event(batch: Batch) -> dict[str, Any]:
    """A pass has changed something on the cluster."""
    return {"event": "batch", **batch.to_json()}


def warning_event(text: str) -> dict[str, Any]:
    """Something big is about to be sent."""
    return {"event": "warning", "time": time.time(), "text": text}
