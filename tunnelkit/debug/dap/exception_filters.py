"""The exceptions at which a debuggee stops: those of all its clients, and failures.

`setExceptionBreakpoints` replaces all, so a debuggee is always sent what all clients want. pydevd
takes either filters or exceptionOptions. Only the latter tell Exception from BaseException: a
program that ends by SystemExit or KeyboardInterrupt has not failed.
"""

from __future__ import annotations

from collections.abc import Hashable

from tunnelkit.debug.dap.messages import Message, objects

_FILTERS, _OPTIONS = "filters", ("filterOptions", "exceptionOptions")
_ALL = {"names": ["Python Exceptions"]}
#: Filter of debugpy -> breakMode of DAP.
_MODES = {"raised": "always", "userUnhandled": "userUnhandled", "uncaught": "unhandled"}
_FAILURES: Message = {"path": [_ALL, {"names": ["Exception"]}], "breakMode": "unhandled"}


class ExceptionFilters:
    """The exceptions at which each client wants the program to stop.

    keeps: it stops at uncaught ones, whatever they want (--post-mortem).
    """

    def __init__(self, *, keeps: bool = False) -> None:
        self.keeps = keeps
        self._clients: dict[Hashable, Message] = {}

    def set(self, client: Hashable, arguments: Message) -> Message:
        """Replace a client's; return the arguments to send."""
        self._clients.pop(client, None)
        if any(_listed(arguments, key) for key in (_FILTERS, *_OPTIONS)):
            self._clients[client] = arguments
        return self.merged()

    def has(self, client: Hashable) -> bool:
        """True if the client wants the program to stop at any."""
        return client in self._clients

    def shared(self, client: Hashable, arguments: Message) -> bool:
        """True if the debuggee needs more than these arguments of the client."""
        others = any(other != client for other in self._clients)
        return others or (self.keeps and with_failures(arguments) is not arguments)

    def merged(self) -> Message:
        """Return the arguments to send."""
        merged: Message = {_FILTERS: self._all(_FILTERS)}
        # pydevd reads no filters beside options, so there are none where no client has sent any.
        merged.update((key, options) for key in _OPTIONS if (options := self._all(key)))
        return with_failures(merged) if self.keeps else merged

    def _all(self, key: str) -> list[object]:
        found: list[object] = []
        for arguments in self._clients.values():
            for one in _listed(arguments, key):
                if one not in found:
                    found.append(one)
        return found


def with_failures(arguments: Message) -> Message:
    """Return the arguments of `setExceptionBreakpoints` with uncaught exceptions among them.

    It is the same object if they are in there.
    """
    filters = [one for one in _listed(arguments, _FILTERS) if isinstance(one, str)]
    options = objects(arguments.get("exceptionOptions"))
    if not options:
        if "uncaught" in filters:
            return arguments
        options = [{"path": [_ALL], "breakMode": _MODES[one]} for one in filters if one in _MODES]
    return {**arguments, _FILTERS: [], "exceptionOptions": [*options, _FAILURES]}


def _listed(arguments: Message, key: str) -> list[object]:
    value = arguments.get(key)
    return value if isinstance(value, list) else []
