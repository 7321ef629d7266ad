"""A program's output on its way to the editor: joined, and capped when it floods.

`print("line", i)` is four events of 120 bytes each (pydevd sends every write), and an
editor's console draws each of them. Those that arrive together go on together. Nothing
waits that is within the limits; beyond them the end of the text is kept, the rest is
counted and left out: the agent's log has all of it. It has nothing of log points: their text
goes to the loop's record (`take_unlogged`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tunnelkit.debug.dap.messages import Message, OutputBody, dump, section

#: Numbers an event of our own and makes it a body.
MakeEvent = Callable[[str, Mapping[str, object]], bytes]

#: What an event weighs beside its text.
_EVENT_BYTES = 120

_JOINED = frozenset({"console", "stdout", "stderr"})


@dataclass(frozen=True)
class OutputLimits:
    """burst_bytes may go at once, then rate_bytes_s, both as bytes of DAP bodies.

    tail_bytes: about how much of the end of a flood is kept, so that its last lines are
    there when the program stops.
    """

    burst_bytes: int = 64 * 1024
    rate_bytes_s: int = 256 * 1024
    tail_bytes: int = 8 * 1024


@dataclass
class _Run:
    """Text of one kind: all of the event but its text is the same."""

    message: Message
    kind: Message
    texts: list[str] = field(default_factory=list)
    #: The event as it came, while it is the only one.
    body: bytes | None = None


class OutputLimiter:
    """Output events in, fewer and bounded ones out; order is kept.

    `out` of each method takes the bodies for the editor. now_s: seconds of any clock
    that does not go back. Call `settle` once all that arrived together is in, `drain`
    before an event that must not overtake output, and `drain` again at `due_s`.
    """

    def __init__(self, limits: OutputLimits, make_event: MakeEvent) -> None:
        #: When what is held goes on; None: nothing is held.
        self.due_s: float | None = None
        #: Lines left out so far, all in all.
        self.left_out_lines = 0
        #: True: the program's own stdout is sent, which the log has, too.
        self.redirects = True
        self._with_log_points: set[str] = set()
        self._unlogged: list[str] = []
        self._limits = limits
        self._make_event = make_event
        self._run: _Run | None = None
        self._held: list[_Run] = []
        self._held_bytes = 0
        self._dropped_lines = 0
        self._dropped_chars = 0
        self._budget = float(limits.burst_bytes)
        self._budget_at_s: float | None = None
        self._at_line_start = True

    @property
    def is_logged(self) -> bool:
        """False: what is left out must be taken by `take_unlogged`."""
        return self.redirects and not self._with_log_points

    def note_log_points(self, path: object, breakpoints: Sequence[Message]) -> None:
        """Note a file's breakpoints. pydevd sends a log point's text as output, which the program's
        stdout never has; while there is one, the log gets some of stdout twice."""
        if any(one.get("logMessage") for one in breakpoints):
            self._with_log_points.add(str(path))
        else:
            self._with_log_points.discard(str(path))

    def take(self, body: bytes, message: Message, out: list[bytes], now_s: float) -> bool:
        """Take an output event; False if it is of a kind that passes by itself."""
        fields = section(message, "body")
        text = fields.get("output")
        if not isinstance(text, str) or not _may_be_joined(fields):
            return False
        kind = {key: value for key, value in fields.items() if key != "output"}
        if self._run is not None and self._run.kind == kind:
            self._run.texts.append(text)
            self._run.body = None
            return True
        self.settle(out, now_s)
        self._run = _Run(message, kind, [text], body)
        return True

    def settle(self, out: list[bytes], now_s: float) -> None:
        """Pass on what was joined, or hold it if there is too much."""
        if self.due_s is not None and now_s >= self.due_s:
            self._release(out, now_s)
        run, self._run = self._run, None
        if run is None:
            return
        if self.due_s is not None:
            self._hold(run)
            return
        body = run.body or _body_of(run)
        if len(body) <= self._refill(now_s):
            self._send(out, body, run)
        else:
            self._close(run, out, now_s)

    def drain(self, out: list[bytes], now_s: float) -> None:
        """Pass on all that is held, after a line that tells what was left out."""
        self.settle(out, now_s)
        if self.due_s is not None:
            self._release(out, now_s)

    def take_unlogged(self) -> str:
        """Return the text left out since the last call that is nowhere else."""
        taken, self._unlogged = "".join(self._unlogged), []
        return taken

    def _close(self, run: _Run, out: list[bytes], now_s: float) -> None:
        """The budget is used up: as many whole lines as it still has, then hold."""
        text = "".join(run.texts)
        head = _fitting(text, int(self._budget) - len(_body_of(_Run(run.message, run.kind))))
        if head:
            first = _Run(run.message, run.kind, [head])
            self._send(out, _body_of(first), first)
        if len(head) == len(text):
            return
        # Not before the whole burst is there again: one note a burst, not one a message.
        missing = self._limits.burst_bytes - self._budget
        self.due_s = now_s + missing / self._limits.rate_bytes_s
        self._hold(_Run(run.message, run.kind, [text[len(head) :]]))

    def _hold(self, run: _Run) -> None:
        text = "".join(run.texts)
        if self._held and self._held[-1].kind == run.kind:
            self._held[-1].texts = ["".join([*self._held[-1].texts, text])]
        else:
            self._held.append(_Run(run.message, run.kind, [text]))
            self._held_bytes += _EVENT_BYTES
        self._held_bytes += len(text)
        while (over := self._held_bytes - self._limits.tail_bytes) > 0 and self._held:
            first = self._held[0].texts[0]
            if len(first) <= over:
                del self._held[0]
                self._held_bytes -= _EVENT_BYTES
                self._drop(first)
                continue
            line_end = first.find("\n", over - 1)
            cut = line_end + 1 if 0 <= line_end < len(first) - 1 else over
            self._held[0].texts = [first[cut:]]
            self._drop(first[:cut])

    def _drop(self, text: str) -> None:
        self._held_bytes -= len(text)
        if not self.is_logged:
            self._unlogged.append(text)
        self._dropped_chars += len(text)
        self._dropped_lines += text.count("\n")

    def _release(self, out: list[bytes], now_s: float) -> None:
        self._refill(now_s)
        self.due_s = None
        if self._dropped_chars:
            note = self._note()
            self._send(out, self._make_event("output", note), _Run({}, {}, [note["output"]]))
        held, self._held, self._held_bytes = self._held, [], 0
        for run in held:
            self._send(out, _body_of(run), run)

    def _note(self) -> OutputBody:
        if self._dropped_lines:
            noun = "line" if self._dropped_lines == 1 else "lines"
            what = f"{self._dropped_lines:,} {noun}"
        else:
            what = f"{self._dropped_chars:,} characters"
        self.left_out_lines += self._dropped_lines
        self._dropped_lines = self._dropped_chars = 0
        start = "" if self._at_line_start else "\n"
        where = "all of it: tk logs" if self.is_logged else "see tk logs"
        text = f"{start}... {what} left out; {where}\n"
        return {"category": "console", "output": text}

    def _send(self, out: list[bytes], body: bytes, run: _Run) -> None:
        out.append(body)
        # Output that must go is a debt of the budget, up to a limit.
        self._budget = max(self._budget - len(body), -float(self._limits.burst_bytes))
        if run.texts[-1]:
            self._at_line_start = run.texts[-1].endswith("\n")

    def _refill(self, now_s: float) -> float:
        if self._budget_at_s is not None:
            grown = max(0.0, now_s - self._budget_at_s) * self._limits.rate_bytes_s
            self._budget = min(self._budget + grown, float(self._limits.burst_bytes))
        self._budget_at_s = now_s
        return self._budget


def _may_be_joined(fields: Message) -> bool:
    return (
        fields.get("category", "console") in _JOINED
        and not fields.get("variablesReference")
        and "group" not in fields
        and "data" not in fields
    )


def _body_of(run: _Run) -> bytes:
    return dump({**run.message, "body": {**run.kind, "output": "".join(run.texts)}})


def _fitting(text: str, room_bytes: int) -> str:
    """The longest beginning that is surely within `room_bytes` of JSON, whole lines if any."""
    if room_bytes <= 0:
        return ""
    head = text[:room_bytes]
    while head and len(json.dumps(head)) - 2 > room_bytes:
        head = head[: len(head) // 2]
    line_end = head.rfind("\n")
    return head[: line_end + 1] if line_end >= 0 else head
