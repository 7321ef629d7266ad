"""`tk sync --watch`: the mirror's batches and states as they come."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from tunnelkit.cli.terminal.context import find_session, run
from tunnelkit.cli.terminal.output import paint, say
from tunnelkit.cli.views.status import printable
from tunnelkit.session.runtime.control_calls import MIRROR, SyncWatch
from tunnelkit.text_format import human_bytes

if TYPE_CHECKING:
    from tunnelkit.session.runtime.control_answers import MirrorBatchEvent, MirrorEvent

_NAMES = 3
#: States that change with each batch: shown only after another state.
_CALM = ("in_sync", "pending", "starting")


def show_batches(*, as_json: bool = False) -> None:
    """Show one line per batch until Ctrl-C or the session's end. Raises NoSessionError."""
    run(_watch(BatchView(as_json=as_json)))


async def _watch(view: BatchView) -> None:
    from tunnelkit.session.runtime import control_client

    notices = dict([MIRROR.read_by(view.show)])
    async with control_client.connect(find_session(), notices=notices) as session:
        # Never answered: it ends with the session, by NoSessionError.
        await session.call(SyncWatch())


class BatchView:
    """Prints the mirror's events as they come."""

    def __init__(self, *, as_json: bool = False) -> None:
        self._as_json = as_json
        #: The state that was shown last, by root.
        self._shown: dict[str, str] = {}

    async def show(self, event: MirrorEvent) -> None:
        """Print one event."""
        text = json.dumps(event) if self._as_json else self.line(event)
        if text is not None:
            say(text)

    def line(self, event: MirrorEvent) -> str | None:
        """Return an event as a line of text; None for one that is not shown."""
        at = time.strftime("%H:%M:%S", time.localtime(event["time"]))
        if event["event"] == "warning":
            return f"{at}  {paint('warning', 'yellow')}: {printable(event['text'])}"
        root = ": ".join(filter(None, (event.get("node"), event.get("root"))))
        if root:
            at += f"  {printable(root)}:"
        if event["event"] == "batch":
            return f"{at}  {batch(event)}"
        state = event["state"]
        before = self._shown.get(root)
        first, self._shown[root] = before is None, state
        if state in _CALM and before in _CALM:
            return None
        if state == before and state == "starting":
            return None
        there = f"; {event['files']} files ({human_bytes(event['bytes'])}) there" if first else ""
        return f"{at}  {printable(event['text'])}{there}"


def batch(event: MirrorBatchEvent) -> str:
    """Return one batch in words: files, bytes, time, first names."""
    did = []
    if event["files"]:
        files = "file" if event["files"] == 1 else "files"
        did.append(f"{event['files']} {files}, {human_bytes(event['bytes'])} sent")
    if event["deleted"]:
        did.append(f"{event['deleted']} deleted")
    names = [printable(path) for path in event["paths"][:_NAMES]]
    more = event["files"] + event["deleted"] - len(names)
    if more > 0:
        names.append(f"and {more} more")
    return f"{', '.join(did)} in {event['duration_s'] * 1000:.0f} ms: {', '.join(names)}"
