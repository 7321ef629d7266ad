"""One DAP session between an editor and its adapter, read along and amended.

Sans-IO: bodies of DAP messages in, bodies out, in the order to send them. What nobody needs to
change goes through as the same bytes object, unparsed. Rules of this file:

- A request is answered once; an `exited` and a `terminated` are sent once.
- Held are at most: the response of a setBreakpoints whose file is being compared, the
  `terminated` that waits for the exit status, and output beyond the limits. Each has an input
  that releases it; after `disconnect` nothing is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from tunnelkit.debug.dap.attach_arguments import child_configuration, child_report, correct_attach
from tunnelkit.debug.dap.breakpoints import BreakpointCheck, BreakpointChecks
from tunnelkit.debug.dap.exit_report import EndOfSession, ExitReport
from tunnelkit.debug.dap.messages import (
    EDITOR_EVENTS,
    EVENT,
    REQUEST,
    RESPONSE,
    DisconnectArguments,
    ExceptionFilters,
    Message,
    PauseArguments,
    dump,
    objects,
    parse,
    section,
    whole,
)
from tunnelkit.debug.dap.output_limiter import OutputLimiter, OutputLimits
from tunnelkit.debug.dap.own_messages import OwnMessages
from tunnelkit.debug.dap.path_mappings import MappedRoots
from tunnelkit.debug.dap.pause_monitor import PauseMonitor, stopped_by_name
from tunnelkit.debug.dap.peek import peek, peek_editor
from tunnelkit.debug.dap.session_facts import SessionFacts

_NO_LAUNCH = (
    'The program runs already, under `tk loop`: use a configuration with "request": "attach" '
    "(`tk vscode` writes one)."
)
_UNCAUGHT: ExceptionFilters = {"filters": ["uncaught"]}


class Routed(NamedTuple):
    """Bodies for each side."""

    to_adapter: list[bytes]
    to_editor: list[bytes]


class DapSession:
    """One editor's session with one adapter (or several in turn, before `attach`).

    facts: what the session has shown about itself. output: what its editor is given of output.
    mirror: where the editor's files are on the cluster; None: not known, nothing of it is checked.
    hold_end: wait with `terminated` for `ended` or `give_up`. Bodies for the editor must be sent in
    the order of the calls that returned them.
    """

    def __init__(
        self,
        mirror: MappedRoots | None = None,
        *,
        limits: OutputLimits | None = None,
        hold_end: bool = True,
    ) -> None:
        self.facts = SessionFacts()
        self._mirror = mirror
        self._hold_end = hold_end
        self._process_name = ""
        self._capabilities: Message | None = None
        #: The messages that went to the adapter before `attach`.
        self._said: list[bytes] = []
        #: The requests that were answered before the program began.
        self._answered: set[int] = set()
        self._own = OwnMessages()
        self.output = OutputLimiter(limits or OutputLimits(), self._own.event)
        self._breakpoints = BreakpointChecks(self._own.event)
        self._checks: list[BreakpointCheck] = []
        self._has_filters = False
        #: Responses that the editor has had from an adapter before this one.
        self._had: frozenset[int] = frozenset()
        self._end = EndOfSession(self._own.event)
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

    def prepare(self, mirror: MappedRoots | None, capabilities: Message | None = None) -> None:
        """Set the mirror, before `attach`.

        capabilities: answer `initialize` with them, at once; None: the adapter answers it.
        """
        self._mirror = mirror
        self._capabilities = capabilities

    def join(self, process_name: str, *, hold_end: bool) -> None:
        """Set the process that the session is for.

        process_name: for the editor's list of stopped processes; "": the editor's own name for it
        stays.
        """
        self._process_name = process_name
        self._hold_end = hold_end

    # -- the editor's messages ----------------------------------------------

    def from_editor(self, body: bytes) -> Routed:
        """Take one message of the editor."""
        kind, name, request = peek_editor(body)
        if kind == RESPONSE and self._own.takes_editors(request):
            return Routed([], [])
        routed = Routed([body], [])
        if kind == REQUEST:
            self._pausing.request(name)
            if (handler := self._on_request.get(name)) is not None:
                routed = handler(parse(body), body)
        if not self.facts.attached:
            self._said.extend(routed.to_adapter)
        return routed

    def _initialize(self, message: Message, body: bytes) -> Routed:
        self.facts = self.facts.with_client(message)
        if self._capabilities is None:
            return Routed([body], [])
        self._answered.add(whole(message.get("seq")) or 0)
        return Routed([body], [self._own.grant(message, self._capabilities)])

    def _attach(self, message: Message, body: bytes) -> Routed:
        corrected, notice = correct_attach(message, self._mirror)
        self.facts = self.facts.with_attach(corrected)
        self.output.redirects = self.facts.redirects_output
        messages = [self.console(notice)] if notice else []
        return Routed([body if corrected is message else dump(corrected)], messages)

    def _refuse_launch(self, message: Message, body: bytes) -> Routed:
        """The adapter would start a program on this machine."""
        self.facts = replace(self.facts, over=True)
        return Routed([], [self._own.refuse(message, _NO_LAUNCH)])

    def _set_breakpoints(self, message: Message, body: bytes) -> Routed:
        arguments = section(message, "arguments")
        path, seq = section(arguments, "source").get("path"), whole(message.get("seq"))
        self.output.note_log_points(path, objects(arguments.get("breakpoints")))
        if self._mirror is None or seq is None or self.facts.goodbye is not None:
            return Routed([body], [])
        if isinstance(path, str) and self._mirror.holds(path):
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
        self.facts = replace(self.facts, configuration_done=True)
        if self._has_filters:
            return Routed([body], [])
        # An editor that has no words for it: as debugpy's own default for that filter is.
        self._has_filters = True
        return Routed([self._own.request("setExceptionBreakpoints", _UNCAUGHT), body], [])

    def _leave(self, message: Message, body: bytes) -> Routed:
        self.facts = self.facts.with_goodbye(message)
        if not self.facts.attached:
            # debugpy's adapter dies of a goodbye before an `attach`, without an answer.
            self.facts = replace(self.facts, over=True)
            return Routed([], [self._own.grant(message)])
        if message.get("command") == "terminate":
            return Routed([body], [])
        return Routed([body], [*self._flush(), *self._told_end()])

    # -- the adapter's messages ---------------------------------------------

    def from_adapter(self, bodies: Iterable[bytes], now_s: float) -> list[bytes]:
        """The messages that arrived in one go. now_s: seconds of a monotonic clock."""
        self._now_s = now_s
        out: list[bytes] = []
        for body in bodies:
            kind, name, request = peek(body)
            if kind == EVENT:
                self._adapter_event(name, body, out)
                continue
            self.output.settle(out, now_s)
            if kind == RESPONSE:
                self._adapter_response(request, body, out)
            else:
                out += self._child(body) if name == b"startDebugging" else [body]
        if self.facts.disconnected:
            self.output.drain(out, now_s)
        else:
            self.output.settle(out, now_s)
        return out

    def _adapter_response(self, request: int, body: bytes, out: list[bytes]) -> None:
        if request in self._had or self._own.takes_adapters(request):
            return
        if not self.facts.configuration_done or not self.facts.attached:
            self._answered.add(request)
        if self._breakpoints.expects(request):
            out += self._breakpoints.answer(request, body)
        else:
            out.append(body)

    def _adapter_event(self, name: bytes, body: bytes, out: list[bytes]) -> None:
        if name == b"output":
            if self.output.take(body, parse(body), out, self._now_s):
                return
            self.output.settle(out, self._now_s)
            out.append(body)
            return
        self.output.drain(out, self._now_s)
        self._pausing.event(name)
        if name == b"terminated":
            out += self._terminated(body)
        elif name == b"breakpoint":
            out += self._breakpoints.event(body)
        elif name == b"debugpyAttach":
            out += self._child(body)
        elif name in EDITOR_EVENTS:
            if name == b"exited":
                if self._end.exited_told:
                    return
                self._end.exited_told = True
            elif name == b"stopped" and self._process_name:
                body = dump(stopped_by_name(parse(body), self._process_name))
            elif name == b"process":
                self._pausing.pid = whole(section(parse(body), "body").get("systemProcessId"))
            out.append(body)

    def _child(self, body: bytes) -> list[bytes]:
        """A child process that the adapter reports."""
        report = child_report(self.facts.attach_arguments, parse(body))
        if report is None:
            return []
        self.facts = self.facts.with_child(report[0])
        return [report[1]]

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
        """The exit status will never be known (why: for the user): `terminated` waits no more."""
        self._end.given_up = True
        messages = [*self._flush_output(), self.console(why, "important")] if why else []
        return [*messages, *self._told_end()]

    def adapter_gone(self) -> list[bytes]:
        """The adapter hung up: all that is held, and the end if the adapter has not sent it."""
        out = self._flush()
        if self.facts.attached and not self.facts.disconnected:
            self._end.terminated()
        return [*out, *self._told_end()]

    @property
    def terminated(self) -> bool:
        """The adapter has said that the program is over; the editor may not know yet."""
        return self._end.over

    @property
    def end_awaited(self) -> bool:
        """True while `terminated` is held."""
        return self._end.awaited

    def hang_up(self) -> list[bytes]:
        """The editor is gone: the goodbye that it owes the adapter, if it does."""
        if not self.facts.attached or self.facts.disconnected:
            return []
        goodbye: DisconnectArguments = {"terminateDebuggee": False}
        return [self._own.request("disconnect", goodbye)]

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
        everything: PauseArguments = {"threadId": "*"}
        return [self._own.request("pause", everything)]

    def take_pause(self) -> int | None:
        """Return a `pause` of since the last call; `not_paused` is due for it in seconds."""
        return self._pausing.take()

    def not_paused(self, asked: int) -> list[bytes]:
        """Time is up for that pause: if nothing has stopped, tell why and what helps."""
        text = self._pausing.unanswered(asked)
        return [*self._flush_output(), self.console(text, "important")] if text else []

    @property
    def due_s(self) -> float | None:
        """When to call `on_time` (same clock as from_adapter's); None: not needed."""
        return self.output.due_s

    def on_time(self, now_s: float) -> list[bytes]:
        """Output that was held, once `due_s` is reached."""
        self._now_s = now_s
        out: list[bytes] = []
        if self.due_s is not None and now_s >= self.due_s:
            self.output.drain(out, now_s)
        return out

    # -- another adapter, other ranks --------------------------------------

    def next_adapter(self) -> list[bytes]:
        """The adapter died before `attach`: what to tell the one that takes its place.

        What the editor has been answered already it is not answered again.
        """
        self._had = frozenset(self._answered)
        return list(self._said)

    def child_configuration(self, name: str, **more: object) -> Message:
        """Return the attach arguments of a child session; `more` goes on top."""
        return child_configuration(self.facts.attach_arguments, name, **more)

    def start_child(self, configuration: Message) -> bytes:
        """A message that makes the editor open a child session.

        The request `startDebugging`, whose response stays here; for clients without it
        debugpy's own event `debugpyAttach`.
        """
        return self._own.start_child(configuration, by_request=self.facts.supports_start_debugging)

    def console(self, text: str, category: str = "console") -> bytes:
        """Return a line for the editor's debug console."""
        return self._own.console(text, category)

    # -- inside ------------------------------------------------------------

    def _told_end(self) -> list[bytes]:
        # Of a child process of the debuggee only the adapter knows the end.
        waits = self._hold_end and self.facts.has_program
        return self._end.due(
            waits=waits and not self.facts.disconnected,
            tells=self.facts.attached,
            aloud=self.facts.goodbye is None,
        )

    def _flush(self) -> list[bytes]:
        return [*self._flush_output(), *self._breakpoints.let_all_go()]

    def _flush_output(self) -> list[bytes]:
        out: list[bytes] = []
        self.output.drain(out, self._now_s)
        return out
