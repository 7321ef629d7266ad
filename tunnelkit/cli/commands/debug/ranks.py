"""`tk ranks`: where every rank is, who waits for whom."""

from __future__ import annotations

import json

from tunnelkit.cli.terminal.output import say


def ranks() -> None:
    """x"""
    from tunnelkit.cli.terminal.context import find_session
    from tunnelkit.session.runtime.blocking_client import ask
    from tunnelkit.session.runtime.control_calls import Ranks

    say(json.dumps(ask(find_session(), Ranks())))
