"""The main thread's stack in the output of `py-spy dump --json`, native frames among it.

The far side may send anything: any other text is refused in one line.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum, auto

from tunnelkit.debug.dap.messages import Message, objects, text, whole
from tunnelkit.debug.ranks.sample import StackFrame

#: Frames of a longer stack that are kept: the outermost and the innermost ones.
_OUTER, _INNER = 20, 80
_MOST_THREADS, _MOST_FRAMES = 4096, 10_000
_LONGEST_NAME, _LONGEST_REASON = 500, 200
_HIGHEST_LINE = 2**31
#: Code between a Python call and the function that it calls: the interpreter's and ctypes' own.
_GLUE = re.compile(r"(libpython|python|_ctypes\.|libffi\.)")
#: A function without a symbol: its address differs from process to process.
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
_REFUSED = re.compile(r"Permission denied|Operation not permitted|os error (1|13)\)", re.IGNORECASE)
_GONE = re.compile(r"No such (file or directory|process)|Check that the process is running")


class Refusal(Enum):
    """Kinds of failures. PTRACE: the system forbids it. GONE: there is no such process."""

    PTRACE = auto()
    GONE = auto()
    OTHER = auto()


@dataclass(frozen=True)
class NoStack:
    """A process without a stack. why: one line, as py-spy or its reader says it."""

    kind: Refusal
    why: str


@dataclass(frozen=True)
class NativeStack:
    """frames: of the main thread, outermost first; native ones have line 0 or one of C code.

    holds_gil: the main thread holds the interpreter's lock.
    """

    frames: tuple[StackFrame, ...]
    holds_gil: bool


def read_dump(output: bytes, pid: int, cwd: str = "") -> NativeStack | NoStack:
    """Read the output of one process. cwd: its working directory, for relative names of files."""
    said = output.decode("utf-8", "replace")
    start = re.search(r"^\[", said, re.MULTILINE)
    if start is None:
        return _refusal(said)
    try:
        threads = objects(json.loads(said[start.start() :]))[:_MOST_THREADS]
    except (ValueError, RecursionError, MemoryError):
        return NoStack(Refusal.OTHER, "py-spy's answer can't be read, or is too long")
    main = _main_thread(threads, pid)
    frames = _frames(main, cwd)
    if not frames:
        return NoStack(Refusal.OTHER, "py-spy has found no frame of the main thread")
    return NativeStack(frames, main.get("owns_gil") is True)


def _main_thread(threads: list[Message], pid: int) -> Message:
    """The thread with the process's number, else that of its name, else {}."""
    by_number = (one for one in threads if pid and whole(one.get("os_thread_id")) == pid)
    by_name = (one for one in threads if one.get("thread_name") == "MainThread")
    return next(by_number, None) or next(by_name, {})


def _frames(thread: Message, cwd: str) -> tuple[StackFrame, ...]:
    kept = [
        _frame(one, cwd) for one in objects(thread.get("frames"))[:_MOST_FRAMES] if _is_told(one)
    ]
    kept.reverse()
    if len(kept) > _OUTER + _INNER:
        kept[_OUTER:-_INNER] = []
    return tuple(kept)


def _is_told(frame: Message) -> bool:
    """False for frames of glue between two others."""
    module = text(frame.get("module")).rpartition("/")[2]
    name = text(frame.get("name"))
    return bool(name) and not (module and _GLUE.match(module)) and not _ADDRESS.fullmatch(name)


def _frame(frame: Message, cwd: str) -> StackFrame:
    file, line = text(frame.get("filename")), whole(frame.get("line")) or 0
    if cwd and file.endswith(".py") and not file.startswith(("/", "<")):
        file = f"{cwd.rstrip('/')}/{file.removeprefix('./')}"
    if not 0 <= line < _HIGHEST_LINE:
        line = 0
    return StackFrame(file[-_LONGEST_NAME:], line, text(frame.get("name"))[:_LONGEST_NAME])


def _refusal(said: str) -> NoStack:
    lines = [line.strip() for line in said[:100_000].splitlines() if line.strip()]
    why = next((line for line in lines if line.startswith("Error: ")), lines[0] if lines else "")
    why = why.removeprefix("Error: ")[:_LONGEST_REASON] or "py-spy said nothing"
    if _REFUSED.search(said):
        return NoStack(Refusal.PTRACE, why)
    return NoStack(Refusal.GONE if _GONE.search(said) else Refusal.OTHER, why)
