"""Exceptions as Python prints them at its end, read from lines without labels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tunnelkit.diagnosis.ended.log.streams import Line

HEADER = "Traceback (most recent call last):"
FATAL = "Fatal Python error"
_ORIGINAL = f"Original {HEADER}"  # torch.utils.data, DataParallel
_GROUP = f"+ Exception Group {HEADER}"
_CONTEXT = "During handling of the above exception, another exception occurred:"
_LINKS = (_CONTEXT, "The above exception was the direct cause of the following exception:")
_FRAME = re.compile(r'\s{1,40}File "(.+)", line ([0-9]{1,9})(?:,? in (.+))?$')
_TYPE = re.compile(r"([A-Za-z_][\w.<>]*)(?::(?: (.*))?)?$")
_SYNTAX = re.compile(r"(SyntaxError|IndentationError|TabError): (.*)")
_FATAL = re.compile(rf"{FATAL}: (.*)")
_THREAD = re.compile(r"Exception in thread (.+?)(?: \(.*\))?:$")
_CURRENT = re.compile(r"Current thread 0x[0-9a-fA-F]+.*\(most recent call first\):$")
_OTHER_THREAD = re.compile(r"Thread 0x[0-9a-fA-F]+.*\(most recent call first\):$")
#: Lines before a traceback that ends no program.
_IGNORED = (
    "Exception ignored ",
    "Task exception was never retrieved",
    "Error in atexit._run_exitfuncs:",
    "--- Logging error ---",
)
#: Those of callbacks that Python runs when the program has ended, with its exit code.
_AT_EXIT = ("Exception ignored in atexit callback", "Error in atexit._run_exitfuncs:")
_CALL_STACK = "Call stack:"  # logging, below the type
_NO_TYPES = frozenset({"Message", "Arguments"})
#: A process of multiprocessing's own, which outlives the program.
_TRACKER = re.compile(r"multiprocessing[/\\]resource_tracker\.py$")
_PART = re.compile(r"\s*\+[-+]*-{3,} (?:[0-9]+|\.\.\.) -{3,}$")
_BOX = re.compile(r"\s*\| ?")
# Lines right behind a message that are certainly no part of it.
_NOT_MESSAGE = re.compile(
    r"srun: |slurmstepd: |mpirun |[=\-]{5,}|[WEI][0-9]{4} |Exception |Process |\[|"
    r"Extension modules:"
)
#: Lines of other origin that may stand among frames; what is kept of long chains and stacks.
_MOST_NOISE = 5
_MOST_FRAMES = 200
_MOST_RAISED = 50
_MOST_TEXT = 20
_LINK_WITHIN = 40
_FATAL_WITHIN = 5_000


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a stack.

    function: "" in the place of a syntax error. source: "" if it was not printed.
    """

    file: str
    line: int
    function: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Raised:
    """One exception. frames: the innermost last.

    message: with the indented lines below it. notes: the lines that follow it, where it is certain
    that they belong to it (further lines of the message, `add_note`). after: the lines right behind
    it where it is not. parts: the exceptions of a group. handled: the next one of the chain was
    raised while the program handled this one, which need not be its cause. first_line: from 1; 0:
    not known.
    """

    type: str
    message: str
    frames: tuple[Frame, ...] = ()
    notes: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    parts: tuple[Raised, ...] = ()
    handled: bool = False
    first_line: int = 0


@dataclass(frozen=True, slots=True)
class Chain:
    """Exceptions that were printed together, the first cause first.

    first_line, last_line: from 1, in the whole text. thread: its name, if it was not the main one.
    ignored: it ended no program, not even a thread. begin: the line that says so, or the first.
    at_exit: the program had ended.
    """

    raised: tuple[Raised, ...]
    first_line: int
    last_line: int
    thread: str = ""
    ignored: bool = False
    begin: int = 0
    at_exit: bool = False


@dataclass(frozen=True, slots=True)
class _Read:
    """An exception and the index of the first line behind it."""

    raised: Raised | None
    end: int


def chains(lines: Sequence[Line]) -> list[Chain]:
    """Return all that was printed, in order."""
    found: list[Chain] = []
    at = 0
    while at < len(lines):
        chain, end = _chain(lines, at)
        if chain is not None:
            found.append(_announced(chain, lines, at))
        at = max(end, at + 1)
    return found


