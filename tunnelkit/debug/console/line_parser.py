"""A line that the user types, read as a command.

A line that begins with the word of a command is that command only if it can be: `c = 1`, `a = 42`
and `list(x)` are Python. What is no command is Python, and the ranks say whether they understand.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from tunnelkit.debug.console.commands import (
    Attach,
    Break,
    Cast,
    Catch,
    ChooseFrame,
    Clear,
    Command,
    Detach,
    Evaluate,
    Go,
    Help,
    ListBreakpoints,
    ListRanks,
    Move,
    NameDimensions,
    Nothing,
    On,
    OpenEditor,
    Pause,
    Quit,
    RankLine,
    ShowArguments,
    ShowSource,
    Where,
)
from tunnelkit.debug.console.values import How
from tunnelkit.debug.ranks.text_errors import MarkedTextError
from tunnelkit.text_format import shown

#: Characters of a line.
LONGEST_LINE = 20_000
_WORD = re.compile(r"([A-Za-z]+!?)(?:[ \t]+|$)")
#: After a name: it is assigned to, or is the first part of an expression.
_OPERATOR = re.compile(
    r"[-+*/%@&|^<>!:]?=|(?:\*\*|//|<<|>>)=|[<>/%&|^.,;:)\]}]|(?:is|in|and|or|if|for|not in)\b"
)
#: The same for words that a selection may follow, as in `on :7` and `list *`.
_ASSIGNMENT = re.compile(r"[-+*/%@&|^:]?=|(?:\*\*|//|<<|>>)=")
_SELECTING = ("on", "list", "pause", "cast", "attach", "editor", "mesh")
#: A name may begin with these only in Python: `on - 3`.
_BINARY = re.compile(r"[-+*@]\s")
_NUMBER = re.compile(r"[0-9]{1,7}")
_LINES = re.compile(r"([0-9]{1,7})(?:\s*,\s*([0-9]{1,7}))?")
_PLACE = re.compile(r"(?:(?P<file>\S[^,\n]*):)?(?P<line>[0-9]{1,7})\s*(?:,\s*(?P<condition>.+))?")
#: What only a place can be, whatever it begins with: `/a/b.py:9`, `./b.py:9`, `in/b.py:9`.
_FILE_PLACE = re.compile(r"\S[^,\n]*\.py:[0-9]{1,7}\s*(?:,|$)")
_PLACING = ("b", "break", "tbreak", "cl", "clear")
_NUMBERS = re.compile(r"[0-9]{1,7}(?:\s+[0-9]{1,7})*")
_NAME = re.compile(r"[-_a-zA-Z0-9]+")
#: DAP's filters of debugpy, as `catch` has them.
_EXCEPTIONS = ("raised", "uncaught")

_ALONE: dict[str, Command] = {
    **dict.fromkeys(("n", "next"), Move("next")),
    **dict.fromkeys(("s", "step"), Move("stepIn")),
    **dict.fromkeys(("r", "return"), Move("stepOut")),
    **dict.fromkeys(("c", "cont", "continue"), Go()),
    **dict.fromkeys(("w", "where", "bt"), Where()),
    **dict.fromkeys(("u", "up"), ChooseFrame(1)),
    **dict.fromkeys(("d", "down"), ChooseFrame(-1)),
    **dict.fromkeys(("ll", "longlist"), ShowSource(whole=True)),
    **dict.fromkeys(("a", "args"), ShowArguments()),
    **dict.fromkeys(("b", "break", "tbreak"), ListBreakpoints()),
    **dict.fromkeys(("cl", "clear"), Clear()),
    **dict.fromkeys(("q", "quit", "exit", "EOF"), Quit()),
    **dict.fromkeys(("h", "help"), Help()),
    "on": On(),
    "detach": Detach(),
    "pause": Pause(),
    "mesh": NameDimensions(),
}
_VALUES: dict[str, tuple[How, bool]] = {
    "p": ("p", False),
    "pp": ("pp", False),
    "p!": ("p", True),
    "pp!": ("pp", True),
    "whatis": ("whatis", False),
}
#: Words of pdb that the debugger's protocol has no request for.
_NOT_CARRIED = (
    "alias",
    "commands",
    "condition",
    "debug",
    "disable",
    "display",
    "enable",
    "exceptions",
    "ignore",
    "interact",
    "j",
    "jump",
    "restart",
    "retval",
    "rv",
    "source",
    "unalias",
    "undisplay",
    "unt",
    "until",
)
#: These have a meaning without an argument, and are no likely names in a program.
_NOT_CARRIED_ALONE = ("interact", "unt", "until", "retval", "rv", "restart", "undisplay")


class LineError(MarkedTextError):
    """A line is no command, or its command can't be carried out. column: 0 if none is at fault."""


