"""The arguments of `attach`: corrected by the mirror, and made for child sessions.

Shapes of child sessions as debugpy's adapter makes them (adapter/clients.py, notify_of_subprocess).
"""

from __future__ import annotations

from tunnelkit.debug.dap.messages import (
    EVENT,
    REQUEST,
    Message,
    Request,
    StartDebuggingArguments,
    dump,
    section,
    whole,
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


def reported_child(arguments: Message, reported: Message) -> Message | None:
    """Return the configuration for a child process that the adapter has reported; None if it names
    none.

    Nothing else of the report is taken: what the debuggee sends as an event passes the adapter, and
    an editor starts whatever configuration it gets, on the laptop."""
    pid = whole(reported.get("subProcessId"))
    if pid is None or pid < 0:
        return None
    made = child_configuration(arguments, f"Subprocess {pid}", subProcessId=pid)
    if not made["connect"]:  # dape: debugpy names its own port here
        port = whole(section(reported, "connect").get("port"))
        made["connect"] = {"host": "127.0.0.1", "port": port} if port else {}
    return made


def child_report(arguments: Message, message: Message) -> tuple[Message, bytes] | None:
    """Return the configuration of a child process, and the message about it for the editor.

    message: the adapter's event `debugpyAttach` or its request `startDebugging`. None: it names no
    process."""
    is_event = message.get("type") == EVENT
    asked = section(section(message, "arguments"), "configuration")
    child = reported_child(arguments, section(message, "body") if is_event else asked)
    if child is None:
        return None
    seq = whole(message.get("seq")) or 0
    if not is_event:
        return child, dump(start_debugging(seq, child))
    body = debugpy_attach(child)
    return child, dump({"seq": seq, "type": EVENT, "event": "debugpyAttach", "body": body})


def start_debugging(seq: int, configuration: Message) -> Request:
    """Return the reverse request, for clients with supportsStartDebuggingRequest."""
    arguments: StartDebuggingArguments = {"request": "attach", "configuration": configuration}
    return {"seq": seq, "type": REQUEST, "command": "startDebugging", "arguments": arguments}


def debugpy_attach(configuration: Message) -> Message:
    """Return the body of debugpy's own event `debugpyAttach`, for clients without."""
    return {**configuration, "request": "attach"}