def _announced(chain: Chain, lines: Sequence[Line], at: int) -> Chain:
    """Add what the lines before it say about it: that it ended no program, or a thread only."""
    for line in lines[max(0, at - 2) : at]:
        if line.text.startswith(_IGNORED):
            at_exit = line.text.startswith(_AT_EXIT)
            return replace(chain, ignored=True, begin=line.number, at_exit=at_exit)
    thread = _THREAD.match(lines[at - 1].text) if at else None
    if thread:
        return replace(chain, thread=thread[1], begin=lines[at - 1].number)
    frames = chain.raised[-1].frames
    tracker = bool(frames) and frames[-1].function == "main" and _TRACKER.search(frames[-1].file)
    return replace(chain, ignored=bool(tracker), begin=chain.first_line)


def _chain(lines: Sequence[Line], begin: int) -> tuple[Chain | None, int]:
    """Read an exception and those linked with it."""
    raised: list[Raised] = []
    at = begin
    while True:
        read = _one(lines, at)
        if read.raised is None:
            break
        one = replace(read.raised, first_line=lines[at].number)
        original = lines[at].text.startswith(_ORIGINAL) and raised
        raised.insert(0, one) if original else raised.append(one)
        end, linked, handled = _link(lines, read.end)
        if linked is None:
            raised[-1] = replace(raised[-1], after=_after(lines, read.end))
            break
        raised[-1] = replace(raised[-1], notes=raised[-1].notes + linked, handled=handled)
        at = end
    if not raised:
        return None, read.end
    last = lines[read.end - 1].number
    kept = tuple(raised[: _MOST_RAISED // 2] + raised[_MOST_RAISED // 2 :][-_MOST_RAISED // 2 :])
    return Chain(kept, lines[begin].number, last), read.end


def _one(lines: Sequence[Line], at: int) -> _Read:
    """Read the exception that begins at this line; none if none begins here."""
    text = lines[at].text
    if text.endswith(_GROUP):
        return _group(lines, at)
    if text.endswith(HEADER) and not text.startswith("  traceback : "):
        return _plain(lines, at)
    if text.startswith(FATAL):
        return _fatal(lines, at)
    frame = _frame(text)
    if frame is not None and not frame.function:
        return _syntax(lines, at)
    return _Read(None, at + 1)


def _begins(text: str) -> bool:
    return text.endswith(HEADER) or text.startswith(FATAL)


def _frame(text: str) -> Frame | None:
    match = _FRAME.match(text)
    return Frame(match[1], int(match[2]), match[3] or "") if match else None


def _plain(lines: Sequence[Line], begin: int) -> _Read:
    """Read `Traceback (most recent call last):`, frames, type and message."""
    frames: list[Frame] = []
    at, noise = begin + 1, 0
    while at < len(lines) and noise <= _MOST_NOISE and not _begins(lines[at].text):
        text = lines[at].text
        if not text.strip():
            pass
        elif text[0].isspace():
            _add(frames, text)
        elif frames and _is_type(lines, at):
            return _message(lines, at, frames)
        else:
            noise += 1
        at += 1
    return _Read(None, at)


def _add(frames: list[Frame], text: str) -> None:
    """Note a frame, or the source line of the last one."""
    frame = _frame(text)
    if frame is not None:
        if len(frames) >= _MOST_FRAMES:
            del frames[_MOST_FRAMES // 2]
        frames.append(frame)
    elif frames and not frames[-1].source and not text.lstrip().startswith("["):
        frames[-1] = replace(frames[-1], source=text.strip())


def _is_type(lines: Sequence[Line], at: int) -> bool:
    """Tell if a line is the type and message: no further frame comes behind it."""
    match = _TYPE.match(lines[at].text)
    if match is None or match[1] in _NO_TYPES:
        return False
    for line in lines[at + 1 : at + 1 + _MOST_NOISE]:
        if _begins(line.text) or line.text == _CALL_STACK:
            break
        frame = _frame(line.text)
        if frame is not None and frame.function:
            return False
    return True


def _message(lines: Sequence[Line], at: int, frames: Sequence[Frame]) -> _Read:
    match = _TYPE.match(lines[at].text)
    if match is None:
        return _Read(None, at + 1)
    message = [match[2] or ""]
    end = at + 1
    while end < len(lines) and len(message) < _MOST_TEXT:
        text = lines[end].text
        if not text[:1].isspace() or not text.strip() or _begins(text) or _frame(text):
            break
        message.append(text)
        end += 1
    return _Read(Raised(match[1], "\n".join(message), tuple(frames)), end)


def _syntax(lines: Sequence[Line], at: int) -> _Read:
    """Read a syntax error of the program itself: it has a place, but no traceback."""
    frames: list[Frame] = []
    for end in range(at, min(at + 5, len(lines))):
        match = _SYNTAX.match(lines[end].text)
        if match:
            return _Read(Raised(match[1], match[2], tuple(frames)), end + 1)
        if not lines[end].text[:1].isspace():
            break
        _add(frames, lines[end].text)
    return _Read(None, at + 1)


def _fatal(lines: Sequence[Line], begin: int) -> _Read:
    """Read what faulthandler prints: the stack of the current thread, innermost frame first."""
    match = _FATAL.match(lines[begin].text)
    if match is None:
        return _Read(None, begin + 1)
    frames: list[Frame] = []
    current, end = False, begin + 1
    for at in range(begin + 1, min(begin + _FATAL_WITHIN, len(lines))):
        text = lines[at].text
        frame = _frame(text)
        if _CURRENT.match(text) or _OTHER_THREAD.match(text):
            current = text.startswith("Current")
        elif frame is not None:
            if current and len(frames) < _MOST_FRAMES:
                frames.append(frame)
        elif text.strip() and not text.startswith(("  ", "Python runtime state:")):
            break
        else:
            continue
        end = at + 1
    return _Read(Raised(FATAL, match[1], tuple(reversed(frames))), end)


def _group(lines: Sequence[Line], begin: int) -> _Read:
    """Read an exception group: a box whose parts are exceptions themselves."""
    sections: list[list[Line]] = [[]]
    end = begin + 1
    while end < len(lines):
        text = lines[end].text
        box = _BOX.match(text)
        if _PART.match(text):
            sections.append([])
        elif box:
            sections[-1].append(replace(lines[end], text=text[box.end() :]))
        elif not text.lstrip().startswith("+-"):
            break
        end += 1
    whole = _section(sections[0])
    if whole is None:
        return _Read(None, end)
    parts = [_section(one) for one in sections[1 : 1 + _MOST_RAISED]]
    # A group within a group: its own parts follow it here.
    single = (one for one in parts if one is not None and "sub-exception" not in one.message)
    return _Read(replace(whole, parts=tuple(single)), end)


def _section(lines: Sequence[Line]) -> Raised | None:
    """Read one section of a group's box. Its header may be there or not."""
    if not lines:
        return None
    text = lines[0].text
    if text.startswith("  File "):
        return _plain([Line(lines[0].number, HEADER), *lines], 0).raised
    if _begins(text):
        read = _plain(lines, 0)
        return read.raised
    return _message(lines, 0, ()).raised


def _link(lines: Sequence[Line], at: int) -> tuple[int, tuple[str, ...] | None, bool]:
    """Find the next exception: its first line, the lines before it, and if this one was handled."""
    if at < len(lines) and lines[at].text.startswith(_ORIGINAL):
        return at, (), False
    between: list[str] = []
    for end in range(at, min(at + _LINK_WITHIN, len(lines))):
        text = lines[end].text
        if text.lstrip("| ") in _LINKS:
            begin = end + 1
            while begin < min(end + 3, len(lines)) and not lines[begin].text.strip("| "):
                begin += 1
            return begin, tuple(between[:_MOST_TEXT]), text.lstrip("| ") == _CONTEXT
        if _begins(text):
            break
        if text.strip() and text != '"""':
            between.append(text)
    return at, None, False


def _after(lines: Sequence[Line], at: int) -> tuple[str, ...]:
    found: list[str] = []
    for line in lines[at : at + 5]:
        if not line.text.strip() or _begins(line.text) or _NOT_MESSAGE.match(line.text):
            break
        found.append(line.text)
    return tuple(found)
