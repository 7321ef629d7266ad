"""Mirror calls of commands besides the barrier: settle conflicts, fetch outputs."""

from __future__ import annotations

import time

from tunnelkit.mirror.api import SyncReport
from tunnelkit.mirror.progress import Progress
from tunnelkit.session.files.mirror_set import MirrorSet
from tunnelkit.session.runtime.control_answers import (
    PullAnswer,
    ReportInfo,
    ResolveAnswer,
)
from tunnelkit.session.runtime.control_calls import PULL, Pull, SyncResolve
from tunnelkit.session.runtime.control_server import ControlConnection

_PROGRESS_EVERY_S = 0.2


def report_json(report: SyncReport) -> ReportInfo:
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


async def resolve(mirrors: MirrorSet, request: SyncResolve) -> ResolveAnswer:
    """Settle conflicts: `tk sync --ours`, `--theirs`."""
    report = await mirrors.resolve(
        request.files, theirs=request.theirs, timeout_s=request.timeout_s
    )
    return {
        **report_json(report),
        "conflicts": mirrors.conflicts(),
        "warnings": mirrors.news(),
    }


async def pull(mirrors: MirrorSet, request: Pull, connection: ControlConnection) -> PullAnswer:
    """Fetch outputs; the command gets the progress."""
    last = 0.0

    def tell(progress: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _PROGRESS_EVERY_S:
            last = now
            connection.notify(PULL, progress.to_json())

    report = await mirrors.pull(request.paths, on_progress=tell)
    return {
        "pulled": list(report.pulled),
        "bytes": report.bytes,
        "kept": list(report.kept),
        "owned": list(report.owned),
        "mirrored": list(report.mirrored),
        "refused": list(report.refused),
        "unread": list(report.unread),
        "gone": list(report.gone),
        "uncompared": list(report.uncompared),
        "duration_s": report.duration_s,
    }
