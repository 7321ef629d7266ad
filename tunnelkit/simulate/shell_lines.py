"""The simple commands of a shell script, as far as its text shows them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

_MOST_LINES = 20_000
_HERE = re.compile(r"<<(-?)\s*(\\?)(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\3")
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.S)
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_FUNCTION = re.compile(r"\s*(?:function\s+[\w:.-]+|[\w:.-]+\s*\(\s*\))\s*(?:\(\s*\))?\s*\{?\s*$")
#: What ends a simple command; `||` makes the next one a remedy, which may never run.
_ENDS = frozenset({";", "&", "&&", "|", "|&", "(", ")", ";;"})
_REDIRECTS = frozenset({">", ">>", "<", "<<<", ">&", "<&", "&>", "&>>", ">|", "<<"})
_OPENS, _CLOSES = frozenset({"if", "case"}), frozenset({"fi", "esac"})
_KEYWORDS = frozenset(
    {"then", "do", "else", "elif", "while", "until", "!", "{", "}", "done", "time"}
)


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """One command. assigned: the variables set for it alone. line: from 1."""

    words: tuple[str, ...]
    line: int
    assigned: tuple[tuple[str, str], ...] = ()


def simple_commands(text: str) -> Iterator[SimpleCommand]:
    """Yield the commands that run in any case: not those in an `if`, a `case` or a function.

    Variables that the script itself has set to plain text are put in their places; a word that
    holds anything else keeps its `$`."""
    known: dict[str, str] = {}
    depth = 0
    for number, line in _lines(text):
        tokens = _tokens(line)
        if tokens is None:
            continue
        in_function = _FUNCTION.match(line) is not None
        if in_function:
            depth += 1
        for words, sure in _split(tokens):
            opened = words[0] in _OPENS if words else False
            if opened:
                depth += 1
            if (words and words[0] in _CLOSES) or (words == ["}"] and depth):
                depth -= 1
            if depth or not sure or opened:
                continue
            rest = list(words)
            while rest and rest[0] in _KEYWORDS:
                del rest[0]
            yield from _command(rest, number, known)


def _command(rest: list[str], number: int, known: dict[str, str]) -> Iterator[SimpleCommand]:
    words = [_put(word, known) for word in rest]
    assigned: list[tuple[str, str]] = []
    while words and (match := _ASSIGNED.fullmatch(words[0])):
        assigned.append((match[1], match[2]))
        del words[0]
    if words:
        yield SimpleCommand(tuple(words), number, tuple(assigned))
        if words[0] in ("export", "declare", "readonly", "local"):
            assigned += [(one[1], one[2]) for w in words[1:] if (one := _ASSIGNED.fullmatch(w))]
        else:
            return
    known.update((name, value) for name, value in assigned if "`" not in value)


def is_plain(word: str) -> bool:
    """Return True if nothing in the word is for the shell to find out."""
    return not re.search(r"[$`*?\[]", word)


def _put(word: str, known: dict[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        return known.get(match[1] or match[2], match[0])

    return _VARIABLE.sub(value, word)[:4096]


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers: continued ones as one, without here-documents."""
    rows = text.split("\n")[:_MOST_LINES]
    at = 0
    while at < len(rows):
        number, line = at + 1, rows[at]
        at += 1
        while line.endswith("\\") and at < len(rows):
            line = line[:-1] + " " + rows[at]
            at += 1
        yield number, line
        for match in _HERE.finditer(line):
            while at < len(rows) and rows[at].strip() != match[4]:
                at += 1
            at += 1


def _tokens(line: str) -> list[str] | None:
    """Return the words and operators; None for what is no whole command in this line."""
    if "`" in line or "$(" in line or "<(" in line:
        # Its output is not known, nor always where it ends.
        line = re.sub(r"\$\([^()]*\)|`[^`]*`", "$_", line)
        if "`" in line or "$(" in line or "<(" in line:
            return None
    try:
        reader = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")
        reader.whitespace_split = True
        reader.commenters = ""
        return _uncommented(list(reader), line)
    except ValueError:
        return None


def _uncommented(tokens: list[str], line: str) -> list[str]:
    if "#" not in line:
        return tokens
    return tokens[: next((at for at, one in enumerate(tokens) if one.startswith("#")), None)]


def _split(parts: list[str]) -> Iterator[tuple[list[str], bool]]:
    """Yield simple commands without their redirections, and whether they run in any case."""
    words: list[str] = []
    sure = True
    skip = False
    for part in [*parts, ";"]:
        if skip:
            skip = False
        elif part in _REDIRECTS:
            skip = True
            if words and words[-1].isdigit():
                del words[-1]
        elif part in _ENDS or part == "||":
            if words:
                yield words, sure
            words, sure = [], part != "||"
        elif set(part) <= set("();<>|&"):
            sure = False
        else:
            words.append(part)
