"""The arguments of `attach`: corrected by the mirror, and made for child sessions.

Shapes of child sessions as debugpy's adapter makes them (adapter/clients.py, notify_of_subprocess).
"""

from __future__ import annotations

from tunnelkit.debug.dap.messages import (
    REQUEST,
    Message,
    Request,
    StartDebuggingArguments,
    section,
)
from tunnelkit.debug.dap.path_mappings import MappedRoots, correct

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


def correct_attach(attach: Message, mirror: MappedRoots | None) -> tuple[Message, str]:
    """Return the `attach` request for the adapter, and a line for the user ("": none is due).

    It is the same object if nothing has to change. mirror: for its pathMappings; None: they stay.
    """
    given = arguments = section(attach, "arguments")
    if "connect" in arguments and arguments["connect"] is None:
        # Emacs has one word for null and {}; debugpy wants an object or nothing.
        arguments = {key: value for key, value in arguments.items() if key != "connect"}
    notice = ""
    if mirror is not None:
        correction = correct(arguments.get("pathMappings"), mirror)
        if correction is not None:
            arguments = {**arguments, "pathMappings": correction.mappings}
            notice = correction.notice() if correction.wrong else ""
    return (attach if arguments is given else {**attach, "arguments": arguments}), notice


def child_configuration(arguments: Message, name: str, **more: object) -> Message:
    """Return the attach arguments of a child session, made from its parent's.

    It connects to where the parent did. `more` goes on top.
    """
    connect = dict(section(arguments, "connect"))
    for key in ("host", "port"):
        if key not in connect and key in arguments:
            connect[key] = arguments[key]
    kept = {key: value for key, value in arguments.items() if key not in _PARENTS_OWN}
    return {**kept, "name": name, "connect": connect, **more}


def start_debugging(seq: int, configuration: Message) -> Request:
    """Return the reverse request, for clients with supportsStartDebuggingRequest."""
    arguments: StartDebuggingArguments = {"request": "attach", "configuration": configuration}
    return {"seq": seq, "type": REQUEST, "command": "startDebugging", "arguments": arguments}


def debugpy_attach(configuration: Message) -> Message:
    """Return the body of debugpy's own event `debugpyAttach`, for clients without."""
    return {**configuration, "request": "attach"}
