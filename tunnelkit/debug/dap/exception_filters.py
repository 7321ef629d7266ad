"""The exceptions that a debuggee stops at: its editor's, and with --post-mortem uncaught ones.

pydevd takes either filters or exceptionOptions. Only the latter tell Exception from BaseException:
a program that ends by SystemExit or KeyboardInterrupt has not failed.
"""

from __future__ import annotations

from tunnelkit.debug.dap.messages import Message, objects

_ALL = {"names": ["Python Exceptions"]}
#: Filter of debugpy -> breakMode of DAP.
_MODES = {"raised": "always", "userUnhandled": "userUnhandled", "uncaught": "unhandled"}
_FAILURES: Message = {"path": [_ALL, {"names": ["Exception"]}], "breakMode": "unhandled"}


def with_failures(arguments: Message) -> Message:
    """Return the arguments of `setExceptionBreakpoints` with uncaught exceptions among them.

    arguments: of an editor; {} if there is none. It is the same object if they are in there.
    """
    given = arguments.get("filters")
    filters = [one for one in given if isinstance(one, str)] if isinstance(given, list) else []
    options = objects(arguments.get("exceptionOptions"))
    if not options:
        if "uncaught" in filters:
            return arguments
        options = [{"path": [_ALL], "breakMode": _MODES[one]} for one in filters if one in _MODES]
    return {**arguments, "filters": [], "exceptionOptions": [*options, _FAILURES]}
