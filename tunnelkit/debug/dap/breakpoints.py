"""Breakpoints in files that are not the same on the node: shown as unverified, with why.

The request travels on while the node is asked for the file's digest; only its response
waits for the verdict. pydevd verifies a breakpoint by line number alone, and tells of
later changes in `breakpoint` events, which would turn the red dot on again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tunnelkit.debug.dap.messages import (
    BreakpointBody,
    Message,
    dump,
    objects,
    parse,
    section,
    whole,
)

MakeEvent = Callable[[str, Mapping[str, object]], bytes]


class BreakpointCheck(NamedTuple):
    """A question for the caller: whether the file of a `setBreakpoints` is the same on the node."""

    seq: int
    path: str


@dataclass
class _Asked:
    """One setBreakpoints request that touches a mirrored file.

    state: "" no verdict yet, "same", "differs" (see `reason`).
    """

    seq: int
    path: str
    state: str = ""
    reason: str = ""
    #: The response waits here, and after it the adapter's events about its breakpoints.
    response: bytes | None = None
    behind: list[bytes] = field(default_factory=list)
    #: The breakpoints as the adapter last described them, once the response is out.
    known: dict[int, Message] = field(default_factory=dict)
    shown: bool = False
    #: Nobody waits for a verdict any more.
    overdue: bool = False


class BreakpointChecks:
    """The checks of one session. Methods return the bodies for the editor."""

    def __init__(self, make_event: MakeEvent) -> None:
        self._make_event = make_event
        self._asked: dict[int, _Asked] = {}
        #: The last answered request of each file.
        self._shown: dict[str, _Asked] = {}

    def ask(self, seq: int, path: str) -> None:
        """A request for a mirrored file goes to the adapter."""
        self._asked[seq] = _Asked(seq, path)

    def expects(self, seq: int) -> bool:
        """True if the response to `seq` belongs to `answer`."""
        return seq in self._asked and not self._asked[seq].shown

    def answer(self, seq: int, body: bytes) -> list[bytes]:
        """The adapter's response; nothing comes out while the verdict is open."""
        asked = self._asked[seq]
        asked.response = body
        return self._show(asked) if asked.state or asked.overdue else []

    def event(self, body: bytes) -> list[bytes]:
        """A `breakpoint` event of the adapter."""
        reported = section(section(parse(body), "body"), "breakpoint")
        number = whole(reported.get("id"))
        if number is None:
            return [body]
        for asked in self._asked.values():
            if asked.response is not None and not asked.shown and number in _ids(asked.response):
                # The editor does not know these breakpoints before the response.
                asked.behind.append(body)
                return []
        asked_of = next((one for one in self._shown.values() if number in one.known), None)
        if asked_of is None:
            return [body]
        asked_of.known[number] = {**asked_of.known[number], **reported}
        if asked_of.state != "differs" or not reported.get("verified"):
            return [body]
        message = parse(body)
        unverified = _unverified(reported, asked_of.reason)
        message["body"] = {**section(message, "body"), "breakpoint": unverified}
        return [dump(message)]

    def verdict(self, seq: int, reason: str | None) -> list[bytes]:
        """The node's answer: None if the file is the same, else what is different.

        One that comes after its response was sent becomes `breakpoint` events.
        """
        asked = self._asked.get(seq)
        if asked is None:
            return []
        before = asked.state, asked.reason
        asked.state, asked.reason = ("same", "") if reason is None else ("differs", reason)
        if not asked.shown:
            return self._show(asked) if asked.response is not None else []
        if before == (asked.state, asked.reason) or (before[0] == "" and asked.state == "same"):
            return []
        bodies: list[BreakpointBody] = [
            {"reason": "changed", "breakpoint": self._told(asked, known)}
            for known in asked.known.values()
        ]
        return [self._make_event("breakpoint", body) for body in bodies]

    def forget(self, path: str) -> None:
        """The breakpoints that the editor had in a file are gone."""
        before = self._shown.pop(path, None)
        if before is not None:
            self._asked.pop(before.seq, None)

    def let_go(self, seq: int) -> list[bytes]:
        """The response has waited long enough for a verdict."""
        asked = self._asked.get(seq)
        if asked is None:
            return []
        asked.overdue = True
        return self._show(asked) if asked.response is not None and not asked.shown else []

    def let_all_go(self) -> list[bytes]:
        """Nothing waits any more."""
        return [body for seq in list(self._asked) for body in self.let_go(seq)]

    def _show(self, asked: _Asked) -> list[bytes]:
        body, asked.response, asked.shown = asked.response, None, True
        assert body is not None
        message = parse(body)
        listed = _listed(message)
        asked.known = {
            number: one for one in listed if (number := whole(one.get("id"))) is not None
        }
        self._replace(asked)
        if asked.state == "differs" and listed:
            fields = [self._told(asked, one) for one in listed]
            message["body"] = {**section(message, "body"), "breakpoints": fields}
            body = dump(message)
        behind, asked.behind = asked.behind, []
        return [body, *(out for event in behind for out in self.event(event))]

    def _replace(self, asked: _Asked) -> None:
        """`asked` is now what the editor shows for its file."""
        before = self._shown.get(asked.path)
        if before is not None and before.seq > asked.seq:
            # Its verdict came late: a newer request has been answered meanwhile.
            del self._asked[asked.seq]
            return
        self.forget(asked.path)
        self._shown[asked.path] = asked

    def _told(self, asked: _Asked, breakpoint: Message) -> Message:
        return _unverified(breakpoint, asked.reason) if asked.state == "differs" else breakpoint


def _unverified(breakpoint: Message, reason: str) -> Message:
    return {**breakpoint, "verified": False, "message": reason}


def _listed(message: Message) -> list[Message]:
    return objects(section(message, "body").get("breakpoints"))


def _ids(body: bytes) -> set[int]:
    return {number for one in _listed(parse(body)) if (number := whole(one.get("id"))) is not None}
