"""Mirror calls of commands besides the barrier: settle conflicts, fetch outputs."""

from __future__ import annotations

import time
from typing import Any

from tunnelkit.mirror.api import SyncReport
from tunnelkit.mirror.progress import Progress
from tunnelkit.session.files.mirror_set import MirrorSet
from tunnelkit.session.runtime.control_server import ControlConnection

_PROGRESS_EVERY_S = 0.2


def report_json(report: SyncReport) -> dict[str, Any]:
    """Return a report as `tk sync --json` prints it."""
    return {
        "sent": report.sent,
        "sent_bytes": report.sent_bytes,
        "deleted": report.deleted,
        "kept": list(report.kept),
        "replaced": list(report.replaced),
        "replaced_dir": report.replaced_dir,
        "proven": report.proven,
        "duration_s": report.duration_s,
    }


async def resolve(mirrors: MirrorSet, params: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """Settle conflicts at absolute local paths; `theirs`: the cluster's version wins."""
    report = await mirrors.resolve(
        [str(path) for path in params["files"]],
        theirs=bool(params.get("theirs")),
        timeout_s=timeout_s,
    )
    return {**report_json(report), "conflicts": mirrors.conflicts()}


async def pull(
    mirrors: MirrorSet, params: dict[str, Any], connection: ControlConnection
) -> dict[str, Any]:
    """Fetch outputs; the command gets the progress by `pull` notices."""
    last = 0.0

    def tell(progress: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        if connection.rpc is not None and now - last >= _PROGRESS_EVERY_S:
            last = now
            connection.rpc.notify("pull", **progress.to_json())

    report = await mirrors.pull([str(path) for path in params["paths"]], on_progress=tell)
    return {
        "pulled": list(report.pulled),
        "bytes": report.bytes,
        "kept": list(report.kept),
        "owned": list(report.owned),
        "mirrored": list(report.mirrored),
        "refused": list(report.refused),
        "duration_s": report.duration_s,
    }
