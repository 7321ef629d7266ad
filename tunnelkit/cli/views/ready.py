"""The work of `tk ready`."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING

from tunnelkit.cli.terminal.context import find_session
from tunnelkit.cli.terminal.output import note, say
from tunnelkit.session.runtime.blocking_client import ask
from tunnelkit.session.runtime.control_calls import Ready, Status

if TYPE_CHECKING:
    from tunnelkit.session.runtime.paths import SessionPaths

#: A shorter wait is not shown.
_QUIET_S = 1.0


def wait_ready(*, sync_first: bool = False, timeout_s: float = 60.0, as_json: bool = False) -> None:
    """Wait until F5 will work, and say so. Raises TunnelkitError if it won't."""
    started = time.monotonic()
    paths = find_session()
    late = threading.Timer(_QUIET_S, _say_why, (paths,))
    late.daemon = True
    late.start()
    try:
        answer = ask(paths, Ready(sync=sync_first, timeout_s=timeout_s))
    finally:
        late.cancel()
    if as_json:
        say(json.dumps(answer))
        return
    synced = answer["sync"]
    sent = f", {synced['sent']} files sent" if synced and synced["sent"] else ""
    took_ms = (time.monotonic() - started) * 1000
    say(f"ready: run {answer['generation']} on port {answer['port']}{sent} ({took_ms:.0f} ms)")


def _say_why(paths: SessionPaths) -> None:
    """Say on stderr what the command waits for. Runs in a thread of its own."""
    from tunnelkit.errors import TunnelkitError

    try:
        status = ask(paths, Status(), silence_s=5.0)
    except TunnelkitError:
        return  # the command itself says it
    if status["state"] != "ready":
        note(f"waiting for the session: {status['state']} {status['detail']}".rstrip())
    elif not status["loops"]:
        note("waiting for a debug loop: start one in a terminal with tk loop python FILE")
    else:
        note("waiting for the mirror and for a run that is armed: `tk status` shows both")
