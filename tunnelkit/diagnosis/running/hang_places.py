"""The places where the programs of a job wait: by their Python stacks, else by the kernel."""

from __future__ import annotations

from collections.abc import Sequence

from tunnelkit.diagnosis.evidence.stacks import StackView, place, waits_in, where
from tunnelkit.diagnosis.evidence.window import NodeWindow, ProcessView
from tunnelkit.diagnosis.running.look import Look
from tunnelkit.diagnosis.verdict import Evidence

#: A process that waits, and the kernel's word for it (probe/waits.py).
Wait = tuple[NodeWindow, ProcessView, str]

_WORDS = {
    "futex": "a lock or another thread (futex)",
    "pipe": "data from a pipe",
    "receive": "data from a socket",
    "read": "a read",
    "write": "a write",
}
#: Python calls a function of C, which has no frame of its own.
_CALLS = {"receive": "recv()", "read": "read()", "pipe": "read()", "write": "write()"}
_MOST_LINES = 4
_MOST_PLACES = 2
_FRAMES = 4


def sentence(look: Look, waits: Sequence[Wait]) -> str:
    """Return `rank 3 waits in recv() at train.py:88`; the place of the fewest first. "" if no
    stack is known."""
    by_place: dict[str, list[Wait]] = {}
    for wait in waits:
        if text := _place_of(look, wait):
            by_place.setdefault(text, []).append(wait)
    order = sorted(by_place.items(), key=lambda row: len(row[1]))
    return "; ".join(_who(look, some, text) for text, some in order[:_MOST_PLACES])


def lines(look: Look, waits: Sequence[Wait]) -> list[Evidence]:
    """Return what each of the first processes waits for."""
    return [_line(look, wait) for wait in waits[:_MOST_LINES]]


def _line(look: Look, wait: Wait) -> Evidence:
    window, one, word = wait
    stack = look.stack_of(window, one)
    if stack is not None and stack.frames:
        return Evidence(f"{look.who(window, one)}: {_chain(look, stack)}", stack.source)
    return Evidence(
        f"{look.who(window, one)} waits for {_WORDS.get(word, word)}", "/proc/PID/syscall, wchan"
    )


def _place_of(look: Look, wait: Wait) -> str:
    window, one, word = wait
    stack = look.stack_of(window, one)
    frame = place(stack) if stack is not None else None
    if stack is None or frame is None:
        return ""
    called = waits_in(stack)
    inside = f"{called}()" if called else _CALLS.get(word, "")
    at = where(frame, look.job.directory)
    return f"in {inside} at {at}" if inside else f"at {at}"


def _who(look: Look, some: Sequence[Wait], text: str) -> str:
    window, one, _ = some[0]
    if len(some) == 1:
        return f"{look.who(window, one)} waits {text}"
    if look.has_ranks:
        ranks = [str(one.rank) for _, one, _ in some if one.rank is not None]
        shown = ", ".join(ranks[:4]) + (", ..." if len(ranks) > 4 else "")
        return f"{len(some)} ranks ({shown}) wait {text}"
    return f"{len(some)} processes wait {text}"


def _chain(look: Look, stack: StackView) -> str:
    """Return the innermost frames, the last call first."""
    frames = [
        f"{one.function}() at {where(one, look.job.directory)}" if one.line else f"{one.function}()"
        for one in reversed(stack.frames[-_FRAMES:])
    ]
    return ", called by ".join(frames)
