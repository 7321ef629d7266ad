"""Breakpoints of several clients on one debuggee.

`setBreakpoints` replaces all of a file, so a debuggee is always sent those of all clients. A line
that two of them name has the condition of the one that has set it last.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from tunnelkit.debug.dap.messages import Message, objects


class Merged(NamedTuple):
    """The breakpoints to send for a file. places: of the client's own, among them."""

    breakpoints: list[Message]
    places: list[int]

    def of_client(self, answered: object) -> list[Message]:
        """Return the client's part of the `breakpoints` of the debuggee's answer."""
        found = objects(answered)
        return [found[place] for place in self.places if place < len(found)]


class BreakpointUnion:
    """The breakpoints of all clients, by file."""

    def __init__(self) -> None:
        self._files: dict[str, dict[Hashable, list[Message]]] = {}

    def set(self, client: Hashable, path: str, breakpoints: Sequence[Message]) -> Merged:
        """Replace a client's breakpoints in a file; return what to send."""
        clients = self._files.setdefault(path, {})
        clients[client] = list(breakpoints)
        lines: dict[object, int] = {}
        merged: list[Message] = []
        # The client is answered about its own; the others' come after them.
        for one in (client, *(other for other in clients if other != client)):
            for breakpoint in clients[one]:
                if breakpoint.get("line") not in lines:
                    lines[breakpoint.get("line")] = len(merged)
                    merged.append(breakpoint)
        places = [lines[one.get("line")] for one in breakpoints]
        if not breakpoints:
            del clients[client]
        return Merged(merged, places)

    def files(self, client: Hashable) -> list[str]:
        """Return the files in which the client has breakpoints."""
        return [path for path, clients in self._files.items() if client in clients]

    def shared(self, client: Hashable, path: str) -> bool:
        """True if another client has breakpoints in the file."""
        return any(other != client for other in self._files.get(path, ()))
