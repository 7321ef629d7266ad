"""Messages of tk's own within an editor's session with an adapter.

They are numbered from 2**30: adapters and clients count from 1, and a response names its request by
number.
"""

from __future__ import annotations

from collections.abc import Mapping

from tunnelkit.debug.dap.attach_arguments import debugpy_attach, start_debugging
from tunnelkit.debug.dap.messages import (
    EVENT,
    REQUEST,
    Event,
    Message,
    OutputBody,
    Request,
    dump,
    granted,
    refused,
)

_FIRST_SEQ = 2**30


class OwnMessages:
    """Builds the messages of one session as bodies, and knows which answers are for tk."""

    def __init__(self) -> None:
        self._seq = _FIRST_SEQ
        #: tk's reverse requests that the editor has not answered.
        self._asked_editor: set[int] = set()
        #: tk's requests that the adapter has not answered.
        self._asked_adapter: set[int] = set()

    def event(self, name: str, body: Mapping[str, object]) -> bytes:
        """Return an event for the editor."""
        event: Event = {"seq": self._number(), "type": EVENT, "event": name, "body": body}
        return dump(event)

    def console(self, text: str, category: str = "console") -> bytes:
        """Return a line for the editor's debug console."""
        line: OutputBody = {"category": category, "output": text + "\n"}
        return self.event("output", line)

    def request(self, command: str, arguments: Mapping[str, object]) -> bytes:
        """Return a request to the adapter, whose answer the editor does not get."""
        seq = self._number()
        self._asked_adapter.add(seq)
        request: Request = {
            "seq": seq,
            "type": REQUEST,
            "command": command,
            "arguments": arguments,
        }
        return dump(request)

    def start_child(self, configuration: Message, *, by_request: bool) -> bytes:
        """Return what makes an editor open a child session.

        by_request: False for one without `startDebugging`.
        """
        if not by_request:
            return self.event("debugpyAttach", debugpy_attach(configuration))
        seq = self._number()
        self._asked_editor.add(seq)
        return dump(start_debugging(seq, configuration))

    def grant(self, request: Message, body: Mapping[str, object] | None = None) -> bytes:
        """Return the response that grants a request of the editor."""
        return dump(granted(request, self._number(), body))

    def refuse(self, request: Message, reason: str) -> bytes:
        """Return the response that refuses a request of the editor."""
        return dump(refused(request, self._number(), reason))

    def takes_editors(self, request_seq: int) -> bool:
        """True if an editor's response answers a request of tk; it is settled then."""
        return _settle(self._asked_editor, request_seq)

    def takes_adapters(self, request_seq: int) -> bool:
        """True if an adapter's response answers a request of tk; it is settled then."""
        return _settle(self._asked_adapter, request_seq)

    def _number(self) -> int:
        self._seq += 1
        return self._seq


def _settle(asked: set[int], request_seq: int) -> bool:
    if request_seq not in asked:
        return False
    asked.discard(request_seq)
    return True
