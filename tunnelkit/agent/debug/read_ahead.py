"""Requests that an editor is about to send, asked as soon as the program has stopped. Sans-IO.

Rules of this file:

- The debuggee is asked what the session's plan says (mux/dap_ahead.py), once a stop, and nothing
  after a request has passed that may change something.
- A stop's answers go to the session unasked up to a number of bytes; what is longer waits here
  until it is wanted.
- Variables run code of the program. Once they have been slow, they are left to the editor.
"""

import re
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from tunnelkit.mux import dap_ahead
from tunnelkit.mux.dap_ahead import Json, Path, Places

#: Of variables' answers, and of all answers of a stop: then nothing more is asked.
_SLOW_S, _STOP_S = 0.1, 0.25
_MOST_DROPPED = 64
_OWN_ANSWER = re.compile(rb'"request_seq"\s*:\s*(\d{15,18})\b')


class Moved(NamedTuple):
    """Bodies for each side."""

    to_session: List[bytes]
    to_debuggee: List[bytes]


class _Step(NamedTuple):
    command: str
    arguments: Json
    path: Path


class _Asked(NamedTuple):
    step: _Step
    arguments: Json
    at_s: float
    stop: int


class ReadAhead:
    """The read-ahead of one debuggee. clock: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._steps: List[_Step] = []
        self._seq = dap_ahead.AGENT_SEQ
        self._stop = 0
        self._slow = False
        self._asked: Dict[int, _Asked] = {}
        self.reset()

    def reset(self) -> None:
        """Begin with another session: it has no plan yet."""
        self._plan: Optional[List[_Step]] = None
        self._passed = 0
        self._wanted: Dict[int, object] = {}
        self._held: Dict[int, bytes] = {}
        self._dropped: Dict[int, Tuple[str, Json]] = {}
        self._end_stop()

    def down(self, body: bytes) -> Moved:
        """Take a message of the session."""
        if self._plan is None and b'"tk' not in body:
            return Moved([], [body])
        message = dap_ahead.parse(body)
        command, arguments = message.get("command"), dap_ahead.part(message, "arguments")
        if command == dap_ahead.PLAN:
            self._plan = _plan(arguments.get("plan"))
            return Moved([], [])
        if command == dap_ahead.WANT:
            return self._want(arguments.get("number"), arguments.get("wanted"))
        asks = message.get("type") == "request" and self._plan is not None
        if asks and not dap_ahead.is_harmless(str(command), arguments):
            self._passed += 1
            self._end_stop()
        return Moved([], [body])

    def up(self, body: bytes) -> Moved:
        """Take a message of the debuggee."""
        own = _OWN_ANSWER.search(body, 0, 200)
        if own is not None and int(own.group(1)) in self._asked:
            return self._answered(int(own.group(1)), body)
        if self._plan is not None and b'"stopped"' in body[:200]:
            event = dap_ahead.parse(body)
            if event.get("event") == "stopped":
                self._end_stop()
                self._begin(dap_ahead.part(event, "body").get("threadId"))
                asked = self._ask()
                return Moved([body, *asked.to_session], asked.to_debuggee)
        return Moved([body], [])

    # -- inside -----------------------------------------------------------

    def _begin(self, thread: object) -> None:
        self._places = Places(thread)
        self._steps = list(self._plan or ())
        self._left = dap_ahead.STOP_BYTES
        self._until_s = self._clock() + _STOP_S

    def _end_stop(self) -> None:
        """Drop all: it is worth nothing from now on."""
        self._stop += 1
        self._steps = []
        self._left = 0
        self._until_s = 0.0
        self._places = Places(None)
        for number in self._held:
            self._drop(number)
        self._held = {}

    def _drop(self, number: int) -> None:
        """Keep the request of an answer that goes: the session may not know yet."""
        asked = self._asked.pop(number, None)
        if asked is not None:
            self._dropped[number] = (asked.step.command, asked.arguments)
            while len(self._dropped) > _MOST_DROPPED:
                del self._dropped[next(iter(self._dropped))]

    def _ask(self) -> Moved:
        """Ask what can be asked by now."""
        asked: List[object] = []
        requests: List[bytes] = []
        waiting: List[_Step] = []
        now_s = self._clock()
        for step in self._steps if now_s < self._until_s else ():
            number = self._places.number(step.path) if step.path else 0
            if number is None:
                waiting.append(step)
                continue
            if step.command == "variables" and self._slow:
                continue
            key = dap_ahead.NUMBERED[step.command]
            arguments = dict(step.arguments, **{key: number}) if key else step.arguments
            self._seq += 1
            self._asked[self._seq] = _Asked(step, arguments, now_s, self._stop)
            asked.append([self._seq, step.command, arguments])
            requests.append(dap_ahead.request(self._seq, step.command, arguments))
        self._steps = waiting
        if not asked:
            return Moved([], [])
        report: Json = {"passed": self._passed, "asked": asked}
        return Moved([dap_ahead.event(dap_ahead.ASKED, report)], requests)

    def _answered(self, number: int, body: bytes) -> Moved:
        asked = self._asked[number]
        slow = asked.step.command == "variables" and self._clock() - asked.at_s > _SLOW_S
        self._slow = self._slow or slow
        more = Moved([], [])
        if asked.stop == self._stop:
            response = dap_ahead.parse(body)
            self._places.learn(asked.step.command, asked.step.path, asked.arguments, response)
            more = self._ask()
        if number in self._wanted:
            del self._asked[number]
            out = [dap_ahead.answer_to(self._wanted.pop(number), body)]
        elif asked.stop != self._stop:
            self._drop(number)
            out = []
        elif len(body) <= self._left:
            self._left -= len(body)
            del self._asked[number]
            out = [body]
        else:
            self._held[number] = body
            out = []
        return Moved([*out, *more.to_session], more.to_debuggee)

    def _want(self, number: object, wanted: object) -> Moved:
        """Send an answer now, or once it is there. One that was sent has met the question."""
        if not isinstance(number, int) or not isinstance(wanted, int):
            return Moved([], [])
        if number in self._held:
            del self._asked[number]
            return Moved([dap_ahead.answer_to(wanted, self._held.pop(number))], [])
        if number in self._asked:
            self._wanted[number] = wanted
        elif number in self._dropped:
            command, arguments = self._dropped.pop(number)
            return Moved([], [dap_ahead.request(wanted, command, arguments)])
        return Moved([], [])


def _plan(value: object) -> List[_Step]:
    steps = []
    for one in dap_ahead.items(value)[: dap_ahead.MOST_STEPS]:
        command, path = one.get("command"), dap_ahead.path_of(one.get("path"))
        if isinstance(command, str) and command in dap_ahead.NUMBERED and path is not None:
            steps.append(_Step(command, dap_ahead.part(one, "arguments"), path))
    return steps
