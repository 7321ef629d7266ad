"""Breakpoints of several clients on one debuggee.

`setBreakpoints` replaces all of a file, so a debuggee is always sent those of all clients. At a
line that two of them name it stops where either wants it to; hit conditions and log messages are
those of the client that has set them last.

The debuggee counts the breakpoints of all clients, and gives those of a file other numbers with
each request. An editor has the numbers that it would have alone, so its answers, and the events
that name one, are rewritten for it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from tunnelkit.debug.dap.messages import Message, objects, section, text, whole


class Merged(NamedTuple):
    """The breakpoints to send for a file. places: of the client's own, among them."""

    breakpoints: list[Message]
    places: list[int]

    def of_client(self, answered: object) -> list[Message]:
        """Return the client's part of the `breakpoints` of the debuggee's answer."""
        found = objects(answered)
        return [found[place] for place in self.places if place < len(found)]


class BreakpointUnion:
    """The breakpoints of all clients, by file. editor: the client that gets events."""

    def __init__(self, editor: Hashable) -> None:
        self._editor = editor
        self._files: dict[str, dict[Hashable, list[Message]]] = {}
        #: The editor's next number: debuggees count from 0, each breakpoint of each request.
        self._next = 0
        #: By file and line: the numbers of the editor's last answer.
        self._known: dict[str, dict[int | None, int]] = {}
        #: By file and number: the editor's number; None for a breakpoint of others alone.
        self._numbers: dict[str, dict[int, int | None]] = {}
        #: Events must be rewritten.
        self.renumbered = False

    def set(self, client: Hashable, path: str, breakpoints: Sequence[Message]) -> Merged:
        """Replace a client's breakpoints in a file; return what to send."""
        clients = self._files.setdefault(path, {})
        clients[client] = list(breakpoints)
        lines: dict[int | None, int] = {}
        merged: list[Message] = []
        # The client is answered about its own; the others' come after them.
        for one in (client, *(other for other in clients if other != client)):
            for breakpoint in clients[one]:
                line = _line(breakpoint)
                if line not in lines:
                    lines[line] = len(merged)
                    merged.append(breakpoint)
                elif one != client:
                    merged[lines[line]] = _either(merged[lines[line]], breakpoint)
        places = [lines[_line(one)] for one in breakpoints]
        if not breakpoints:
            del clients[client]
        return Merged(merged, places)

    def files(self, client: Hashable) -> list[str]:
        """Return the files in which the client has breakpoints."""
        return [path for path, clients in self._files.items() if client in clients]

    def shared(self, client: Hashable, path: str) -> bool:
        """True if another client has breakpoints in the file."""
        return any(other != client for other in self._files.get(path, ()))

    # -- numbers --------------------------------------------------------------------

    def answered(self, client: Hashable, path: str, sent: Merged, found: object) -> list[Message]:
        """Note the debuggee's numbers of what a client's request has sent.

        Returns the client's part of the debuggee's answer, an editor's with its own numbers."""
        own = sent.of_client(found)
        if client == self._editor:
            own = [self._with_number(one) for one in own]
            lines = (_line(sent.breakpoints[place]) for place in sent.places)
            pairs = zip(lines, own, strict=False)
            self._known[path] = {
                line: number for line, one in pairs if (number := whole(one.get("id"))) is not None
            }
        known, numbers = self._known.get(path, {}), {}
        for one, answer in zip(sent.breakpoints, objects(found), strict=False):
            if (number := whole(answer.get("id"))) is not None:
                numbers[number] = known.get(_line(one))
        self._note(path, numbers)
        return own

    def functions_answered(self, found: object) -> list[Message]:
        """Note the numbers of the editor's function breakpoints; as `answered`.

        They are counted with those of files. No other client sets any."""
        answers = objects(found)
        own = [self._with_number(one) for one in answers]
        numbers: dict[int, int | None] = {}
        for one, mine in zip(answers, own, strict=True):
            if (number := whole(one.get("id"))) is not None:
                numbers[number] = whole(mine.get("id"))
        self._note("", numbers)
        return own

    def _note(self, path: str, numbers: dict[int, int | None]) -> None:
        self._numbers[path] = numbers
        self.renumbered = any(
            number != mine for one in self._numbers.values() for number, mine in one.items()
        )

    def _with_number(self, answer: Message) -> Message:
        """Return one of the editor's with the number that it would have alone."""
        number = whole(answer.get("id"))
        if number is None:
            return answer
        mine, self._next = self._next, self._next + 1
        return answer if number == mine else {**answer, "id": mine}

    def for_editor(self, event: Message) -> Message | None:
        """Return an event with the editor's numbers; None if it is about others' alone."""
        body = section(event, "body")
        hit = body.get("hitBreakpointIds")
        if isinstance(hit, list):
            named = [self._number(whole(one)) for one in hit]
            mine = [one for one in named if one is not None]
            return {**event, "body": {**body, "hitBreakpointIds": mine}}
        breakpoint = section(body, "breakpoint")
        number = whole(breakpoint.get("id"))
        if number is None:
            return event
        mine_alone = self._number(number)
        if mine_alone is None:
            return None
        return {**event, "body": {**body, "breakpoint": {**breakpoint, "id": mine_alone}}}

    def _number(self, number: int | None) -> int | None:
        for numbers in self._numbers.values():
            if number in numbers:
                return numbers[number]
        return number


def _line(breakpoint: Message) -> int | None:
    return whole(breakpoint.get("line"))


def _either(one: Message, other: Message) -> Message:
    """One breakpoint that stops wherever one of two stops."""
    if _plain(one) or _plain(other):
        return one if _plain(one) else other
    conditions = text(one.get("condition")), text(other.get("condition"))
    if conditions[0] == conditions[1] or not (_conditional(one) and _conditional(other)):
        return one
    return {**one, "condition": f"({conditions[0]}) or ({conditions[1]})"}


def _plain(breakpoint: Message) -> bool:
    return not breakpoint.get("condition") and _conditional(breakpoint)


def _conditional(breakpoint: Message) -> bool:
    """True if it has a condition at most."""
    return not breakpoint.get("hitCondition") and not breakpoint.get("logMessage")
