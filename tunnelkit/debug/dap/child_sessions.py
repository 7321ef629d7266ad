"""Child sessions: what makes an editor open one for another process or rank.

Shapes as debugpy's adapter makes them (adapter/clients.py, notify_of_subprocess).
"""

from __future__ import annotations

from typing import Any

from tunnelkit.debug.dap.peek import Message, section

#: What stays with the parent: it belongs to that process, or would run its tasks again.
_PARENTS_OWN = frozenset(
    {
        "processId",
        "listen",
        "preLaunchTask",
        "postDebugTask",
        "request",
        "restart",
        "args",
        "processName",
        "pythonArgs",
        "host",
        "port",
        "subProcessId",
    }
)


def child_configuration(arguments: Message, name: str, **more: Any) -> Message:
    """The attach arguments of a child session, made from its parent's.

    It connects to where the parent did. `more` goes on top.
    """
    connect = dict(section(arguments, "connect"))
    for key in ("host", "port"):
        if key not in connect and key in arguments:
            connect[key] = arguments[key]
    kept = {key: value for key, value in arguments.items() if key not in _PARENTS_OWN}
    return {**kept, "name": name, "connect": connect, **more}


def start_debugging(seq: int, configuration: Message) -> Message:
    """The reverse request, for clients with supportsStartDebuggingRequest."""
    return {
        "seq": seq,
        "type": "request",
        "command": "startDebugging",
        "arguments": {"request": "attach", "configuration": configuration},
    }


def debugpy_attach(configuration: Message) -> Message:
    """The body of debugpy's own event `debugpyAttach`, for clients without."""
    return {**configuration, "request": "attach"}
