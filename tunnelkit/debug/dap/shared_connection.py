"""One debuggee's connection, shared by its adapter and clients of tk's own (consoles).

Sans-IO: bytes of both directions in, bytes out. Rules of this file:

- pydevd answers each request by its number, so tk's are numbered from 2**30. Their responses are
  kept from the adapter. A request is put between two messages of the adapter.
- All clients see the events that say whether the program stands.
- The debuggee has the breakpoints of all clients (breakpoint_union.py); each is answered about its
  own.
- While a console is there, an editor that leaves does not let the program run on: its `disconnect`
  becomes a question whose answer is the adapter's. An editor that comes is sent the stops that it
  has missed.
- With `keeps`, the debuggee stops at uncaught exceptions whatever its editor wants, also once an
  editor has left it and it runs on.
- A message over 1 MB is not read. As a response to tk it counts as a failure; a `stopped` is known
  by its first and last bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence

from tunnelkit.debug.dap.breakpoint_union import BreakpointUnion, Merged
from tunnelkit.debug.dap.exception_filters import with_failures
from tunnelkit.debug.dap.message_filter import MessageFilter
from tunnelkit.debug.dap.messages import (
    EVENT,
    REQUEST,
    RESPONSE,
    Message,
    Request,
    dump,
    objects,
    parse,
    section,
    text,
    whole,
)
from tunnelkit.debug.dap.peek import peek
from tunnelkit.mux.dap_framing import frame

#: An adapter counts from 1.
FIRST_SEQ = 2**30
#: Longer messages pass unread: values and sources, of which nothing is needed here.
_LONGEST_READ_BYTES = 1 << 20
#: Of threads that stand: a node could send any number of `stopped`.
_MOST_STOPS, _LONGEST_STOP_BYTES = 256, 16_384
#: Of an exception's text in a longer one.
_LONGEST_TEXT = 2_000
#: The events that consoles see, and those of them that are also kept an eye on without one.
_SEEN = frozenset({b"stopped", b"continued", b"output", b"terminated", b"exited", b"thread"})
_ALWAYS = frozenset({b"stopped", b"continued", b"exited"})
#: The beginning of a message of pydevd's.
_LONG = re.compile(
    rb'\{\s*(?:"seq"\s*:\s*\d+\s*,\s*)?"type"\s*:\s*"'
    rb'(?:response"\s*,\s*"request_seq"\s*:\s*(\d{1,19})\s*,|event"\s*,\s*"event"\s*:\s*"(stopped)")'
)
#: No text has a quotation mark without a backslash.
_THREAD = re.compile(rb'(?<!\\)"threadId"\s*:\s*(\d{1,18})')
_REASON = re.compile(rb'(?<!\\)"reason"\s*:\s*"([ \w]{1,40})"')
_DESCRIPTION = re.compile(rb'(?<!\\)"description"\s*:\s*"((?:[^"\\]|\\u[0-9a-f]{4}|\\[^u])*)')
_TYPE = re.compile(rb'(?<!\\)"text"\s*:\s*"((?:[^"\\]|\\.){1,400})"')

OnAnswer = Callable[[Message], None]
_ADAPTER = "adapter"


def _nobody(event: Message) -> None:
    pass


class SharedConnection:
    """The connection of one debuggee.

    `from_adapter` and `from_debuggee` return what to pass on, and raise ConnectionAbortedError if
    the bytes are no DAP or a message is too long. first: the number of tk's first request; another
    one for each session, as a debuggee may yet answer the one before. on_event: called with
    `stopped`, `continued` and `exited`, and while `watched` with each event that consoles see.
    """

    def __init__(
        self, first: int = FIRST_SEQ, on_event: Callable[[Message], None] = _nobody
    ) -> None:
        self.watched = False
        #: Uncaught exceptions stop the program, and nobody's leaving ends that.
        self.keeps = False
        #: A client has let the program begin.
        self.configured = False
        self._on_event = on_event
        self._seq = max(first, FIRST_SEQ)
        self._asked: dict[int, OnAnswer] = {}
        self._adapter = MessageFilter(_is_short, self._adapter_message)
        self._debuggee = MessageFilter(
            _is_short, self._debuggee_message, self._passes_long, self._long_passed
        )
        #: The editor's arguments of `setExceptionBreakpoints`.
        self._exceptions: Message = {}
        self._breakpoints = BreakpointUnion()
        #: The adapter's requests whose answers are changed, by their numbers.
        self._rewritten: dict[int, Callable[[Message], Message]] = {}
        self._configuring: int | None = None
        #: The last `stopped` of each thread that stands.
        self._stopped: dict[object, Message] = {}
        #: For the debuggee, once the adapter's message is complete; for the adapter.
        self._to_debuggee = b""
        self._to_adapter = b""

    @property
    def is_stopped(self) -> bool:
        """True while a thread stands."""
        return bool(self._stopped)

    @property
    def stops(self) -> list[Message]:
        """The `stopped` events of the threads that stand."""
        return list(self._stopped.values())

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
        self._to_debuggee += frame(dump(request))
        return self._take_waiting()

    def set_breakpoints(
        self, client: Hashable, path: str, breakpoints: Sequence[Message], on_answer: OnAnswer
    ) -> bytes:
        """Replace a client's breakpoints in a file; as `ask`, and the answer has only its own."""
        merged = self._breakpoints.set(client, path, breakpoints)
        arguments = {"source": {"path": path}, "breakpoints": merged.breakpoints}

        def answered(message: Message) -> None:
            on_answer(_with_own(message, merged))

        return self.ask("setBreakpoints", arguments, answered)

    def drop_breakpoints(self, client: Hashable) -> bytes:
        """Remove all breakpoints of a client that leaves; as `ask`."""
        out = b""
        for path in self._breakpoints.files(client):
            out += self.set_breakpoints(client, path, [], _nobody)
        return out

    def keep_failures(self, on_answer: OnAnswer) -> bytes:
        """Let uncaught exceptions stop the program from now on; as `ask`."""
        self.keeps = True
        return self.ask("setExceptionBreakpoints", with_failures(self._exceptions), on_answer)

    # -- the adapter's messages ----------------------------------------------

    def from_adapter(self, data: bytes) -> bytes:
        """Take bytes of the adapter; return those for the debuggee."""
        return self._adapter.feed(data) + self._take_waiting()

    def _take_waiting(self) -> bytes:
        if not self._adapter.between_messages:
            return b""
        waiting, self._to_debuggee = self._to_debuggee, b""
        return waiting

    def _adapter_message(self, body: bytes) -> bytes:
        _, name, _ = peek(body)
        if name == b"setBreakpoints":
            return self._adapter_breakpoints(body)
        if name == b"configurationDone":
            self._configuring = whole(parse(body).get("seq"))
        elif name == b"setExceptionBreakpoints":
            return self._adapter_exceptions(body)
        elif name == b"disconnect":
            return self._adapter_leaves(parse(body), body)
        return body

    def _adapter_exceptions(self, body: bytes) -> bytes:
        message = parse(body)
        self._exceptions = section(message, "arguments")
        wanted = with_failures(self._exceptions) if self.keeps else self._exceptions
        return body if wanted is self._exceptions else dump({**message, "arguments": wanted})

    def _adapter_breakpoints(self, body: bytes) -> bytes:
        message = parse(body)
        arguments = section(message, "arguments")
        path = text(section(arguments, "source").get("path"))
        merged = self._breakpoints.set(_ADAPTER, path, objects(arguments.get("breakpoints")))
        if not self._breakpoints.shared(_ADAPTER, path):
            return body
        self._rewritten[whole(message.get("seq")) or 0] = lambda answer: _with_own(answer, merged)
        changed = {key: value for key, value in arguments.items() if key != "lines"}
        return dump({**message, "arguments": {**changed, "breakpoints": merged.breakpoints}})

    def _adapter_leaves(self, message: Message, body: bytes) -> bytes:
        kept = self.watched or self.keeps
        if not kept or section(message, "arguments").get("terminateDebuggee"):
            # The debuggee lets all threads run, and does not say so.
            self._stopped.clear()
            return body
        self._exceptions = {}
        then = self.drop_breakpoints(_ADAPTER)
        then += self.keep_failures(_nobody) if self.keeps else b""
        if self._stopped and not self.watched:
            # A program that runs never answers it.
            then += self.ask("continue", {"threadId": "*"}, _nobody)
        self._to_debuggee = then + self._to_debuggee
        self._rewritten[whole(message.get("seq")) or 0] = _as_disconnect
        return dump({**message, "command": "threads", "arguments": {}})

    # -- the debuggee's messages ---------------------------------------------

    def from_debuggee(self, data: bytes) -> bytes:
        """Take bytes of the debuggee; return those for the adapter."""
        out = self._debuggee.feed(data)
        if self._to_adapter and self._debuggee.between_messages:
            out, self._to_adapter = out + self._to_adapter, b""
        return out

    def _debuggee_message(self, body: bytes) -> bytes | None:
        kind, name, request = peek(body)
        if kind == EVENT:
            if name in _SEEN:
                self._event(name, body)
            # The editor hears of the program's end from the agent.
            return None if name == b"exited" else body
        if kind != RESPONSE:
            return body
        on_answer = self._asked.pop(request, None)
        if on_answer is not None:
            on_answer(parse(body))
            return None
        if request >= FIRST_SEQ:
            return None  # to the session before this one
        if request == self._configuring:
            self._adapter_configured()
        rewrite = self._rewritten.pop(request, None)
        return body if rewrite is None else dump(rewrite(parse(body)))

    def _event(self, name: bytes, body: bytes) -> None:
        if not self.watched and name not in _ALWAYS:
            return
        event = parse(body)
        if name == b"stopped":
            event = self._note_stop(event, len(body))
        elif name == b"continued":
            continued = section(event, "body")
            if continued.get("allThreadsContinued"):
                self._stopped.clear()
            else:
                self._stopped.pop(str(continued.get("threadId")), None)
        self._on_event(event)

    def _note_stop(self, event: Message, size_bytes: int = 0) -> Message:
        """Keep the stop of a thread. Returns it, a long one cut."""
        body = section(event, "body")
        thread = body.get("threadId")
        if size_bytes > _LONGEST_STOP_BYTES:
            parts = {key: _short(body.get(key)) for key in ("reason", "description", "text")}
            event = _stop_event({**parts, "threadId": thread if isinstance(thread, int) else 0})
        if len(self._stopped) < _MOST_STOPS:
            self._stopped[str(thread)[:_LONGEST_TEXT]] = event
        return event

    def _passes_long(self, head: bytes) -> bool:
        """False for a response to tk, which the adapter would not know."""
        found = _LONG.match(head)
        return not (found and found[1]) or int(found[1]) < FIRST_SEQ

    def _long_passed(self, head: bytes, tail: bytes) -> None:
        found = _LONG.match(head)
        if found is None:
            return
        if found[1]:
            on_answer = self._asked.pop(int(found[1]), None)
            if on_answer is not None:
                on_answer({"success": False, "message": "the answer is longer than 1 MB"})
        elif (thread := _THREAD.search(tail) or _THREAD.search(head)) is not None:
            stop: Message = {
                "reason": _text_of(_REASON, head) or _text_of(_REASON, tail),
                "description": _text_of(_DESCRIPTION, head),
                "text": _text_of(_TYPE, tail) or _text_of(_TYPE, head),
                "threadId": int(thread[1]),
            }
            self._on_event(self._note_stop(_stop_event(stop)))

    def _adapter_configured(self) -> None:
        self._configuring = None
        if self.configured:
            # The program was stopped before this editor came.
            self._to_adapter += b"".join(frame(dump(stop)) for stop in self._stopped.values())
        self.configured = True


def _stop_event(body: Message) -> Message:
    return {"seq": 0, "type": EVENT, "event": "stopped", "body": body}


def _short(value: object) -> str:
    return text(value)[:_LONGEST_TEXT]


def _text_of(pattern: re.Pattern[bytes], part: bytes) -> str:
    """The text that a pattern finds in a part of a message, cut; "" for none."""
    found = pattern.search(part)
    value = parse(b'{"text": "%s"}' % found[1]).get("text") if found else ""
    return _short(value)


def _is_short(size_bytes: int) -> bool:
    return size_bytes <= _LONGEST_READ_BYTES


def _with_own(answer: Message, merged: Merged) -> Message:
    body = section(answer, "body")
    own = merged.of_client(body.get("breakpoints"))
    return {**answer, "body": {**body, "breakpoints": own}}


def _as_disconnect(answer: Message) -> Message:
    return {**answer, "command": "disconnect", "success": True, "body": {}}
