"""One DAP session between an editor and its adapter, read along and amended.

Sans-IO: bodies of DAP messages in, bodies out, in the order to send them. What nobody needs to
change goes through as the same bytes object, unparsed. Rules of this file:

- A request is answered once; an `exited` and a `terminated` are sent once.
- Held are at most: the response of a setBreakpoints whose file is being compared, the
  `terminated` that waits for the exit status, and output beyond the limits. Each has an input
  that releases it; after `disconnect` nothing is held.
- Messages of tk's own are numbered from 2**30: adapters and clients count from 1, and a
  response names its request by number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tunnelkit.debug.dap.breakpoints import BreakpointCheck, BreakpointChecks
from tunnelkit.debug.dap.child_sessions import child_configuration, debugpy_attach, start_debugging
from tunnelkit.debug.dap.exit_report import EndOfSession, ExitReport
from tunnelkit.debug.dap.output_limiter import OutputLimiter, OutputLimits
from tunnelkit.debug.dap.path_mappings import MappedRoots, correct
from tunnelkit.debug.dap.pause_monitor import PauseMonitor, stopped_by_name
from tunnelkit.debug.dap.peek import (
    EVENT,
    REQUEST,
    RESPONSE,
    Message,
    dump,
    parse,
    peek,
    peek_editor,
    section,
    whole,
)
from tunnelkit.debug.dap.session_facts import RANK_KEY, Child, EndRequest, SessionFacts
from tunnelkit.mux.dap_framing import error_response, response

__all__ = [
    "RANK_KEY",
    "BreakpointCheck",
    "Child",
    "DapSession",
    "EndRequest",
    "MappedRoots",
    "OutputLimits",
    "Routed",
]

_FIRST_SEQ = 2**30
_NO_LAUNCH = (
    'The program runs already, under `tk loop`: use a configuration with "request": "attach" '
    "(`tk vscode` writes one)."
)
_UNCAUGHT: Message = {"filters": ["uncaught"]}


class Routed(NamedTuple):
    """Bodies for each side."""

    to_adapter: list[bytes]
    to_editor: list[bytes]


class DapSession(SessionFacts):
    """One editor's session with one adapter (or several in turn, before `attach`).

    mirror: where the editor's files are on the cluster (may be set until `attach`); None: not
    known, nothing of it is checked. hold_end: wait with `terminated` for `ended` or `give_up`.
    Bodies for the editor must be sent in the order of the calls that returned them.
    """

    def __init__(
        self,
        mirror: MappedRoots | None = None,
        *,
        limits: OutputLimits | None = None,
        hold_end: bool = True,
    ) -> None:
        super().__init__()
        self.mirror = mirror
        self.hold_end = hold_end
        #: The name that an editor shows for the process; "": nothing of tk's.
        self.process_name = ""
        self._seq = _FIRST_SEQ
        self._output = OutputLimiter(limits or OutputLimits(), self._event)
        self._breakpoints = BreakpointChecks(self._event)
        self._checks: list[BreakpointCheck] = []
        #: tk's reverse requests that the editor has not answered.
        self._asked_editor: set[int] = set()
        #: tk's requests that the adapter has not answered.
        self._asked_adapter: set[int] = set()
        #: The editor has said at which exceptions it stops.
        self._has_filters = False
        #: Responses that the editor has had from an adapter before this one.
        self._had: frozenset[int] = frozenset()
        self._end = EndOfSession(self._event)
        self._pausing = PauseMonitor()
        self._now_s = 0.0
        self._on_request: dict[bytes, Callable[[Message, bytes], Routed]] = {
            b"initialize": self._initialize,
            b"attach": self._attach,
            b"launch": self._refuse_launch,
            b"setBreakpoints": self._set_breakpoints,
            b"setExceptionBreakpoints": self._set_filters,
            b"configurationDone": self._configuration_done,
            b"disconnect": self._leave,
            b"terminate": self._leave,
        }

    # -- what the editor says ----------------------------------------------

    def from_editor(self, body: bytes) -> Routed:
        """One message of the editor."""
        kind, name, request = peek_editor(body)
        if kind == RESPONSE and request in self._asked_editor:
            self._asked_editor.discard(request)
            return Routed([], [])
        if not self.first:
            self.first = parse(body)
        if kind == REQUEST:
            self._pausing.request(name)
        if kind == REQUEST and (handler := self._on_request.get(name)) is not None:
            routed = handler(parse(body), body)
        else:
            routed = Routed([body], [])
        if not self.attached:
            self.said.extend(routed.to_adapter)
        return routed

    def _initialize(self, message: Message, body: bytes) -> Routed:
        self._note_initialize(message)
        return Routed([body], [])

    def _attach(self, message: Message, body: bytes) -> Routed:
        arguments = section(message, "arguments")
        told: list[bytes] = []
        correction = None
        if "connect" in arguments and arguments["connect"] is None:
            # Emacs has one word for null and {}; debugpy wants an object or nothing.
            arguments = {key: arguments[key] for key in arguments if key != "connect"}
            message["arguments"] = arguments
            body = dump(message)
        if self.mirror is not None:
            correction = correct(arguments.get("pathMappings"), self.mirror)
        if correction is not None:
            arguments = {**arguments, "pathMappings": correction.mappings}
            message["arguments"] = arguments
            body = dump(message)
            if correction.wrong:
                told.append(self.console(correction.told()))
        self._note_attach(message, arguments)
        return Routed([body], told)

    def _refuse_launch(self, message: Message, body: bytes) -> Routed:
        """The adapter would start a program on this machine."""
        self.over = True
        refusal = {**error_response(message, _NO_LAUNCH), "seq": self._number()}
        return Routed([], [dump(refusal)])

    def _set_breakpoints(self, message: Message, body: bytes) -> Routed:
        arguments = section(message, "arguments")
        path, seq = section(arguments, "source").get("path"), whole(message.get("seq"))
        if self.mirror is None or seq is None or self.goodbye is not None:
            return Routed([body], [])
        if isinstance(path, str) and self.mirror.holds(path):
            if arguments.get("breakpoints"):
                self._checks.append(BreakpointCheck(seq, path))
                self._breakpoints.ask(seq, path)
            else:
                self._breakpoints.forget(path)
        return Routed([body], [])

    def _set_filters(self, message: Message, body: bytes) -> Routed:
        self._has_filters = True
        return Routed([body], [])

    def _configuration_done(self, message: Message, body: bytes) -> Routed:
        self.configuration_done = True
        if self._has_filters:
            return Routed([body], [])
        # An editor that has no words for it: as debugpy's own default for that filter is.
        self._has_filters = True
        return Routed([self._ask_adapter("setExceptionBreakpoints", _UNCAUGHT), body], [])

    def _leave(self, message: Message, body: bytes) -> Routed:
        self._note_goodbye(message)
        if not self.attached:
            # debugpy's adapter dies of a goodbye before an `attach`, without an answer.
            self.over = True
            return Routed([], [dump({**response(message), "seq": self._number()})])
        if message.get("command") == "terminate":
            return Routed([body], [])
        return Routed([body], [*self._flush(), *self._told_end()])

    # -- what the adapter says ---------------------------------------------

    def from_adapter(self, bodies: Iterable[bytes], now_s: float) -> list[bytes]:
        """The messages that arrived in one go. now_s: seconds of a monotonic clock."""
        self._now_s = now_s
        out: list[bytes] = []
        for body in bodies:
            kind, name, request = peek(body)
            if kind == EVENT:
                self._adapter_event(name, body, out)
                continue
            self._output.settle(out, now_s)
            if kind == RESPONSE:
                self._adapter_response(request, body, out)
            else:
                if name == b"startDebugging":
                    arguments = section(parse(body), "arguments")
                    self._note_child(section(arguments, "configuration"))
                out.append(body)
        if self._disconnected:
            self._output.drain(out, now_s)
        else:
            self._output.settle(out, now_s)
        return out

    def _adapter_response(self, request: int, body: bytes, out: list[bytes]) -> None:
        if request in self._had:
            return
        if request in self._asked_adapter:
            self._asked_adapter.discard(request)
            return
        if not self.configuration_done or not self.attached:
            self.answered.add(request)
        if self._breakpoints.expects(request):
            out += self._breakpoints.answer(request, body)
        else:
            out.append(body)

    def _adapter_event(self, name: bytes, body: bytes, out: list[bytes]) -> None:
        if name == b"output":
            if self._output.take(body, parse(body), out, self._now_s):
                return
            self._output.settle(out, self._now_s)
            out.append(body)
            return
        self._output.drain(out, self._now_s)
        self._pausing.event(name)
        if name == b"terminated":
            out += self._terminated(body)
        elif name == b"breakpoint":
            out += self._breakpoints.event(body)
        else:
            if name == b"exited":
                if self._end.exited_told:
                    return
                self._end.exited_told = True
            elif name == b"debugpyAttach":
                self._note_child(section(parse(body), "body"))
            elif name == b"stopped" and self.process_name:
                body = dump(stopped_by_name(parse(body), self.process_name))
            elif name == b"process":
                self._pausing.pid = whole(section(parse(body), "body").get("systemProcessId"))
            out.append(body)

    def _terminated(self, body: bytes) -> list[bytes]:
        if self._end.over:
            return []
        self._end.terminated(body)
        return [*self._breakpoints.let_all_go(), *self._told_end()]

    # -- what is known from elsewhere --------------------------------------

    def ended(
        self, code: int | None, signal: str | int | None = None, detail: str = ""
    ) -> list[bytes]:
        """The debuggee ended so (see Ending); before or after its `terminated`."""
        self._end.ending = self._end.ending or ExitReport(code, signal, detail)
        return self._told_end()

    def give_up(self, why: str = "") -> list[bytes]:
        """The exit status will never be known: `terminated` must not wait longer.

        why: the reason for the user.
        """
        self._end.given_up = True
        told = [*self._flush_output(), self.console(why, "important")] if why else []
        return [*told, *self._told_end()]

    def adapter_gone(self) -> list[bytes]:
        """The adapter hung up: all that is held, and the end if the adapter has not sent it."""
        out = self._flush()
        if self.attached and not self._disconnected:
            self._end.terminated()
        return [*out, *self._told_end()]

    @property
    def terminated(self) -> bool:
        """The adapter has said that the program is over; the editor may not know yet."""
        return self._end.over

    @property
    def end_awaited(self) -> bool:
        """True while `terminated` is held for `ended` or `give_up`."""
        return self._end.awaited

    def hang_up(self) -> list[bytes]:
        """The editor is gone: the goodbye that it owes the adapter, if it does."""
        if not self.attached or self._disconnected:
            return []
        return [self._ask_adapter("disconnect", {"terminateDebuggee": False})]

    def take_checks(self) -> list[BreakpointCheck]:
        """The files to compare since the last call."""
        checks, self._checks = self._checks, []
        return checks

    def same(self, seq: int) -> list[bytes]:
        """The file of this setBreakpoints is the same on the node, or can't be compared."""
        return self._breakpoints.verdict(seq, None)

    def differs(self, seq: int, reason: str) -> list[bytes]:
        """It is not: its breakpoints are shown as unverified, with `reason`."""
        return self._breakpoints.verdict(seq, reason)

    def overdue(self, seq: int) -> list[bytes]:
        """The response must not wait longer; a later verdict becomes events."""
        return self._breakpoints.let_go(seq)

    @property
    def is_stopped(self) -> bool:
        """True while the program stands, as far as the adapter has reported."""
        return self._pausing.stopped

    @property
    def pid(self) -> int | None:
        """The program's pid, once the adapter has reported it."""
        return self._pausing.pid

    def pause(self) -> list[bytes]:
        """For the adapter: pause the program as if the editor had asked."""
        self._pausing.request(b"pause")
        return [self._ask_adapter("pause", {"threadId": "*"})]

    def take_pause(self) -> int | None:
        """A `pause` that was asked for since the last call: `not_paused` is due for it
        after a few seconds."""
        return self._pausing.take()

    def not_paused(self, asked: int) -> list[bytes]:
        """Time is up for that pause: if nothing has stopped, tell why and what helps."""
        text = self._pausing.unanswered(asked)
        return [*self._flush_output(), self.console(text, "important")] if text else []

    @property
    def due_s(self) -> float | None:
        """When to call `on_time` (same clock as from_adapter's); None: not needed."""
        return self._output.due_s

    @property
    def left_out_lines(self) -> int:
        """Lines of output that the editor was not given, so far."""
        return self._output.left_out_lines

    def on_time(self, now_s: float) -> list[bytes]:
        """Output that was held, once `due_s` is reached."""
        self._now_s = now_s
        out: list[bytes] = []
        if self.due_s is not None and now_s >= self.due_s:
            self._output.drain(out, now_s)
        return out

    # -- another adapter, other ranks --------------------------------------

    def next_adapter(self) -> list[bytes]:
        """The adapter died before `attach`: what to tell the one that takes its place.

        What the editor has been answered already it is not answered again.
        """
        self._had = frozenset(self.answered)
        return list(self.said)

    def child_configuration(self, name: str, **more: Any) -> Message:
        """This session's attach arguments, as debugpy gives them to child sessions.

        `more` goes on top, for example `**{RANK_KEY: 3}`.
        """
        return child_configuration(self.attach_arguments, name, **more)

    def start_child(self, configuration: Message) -> bytes:
        """A message that makes the editor open a child session.

        The request `startDebugging`, whose response stays here; for clients without it
        debugpy's own event `debugpyAttach`.
        """
        if not self.supports_start_debugging:
            return self._event("debugpyAttach", debugpy_attach(configuration))
        seq = self._number()
        self._asked_editor.add(seq)
        return dump(start_debugging(seq, configuration))

    # -- inside ------------------------------------------------------------

    def _told_end(self) -> list[bytes]:
        # A child process of the debuggee: only the adapter knows of its end.
        waits = self.hold_end and self.attached and self.sub_process_id is None
        return self._end.due(
            waits=waits and not self._disconnected,
            tells=self.attached,
            aloud=self.goodbye is None,
        )

    def _flush(self) -> list[bytes]:
        return [*self._flush_output(), *self._breakpoints.let_all_go()]

    def _flush_output(self) -> list[bytes]:
        out: list[bytes] = []
        self._output.drain(out, self._now_s)
        return out

    @property
    def _disconnected(self) -> bool:
        return self.goodbye is not None and self.goodbye.command == "disconnect"

    def _number(self) -> int:
        self._seq += 1
        return self._seq

    def _ask_adapter(self, command: str, arguments: Message) -> bytes:
        """A request of tk's own, whose answer the editor does not get."""
        seq = self._number()
        self._asked_adapter.add(seq)
        return dump({"seq": seq, "type": REQUEST, "command": command, "arguments": arguments})

    def _event(self, name: str, body: Message) -> bytes:
        return dump({"seq": self._number(), "type": EVENT, "event": name, "body": body})

    def console(self, text: str, category: str = "console") -> bytes:
        """A line for the editor's debug console."""
        return self._event("output", {"category": category, "output": text + "\n"})