@dataclass(frozen=True)
class _Line:
    """text: the line. rest: what follows its first word, from `at` on."""

    text: str
    word: str
    rest: str
    at: int
    outer: bool

    def refuse(self, message: str, at: int | None = None) -> NoReturn:
        place = self.at if at is None else at
        raise LineError(message, text=self.text, column=place + 1)


def parse_line(text: str, *, outer: bool) -> Command:
    """Read a line. outer: it goes to all ranks, so `l` lists the ranks and not a source.

    Raises LineError, with a column where there is one.
    """
    if len(text) > LONGEST_LINE:
        raise LineError(f"a line of over {LONGEST_LINE:,} characters is not read")
    text = text.rstrip()
    stripped = text.lstrip()
    if not stripped:
        return Nothing()
    if stripped.startswith("!"):
        return Evaluate(_statement(text), "line")
    found = _WORD.match(stripped)
    if found is None:
        return Evaluate(stripped, "line")
    at = len(text) - len(stripped) + found.end()
    line = _Line(text, found[1], text[at:], at, outer)
    if not line.rest:
        command = _alone(line)
    elif line.word in _PLACING and _FILE_PLACE.match(line.rest):
        command = _with_rest(line)  # `b /x.py:9` is no Python
    elif (_ASSIGNMENT if line.word in _SELECTING else _OPERATOR).match(line.rest):
        command = None
    else:
        command = _with_rest(line)
    return Evaluate(stripped, "line") if command is None else command


def parse_rank_line(text: str) -> RankLine:
    """Read a line for ranks. Raises LineError for one that only the console could answer."""
    stripped = text.lstrip()
    found = _WORD.match(stripped)
    if found and found[1] == "cast" and not _ASSIGNMENT.match(stripped, found.end()):
        raise LineError("a cast is no line for ranks: cast ranks(0-3) n")
    command = parse_line(text, outer=False)
    if isinstance(command, RankLine):
        return command
    if isinstance(command, Quit):
        raise LineError("`q` ends no rank; the console is left by `q` alone")
    word = shown(text.split()[0]) if text.split() else "an empty line"
    raise LineError(f"{word} is a command of the console, and is not sent to ranks")


def _statement(text: str) -> str:
    source = text.lstrip()[1:].strip()
    if not source:
        raise LineError("Python is missing after !: !x = 1", text=text, column=len(text) + 1)
    return source


def _alone(line: _Line) -> Command | None:
    """A command of one word; None for Python."""
    word = line.word
    if word in ("l", "list"):
        return ListRanks() if line.outer else ShowSource()
    if word in ("kill", "stacks", "cast", "attach", "editor", "catch"):
        return _WITH_REST[word](line)
    if word in _NOT_CARRIED_ALONE:
        _refuse_pdb(line)
    return _ALONE.get(word)


def _with_rest(line: _Line) -> Command | None:
    """A command that has more than one word; None for Python."""
    if line.word in _VALUES:
        how, whole = _VALUES[line.word]
        return Evaluate(line.rest, how, whole)
    if line.word in _NOT_CARRIED and not _BINARY.match(line.rest):
        _refuse_pdb(line)
    read = _WITH_REST.get(line.word)
    if read is None or (line.word not in _SELECTING and _BINARY.match(line.rest)):
        return None
    return read(line)


def _refuse_pdb(line: _Line) -> NoReturn:
    raise LineError(
        f"{line.word} is a word of pdb that this console does not have; "
        f"as Python it is !{line.word}"
    )


# -- words with arguments ---------------------------------------------------------


def _list(line: _Line) -> Command | None:
    if line.rest == "-a":
        return ListRanks(each=True)
    if line.outer:
        return ListRanks(line.rest, line.at)
    found = _LINES.fullmatch(line.rest)
    if found is None:
        return None if line.word == "l" else ListRanks(line.rest, line.at)
    first, last = int(found[1]), int(found[2] or 0)
    # As pdb has it: a second number below the first one counts lines.
    return ShowSource(first, first + last if 0 < last < first else last)


