"""Python stacks of processes that do not run: from the session's debugger, or from py-spy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


class Held(Enum):
    """The hold of a debugger on a process. NOT: nothing that is known."""

    NOT = "not"
    #: At a breakpoint, a step or a pause.
    STOPPED = "stopped"
    #: At an uncaught exception.
    FAILED = "failed"
    #: Its program waits for an editor to begin, or in `debugpy.wait_for_client()`.
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame. line: 0 if unknown."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class StackView:
    """The main thread of one process. frames: outermost first. source: who has read them. rank:
    None if it is none, or not known."""

    node: str
    pid: int
    frames: tuple[Frame, ...] = ()
    held: Held = Held.NOT
    source: str = "py-spy"
    rank: int | None = None


#: Files of libraries: what waits there was called by the user's code.
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python", "/lib64/python")
_DEBUGGER = ("/debugpy/", "/pydevd", "/_pydevd_", "pydevd.py")
#: pydevd's functions in which a stopped thread waits, and debugpy's for a client.
_STOPS = frozenset({"do_wait_suspend", "_do_wait_suspend"})
_WAITS = frozenset({"wait_for_client", "wait_for_attach", "_wait_for_attach"})


def by_debugger(view: StackView) -> StackView:
    """Return the stack without the debugger's own frames; those tell what the debugger does."""
    # py-spy may name the class, too.
    theirs = {one.function.rpartition(".")[2] for one in view.frames if _is_debuggers(one)}
    held = view.held
    if held is Held.NOT and theirs & _STOPS:
        held = Held.STOPPED
    elif held is Held.NOT and theirs & _WAITS:
        held = Held.WAITING
    frames = view.frames
    if held is not Held.NOT:
        first = next((at for at, one in enumerate(frames) if _is_debuggers_call(frames, at)), None)
        frames = frames[:first]
    return replace(view, frames=frames, held=held)


def place(view: StackView) -> Frame | None:
    """Return the innermost frame of the user's code; else the innermost one that has a line."""
    known = [
        one
        for one in view.frames
        if one.line > 0 and one.file.endswith(".py") and not _is_debuggers(one)
    ]
    own = [one for one in known if _is_users(one)]
    return next(reversed(own or known), None)


def waits_in(view: StackView) -> str:
    """Return the function that the user's code called, and that has not returned; "" if unknown."""
    at = place(view)
    if at is None:
        return ""
    index = len(view.frames) - 1 - view.frames[::-1].index(at)
    inner = view.frames[index + 1 : index + 2]
    return inner[0].function if inner else ""


def where(frame: Frame, directory: str) -> str:
    """Return `train.py:88`. directory: the job's, below which names are short."""
    inside = directory and frame.file.startswith(f"{directory.rstrip('/')}/")
    name = frame.file[len(directory.rstrip("/")) + 1 :] if inside else frame.file.rpartition("/")[2]
    return f"{name}:{frame.line}"


def _is_users(frame: Frame) -> bool:
    return (
        frame.file.endswith(".py")
        and not any(part in frame.file for part in _LIBRARIES)
        and not _is_debuggers(frame)
    )


def _is_debuggers(frame: Frame) -> bool:
    return any(part in frame.file for part in _DEBUGGER)


def _is_debuggers_call(frames: tuple[Frame, ...], at: int) -> bool:
    """True where the user's code has called into the debugger: frames of the launch come before."""
    return _is_debuggers(frames[at]) and any(_is_users(one) for one in frames[:at])
