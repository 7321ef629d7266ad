"""What `tk ready` does. No typer here: see quick.py."""

from __future__ import annotations

import json
import time

from tunnelkit.cli.common import find_session
from tunnelkit.cli.console import say
from tunnelkit.session.ask import ask


def wait_ready(*, sync_first: bool = False, timeout_s: float = 60.0, as_json: bool = False) -> None:
    """Wait until F5 will work, and say so. Raises TunnelkitError if it won't."""
    started = time.monotonic()
    answer = ask(find_session(), "ready", sync=sync_first, timeout_s=timeout_s)
    if as_json:
        say(json.dumps(answer))
        return
    synced = answer.get("sync")
    sent = f", {synced['sent']} files sent" if synced and synced["sent"] else ""
    took_ms = (time.monotonic() - started) * 1000
    say(f"ready: run {answer['generation']} on port {answer['port']}{sent} ({took_ms:.0f} ms)")
