"""Exception filters of several clients on one debuggee.

`setExceptionBreakpoints` replaces all, so a debuggee is always sent the filters of all clients.
"""

from __future__ import annotations

from collections.abc import Hashable

from tunnelkit.debug.dap.messages import Message

_FILTERS, _OPTIONS = "filters", ("filterOptions", "exceptionOptions")


class ExceptionFilters:
    """The exceptions at which each client wants the program to stop."""

    def __init__(self) -> None:
        self._clients: dict[Hashable, Message] = {}

    def set(self, client: Hashable, arguments: Message) -> Message:
        """Replace a client's; return the arguments to send."""
        self._clients.pop(client, None)
        if any(_listed(arguments, key) for key in (_FILTERS, *_OPTIONS)):
            self._clients[client] = arguments
        return self._merged()

    def has(self, client: Hashable) -> bool:
        """True if the client wants the program to stop at any."""
        return client in self._clients

    def shared(self, client: Hashable) -> bool:
        """True if another client does."""
        return any(other != client for other in self._clients)

    def _merged(self) -> Message:
        merged: Message = {_FILTERS: self._all(_FILTERS)}
        # pydevd reads no filters beside options, so there are none where no client has sent any.
        merged.update((key, options) for key in _OPTIONS if (options := self._all(key)))
        return merged

    def _all(self, key: str) -> list[object]:
        found: list[object] = []
        for arguments in self._clients.values():
            for one in _listed(arguments, key):
                if one not in found:
                    found.append(one)
        return found


def _listed(arguments: Message, key: str) -> list[object]:
    value = arguments.get(key)
    return value if isinstance(value, list) else []
