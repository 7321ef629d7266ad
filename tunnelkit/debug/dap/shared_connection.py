"""tk's own requests on a debuggee's connection, beside those of its adapter.

Sans-IO: bytes of both directions in, bytes out. pydevd answers each request by its number, so tk's
are numbered from 2**30, and their responses are kept from the adapter. A request is put between two
messages of the adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tunnelkit.debug.dap.message_filter import MessageFilter
from tunnelkit.debug.dap.messages import REQUEST, RESPONSE, Message, Request, dump, parse
from tunnelkit.debug.dap.peek import peek
from tunnelkit.mux.dap_framing import frame

#: An adapter counts from 1.
_FIRST_SEQ = 2**30
#: tk's own questions have shorter answers (debuggee/evaluated).
_LONGEST_ANSWER_BYTES = 1 << 20

OnAnswer = Callable[[Message], None]


class SharedConnection:
    """The connection of one debuggee, which its adapter and tk share.

    `from_adapter` and `from_debuggee` return what to pass on, and raise ConnectionAbortedError if
    the bytes are no DAP or a message is too long. first: the number of tk's first request; another
    one for each session, as a debuggee may yet answer the one before.
    """

    def __init__(self, first: int = _FIRST_SEQ) -> None:
        self._seq = max(first, _FIRST_SEQ)
        self._asked: dict[int, OnAnswer] = {}
        self._adapter = MessageFilter()
        self._debuggee = MessageFilter(self._may_be_ours, self._is_ours)
        #: For the debuggee, once the adapter's message is complete.
        self._waiting = b""

    def ask(self, command: str, arguments: Mapping[str, object], on_answer: OnAnswer) -> bytes:
        """Return what to send to the debuggee now: the request, or b"" if it must wait.

        on_answer: called with the response, if one comes.
        """
        self._seq += 1
        self._asked[self._seq] = on_answer
        request: Request = {
            "seq": self._seq,
            "type": REQUEST,
            "command": command,
            "arguments": arguments,
        }
        framed = frame(dump(request))
        if self._adapter.between_messages:
            return framed
        self._waiting += framed
        return b""

    def from_adapter(self, data: bytes) -> bytes:
        """Take bytes of the adapter; return those for the debuggee."""
        out = self._adapter.feed(data)
        if self._waiting and self._adapter.between_messages:
            out, self._waiting = out + self._waiting, b""
        return out

    def from_debuggee(self, data: bytes) -> bytes:
        """Take bytes of the debuggee; return those for the adapter."""
        return self._debuggee.feed(data)

    def _may_be_ours(self, size_bytes: int) -> bool:
        return bool(self._asked) and size_bytes <= _LONGEST_ANSWER_BYTES

    def _is_ours(self, body: bytes) -> bool:
        kind, _, request = peek(body)
        on_answer = self._asked.pop(request, None) if kind == RESPONSE else None
        if on_answer is None:
            # To the session before this one.
            return kind == RESPONSE and request >= _FIRST_SEQ
        on_answer(parse(body))
        return True