def _frames(line: _Line) -> Command | None:
    if not _NUMBER.fullmatch(line.rest):
        return None
    count = int(line.rest)
    return ChooseFrame(count if line.word in ("u", "up") else -count)


def _break(line: _Line) -> Command | None:
    found = _PLACE.fullmatch(line.rest)
    if found is None:
        line.refuse("a breakpoint is set at FILE:LINE, LINE, or FILE:LINE, CONDITION")
    if int(found["line"]) == 0:
        line.refuse("lines count from 1", line.at + found.start("line"))
    return Break(
        (found["file"] or "").strip(),
        int(found["line"]),
        (found["condition"] or "").strip(),
        temporary=line.word == "tbreak",
    )


def _clear(line: _Line) -> Command | None:
    if _NUMBERS.fullmatch(line.rest):
        return Clear(tuple(map(int, line.rest.split())))
    found = _PLACE.fullmatch(line.rest)
    if found is None or not found["file"]:
        line.refuse("cl takes numbers of breakpoints, or FILE:LINE")
    return Clear(file=found["file"].strip(), line=int(found["line"]))


def _attach(line: _Line) -> Command | None:
    words = line.rest.split()
    if not words:
        line.refuse("the rank is missing: attach 13", len(line.text))
    if len(words) > 2:
        line.refuse("attach takes a name, if you like, and a rank: attach 13")
    at = len(line.text) - len(words[-1])
    if not _NUMBER.fullmatch(words[-1]):
        line.refuse("a rank is a number: attach 13", at)
    return Attach(words[-1], at)


def _editor(line: _Line) -> Command | None:
    if not _NUMBER.fullmatch(line.rest):
        line.refuse("editor takes the number of a rank: editor 13")
    return OpenEditor(line.rest, line.at)


def _catch(line: _Line) -> Command | None:
    words = line.rest.split()
    if words == ["off"]:
        return Catch(())
    if not words or not set(words) <= set(_EXCEPTIONS):
        line.refuse("catch takes raised, uncaught, both, or off: catch uncaught")
    return Catch(tuple(word for word in _EXCEPTIONS if word in words))


def _cast(line: _Line) -> Command | None:
    text, at = line.text, line.at
    name = _NAME.match(text, at)
    if name is not None and not text.startswith("ranks(", at):
        after = name.end()
        at = after + len(text[after:]) - len(text[after:].lstrip())
    if not text.startswith("ranks(", at):
        line.refuse("after cast comes ranks(...) in one word: cast ranks(0-3) n", at)
    start = at + len("ranks(")
    end = _closing(text, start)
    if end is None:
        line.refuse("the bracket of ranks( is not closed", len(text))
    rest = text[end + 1 :].strip()
    if not rest:
        line.refuse("the line for the ranks is missing: cast ranks(0-3) n", len(text))
    return Cast(text[start:end], start, rest, parse_rank_line(rest))


def _closing(text: str, at: int) -> int | None:
    """Index of the bracket that closes the one before `at`."""
    depth = 1
    for index in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[index], 0)
        if not depth:
            return index
    return None


def _kill(line: _Line) -> Command | None:
    raise LineError("tk loop's terminal ends the run: Ctrl-C there")


def _stacks(line: _Line) -> Command | None:
    raise LineError("use: tk ranks (or `list` for a line for each place)")


_WITH_REST: dict[str, Callable[[_Line], Command | None]] = {
    **dict.fromkeys(("l", "list"), _list),
    **dict.fromkeys(("u", "up", "d", "down"), _frames),
    **dict.fromkeys(("b", "break", "tbreak"), _break),
    **dict.fromkeys(("cl", "clear"), _clear),
    **dict.fromkeys(("h", "help"), lambda line: Help(line.rest.split()[0])),
    "on": lambda line: On(line.rest, line.at),
    "pause": lambda line: Pause(line.rest, line.at),
    "mesh": lambda line: NameDimensions(line.rest, line.at),
    "attach": _attach,
    "cast": _cast,
    "catch": _catch,
    "editor": _editor,
    "kill": _kill,
    "stacks": _stacks,
}
