"""One debuggee's connection, shared by its adapter and clients of tk's own (consoles).

Sans-IO: bytes of both directions in, bytes out. Rules of this file:

- pydevd answers each request by its number, so tk's are numbered from 2**30. Their responses are
  kept from the adapter. A request is put between two messages of the adapter.
- All clients see the events that say whether the program stands.
- The debuggee has the breakpoints and exception filters of all clients (breakpoint_union.py,
  exception_filters.py); each is answered about its own breakpoints, and the editor's keep the
  numbers that it knows.
- Without an adapter, what would be its own is dropped. One that comes later gets whole messages.
- While a console is there, an editor that leaves does not let the program run on: its `disconnect`
  becomes a question whose answer is the adapter's. An editor that comes is sent the stops that it
  has missed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol

from tunnelkit.debug.dap.breakpoint_union import BreakpointUnion, Merged
from tunnelkit.debug.dap.exception_filters import ExceptionFilters
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
from tunnelkit.debug.dap.peek import LONGEST_TEXT, long_response, long_stop, peek, short, stop_event
from tunnelkit.mux.dap_framing import frame, refusal

#: An adapter counts from 1.
FIRST_SEQ = 2**30
#: Longer messages pass unread: values and sources, of which nothing is needed here.
_LONGEST_READ_BYTES = 1 << 20
#: debugpy's adapter reads nothing any more after a longer one (messaging.py, MAX_BODY_SIZE).
_ADAPTERS_LONGEST_BYTES = 0xFFFFFF
#: Of threads that stand: a node could send any number of `stopped`.
_MOST_STOPS, _LONGEST_STOP_BYTES = 256, 16_384
#: The events that consoles see, and those of them that are read without one, too.
_SEEN = frozenset({b"stopped", b"continued", b"output", b"terminated", b"exited", b"thread"})
_ALWAYS = frozenset({b"stopped", b"continued", b"exited"})
_SLOW = b" did not finish after "
_NAME_BREAKPOINTS = frozenset({b"stopped", b"breakpoint"})

OnAnswer = Callable[[Message], None]
_ADAPTER = "adapter"


def _nobody(event: Message) -> None:
    pass


class Below(Protocol):
    """A layer between the connection and the debuggee, which may answer in its place."""

    def down(self, data: bytes) -> bytes:
        """Take bytes for the debuggee; return those to send."""
        ...

    def up(self, data: bytes) -> bytes:
        """Take bytes of the debuggee, b"" for none; return those for the connection."""
        ...


class _Nothing:
    def down(self, data: bytes) -> bytes:
        return data

    def up(self, data: bytes) -> bytes:
        return data


class SharedConnection:
    """The connection of one debuggee.

    `from_adapter` and `from_debuggee` return what to pass on, and raise ConnectionAbortedError if
    the bytes are no DAP or a message is too long. first: the number of tk's first request; another
    one for each session, as a debuggee may yet answer the one before. on_event: called with
    `stopped`, `continued` and `exited`, and while `watched` with each event that consoles see.
    After `from_adapter` there may be answers for the adapter: `from_debuggee(b"")` returns them.
    """

    def __init__(
        self,
        first: int = FIRST_SEQ,
        on_event: Callable[[Message], None] = _nobody,
        below: Below | None = None,
    ) -> None:
        self.watched = False
        self.has_adapter = True
        #: The debuggee has said that it ends.
        self.terminated = False
        #: A client has let the program begin.
        self.configured = False
        self._on_event = on_event
        self._below = below or _Nothing()
        self._seq = max(first, FIRST_SEQ)
        self._asked: dict[int, OnAnswer] = {}
        #: What tk's evaluations without an answer evaluate.
        self._evaluating: dict[int, str] = {}
        self._adapter = MessageFilter(_is_short, self._adapter_message)
        self._debuggee = MessageFilter(
            _is_short, self._debuggee_message, self._passes_long, self._long_passed
        )
        self._breakpoints = BreakpointUnion(_ADAPTER)
        self._filters = ExceptionFilters()
        #: The adapter's requests whose answers are changed, by their numbers.
        self._rewritten: dict[int, Callable[[Message], Message]] = {}
        self._configuring: int | None = None
        #: The last `stopped` of each thread that stands.
        self._stopped: dict[object, Message] = {}
        #: The long message under way is too long for an adapter.
        self._too_long = False
        #: For the debuggee, once the adapter's message is complete; for the adapter.
        self._to_debuggee = b""
        self._to_adapter = b""

    @property
    def keeps(self) -> bool:
        """Uncaught exceptions stop the program, and nobody's leaving ends that."""
        return self._filters.keeps

    @keeps.setter
    def keeps(self, value: bool) -> None:
        """Set whether they do, from the next filters on."""
        self._filters.keeps = value

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
        if command == "evaluate":
            self._evaluating[self._seq] = text(arguments.get("expression"))
        request: Request = {
            "seq": self._seq,
            "type": REQUEST,
            "command": command,
            "arguments": arguments,
        }
        self._to_debuggee += frame(dump(request))
        return self._below.down(self._take_waiting())

    def set_breakpoints(
        self, client: Hashable, path: str, breakpoints: Sequence[Message], on_answer: OnAnswer
    ) -> bytes:
        """Replace a client's breakpoints in a file; as `ask`, and the answer has only its own."""
        merged = self._breakpoints.set(client, path, breakpoints)
        arguments = {"source": {"path": path}, "breakpoints": merged.breakpoints}

        def answered(message: Message) -> None:
            on_answer(self._with_own(client, path, merged, message))

        return self.ask("setBreakpoints", arguments, answered)

    def set_filters(self, client: Hashable, arguments: Message, on_answer: OnAnswer) -> bytes:
        """Replace the exceptions at which a client wants the program to stop; as `ask`."""
        return self.ask("setExceptionBreakpoints", self._filters.set(client, arguments), on_answer)

    def drop_client(self, client: Hashable) -> bytes:
        """Remove all breakpoints of a client that leaves; as `ask`."""
        out = b""
        for path in self._breakpoints.files(client):
            out += self.set_breakpoints(client, path, [], _nobody)
        if self._filters.has(client):
            out += self.set_filters(client, {}, _nobody)
        return out

    def keep_failures(self, on_answer: OnAnswer) -> bytes:
        """Let uncaught exceptions stop the program from now on; as `ask`."""
        self.keeps = True
        return self.ask("setExceptionBreakpoints", self._filters.merged(), on_answer)

    # -- the adapter's messages ----------------------------------------------

    def from_adapter(self, data: bytes) -> bytes:
        """Take bytes of the adapter; return those for the debuggee."""
        return self._below.down(self._adapter.feed(data) + self._take_waiting())

    def _take_waiting(self) -> bytes:
        if not self._adapter.between_messages:
            return b""
        waiting, self._to_debuggee = self._to_debuggee, b""
        return waiting

    def _adapter_message(self, body: bytes) -> bytes:
        _, name, _ = peek(body)
        if name == b"setBreakpoints":
            return self._adapter_breakpoints(body)
        if name == b"setFunctionBreakpoints":
            self._rewritten[whole(parse(body).get("seq")) or 0] = self._with_own_functions
            return body
        if name == b"setExceptionBreakpoints":
            return self._adapter_filters(body)
        if name == b"configurationDone":
            self._configuring = whole(parse(body).get("seq"))
        elif name == b"disconnect":
            return self._adapter_leaves(parse(body), body)
        return body

    def _adapter_breakpoints(self, body: bytes) -> bytes:
        message = parse(body)
        arguments = section(message, "arguments")
        path = text(section(arguments, "source").get("path"))
        merged = self._breakpoints.set(_ADAPTER, path, objects(arguments.get("breakpoints")))
        shared = self._breakpoints.shared(_ADAPTER, path)

        def answered(message: Message) -> Message:
            return self._with_own(_ADAPTER, path, merged, message)

        self._rewritten[whole(message.get("seq")) or 0] = answered
        if not shared:
            return body
        changed = {key: value for key, value in arguments.items() if key != "lines"}
        return dump({**message, "arguments": {**changed, "breakpoints": merged.breakpoints}})

    def _adapter_filters(self, body: bytes) -> bytes:
        message = parse(body)
        own = section(message, "arguments")
        merged = self._filters.set(_ADAPTER, own)
        shared = self._filters.shared(_ADAPTER, own)
        return dump({**message, "arguments": merged}) if shared else body

    def _with_own(self, client: Hashable, path: str, sent: Merged, answer: Message) -> Message:
        """The answer as the client would have it alone; the same object if it is that already."""
        body = section(answer, "body")
        found = body.get("breakpoints")
        if answer.get("success") is not True:
            return answer
        own = self._breakpoints.answered(client, path, sent, found)
        return answer if own == found else {**answer, "body": {**body, "breakpoints": own}}

    def _with_own_functions(self, answer: Message) -> Message:
        body = section(answer, "body")
        found = body.get("breakpoints")
        if answer.get("success") is not True or not found:
            return answer
        own = self._breakpoints.functions_answered(found)
        return answer if own == found else {**answer, "body": {**body, "breakpoints": own}}

    def _adapter_leaves(self, message: Message, body: bytes) -> bytes:
        kept = self.watched or self.keeps
        if not kept or section(message, "arguments").get("terminateDebuggee"):
            # The debuggee drops all breakpoints, lets all threads run, and does not say so.
            self._breakpoints = BreakpointUnion(_ADAPTER)
            self._filters = ExceptionFilters(keeps=self.keeps)
            self._stopped.clear()
            return body
        then = self.drop_client(_ADAPTER)
        if self._stopped and not self.watched:
            # A program that runs never answers it.
            then += self.ask("continue", {"threadId": "*"}, _nobody)
        self._to_debuggee = then + self._to_debuggee
        self._rewritten[whole(message.get("seq")) or 0] = _as_disconnect
        return dump({**message, "command": "threads", "arguments": {}})

    # -- the debuggee's messages ---------------------------------------------

    def from_debuggee(self, data: bytes) -> bytes:
        """Take bytes of the debuggee; return those for the adapter."""
        out = self._debuggee.feed(self._below.up(data))
        if self._to_adapter and self._debuggee.between_messages:
            out, self._to_adapter = out + self._to_adapter, b""
        return out

    def _debuggee_message(self, body: bytes) -> bytes | None:
        passed = self._read_debuggee(body)
        return passed if self.has_adapter else None

    def _read_debuggee(self, body: bytes) -> bytes | None:
        kind, name, request = peek(body)
        if kind == EVENT:
            if name == b"output" and self._warns_of_tk(body):
                return None
            if name in _SEEN:
                self._event(name, body)
            # The editor hears of the program's end from the agent.
            return None if name == b"exited" else self._for_adapter(name, body)
        if kind != RESPONSE:
            return body
        self._evaluating.pop(request, None)
        on_answer = self._asked.pop(request, None)
        if on_answer is not None:
            on_answer(parse(body))
            return None
        if request >= FIRST_SEQ:
            return None  # to the session before this one
        if request == self._configuring:
            self._adapter_configured()
        rewrite = self._rewritten.pop(request, None)
        if rewrite is None:
            return body
        message = parse(body)
        changed = rewrite(message)
        return body if changed is message else dump(changed)

    def _warns_of_tk(self, body: bytes) -> bool:
        """True for pydevd's warning that an evaluation of tk's takes long: nobody's business."""
        if not self._evaluating or _SLOW not in body:
            return False
        said = text(section(parse(body), "body").get("output"))
        return any(said.startswith(f"Evaluating: {one}") for one in self._evaluating.values())

    def _for_adapter(self, name: bytes, body: bytes) -> bytes | None:
        """The event with the numbers of breakpoints that the editor knows."""
        if name not in _NAME_BREAKPOINTS or not self._breakpoints.renumbered:
            return body
        event = self._breakpoints.for_editor(parse(body))
        return None if event is None else dump(event)

    def _event(self, name: bytes, body: bytes) -> None:
        if name == b"terminated":
            self.terminated = True
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
            parts = {key: short(body.get(key)) for key in ("reason", "description", "text")}
            event = stop_event({**parts, "threadId": thread if isinstance(thread, int) else 0})
        if len(self._stopped) < _MOST_STOPS:
            self._stopped[str(thread)[:LONGEST_TEXT]] = event
        return event

    def _passes_long(self, head: bytes, size_bytes: int) -> bool:
        """False for what an adapter would not know or read, and without one."""
        request = long_response(head)
        passes = self.has_adapter and (request is None or request < FIRST_SEQ)
        self._too_long = passes and size_bytes > _ADAPTERS_LONGEST_BYTES
        return passes and not self._too_long

    def _long_passed(self, head: bytes, tail: bytes) -> None:
        request = long_response(head)
        if request is not None:
            self._evaluating.pop(request, None)
            on_answer = self._asked.pop(request, None)
            if on_answer is not None:
                on_answer({"success": False, "message": "the answer is longer than 1 MB"})
            elif self._too_long:
                self._to_adapter += frame(refusal(head))
        elif (stop := long_stop(head, tail)) is not None:
            self._on_event(self._note_stop(stop))
            if self._too_long:
                self._to_adapter += self._for_adapter_later(stop)

    def _adapter_configured(self) -> None:
        self._configuring = None
        if self.configured:
            # The program was stopped before this editor came.
            for stop in self._stopped.values():
                self._to_adapter += self._for_adapter_later(stop)
        self.configured = True

    def _for_adapter_later(self, stop: Message) -> bytes:
        event = self._breakpoints.for_editor(stop)
        return b"" if event is None else frame(dump(event))


def _is_short(size_bytes: int) -> bool:
    return size_bytes <= _LONGEST_READ_BYTES


def _as_disconnect(answer: Message) -> Message:
    return {**answer, "command": "disconnect", "success": True, "body": {}}
