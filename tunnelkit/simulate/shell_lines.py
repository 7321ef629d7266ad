"""The simple commands of a shell script, as far as its text shows them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from tunnelkit.scheduler.shell_text import shell_lines

_MOST_LINES = 20_000
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.S)
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_FUNCTION = re.compile(r"\s*(?:function\s+[\w:.-]+|[\w:.-]+\s*\(\s*\))\s*(?:\(\s*\))?\s*\{?\s*$")
#: What ends a simple command, in a pipeline or a list.
_ENDS = frozenset({";", "&", "&&", "||", "|", "|&", "(", ")", ";;"})
_REDIRECTS = frozenset({">", ">>", "<", "<<<", ">&", "<&", "&>", "&>>", ">|", "<<"})
_OPERATOR = re.compile(r"\(\)|&>>|<<<|&>|&&|\|\||\|&|;;|>>|<<|>&|<&|>\||[();<>|&]")
#: A script does not plan for their failure: what follows them after `&&` runs in any case.
_PREPARE = frozenset(
    re.split(
        " ",
        ". : cd conda date declare echo eval export hostname mamba micromamba mkdir ml module "
        "printf pushd pwd readonly set shopt source true ulimit umask unset",
    )
)
#: Output that only the shell will know; the innermost first.
_UNKNOWN = re.compile(r"\$\(\((?:[^()]|\([^()]*\))*\)\)|[$<>]\([^()]*\)|`[^`]*`")
_PWD = re.compile(r"\$\(\s*pwd\s*\)|`\s*pwd\s*`")
_MOST_NESTED = 8
_OPENS, _CLOSES = frozenset({"if", "case"}), frozenset({"fi", "esac"})
_KEYWORDS = frozenset(
    {"if", "then", "else", "elif", "fi", "while", "until", "do", "done", "{", "}", "!", "time"}
)


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """One command. assigned: the variables set for it alone. line: from 1.

    is_sure: it runs in any case: not only under a condition, nor in a function or a subshell."""

    words: tuple[str, ...]
    line: int
    assigned: tuple[tuple[str, str], ...] = ()
    is_sure: bool = True


def simple_commands(text: str) -> Iterator[SimpleCommand]:
    """Yield the commands.

    Variables that the script itself has set to plain text are put in their places; a word that
    holds anything else keeps its `$`."""
    known: dict[str, str] = {}
    depth = 0
    goes_on = True
    for number, line in shell_lines("\n".join(text.split("\n")[:_MOST_LINES])):
        tokens = _tokens(line)
        if tokens is None:
            continue
        if _FUNCTION.match(line) is not None:
            depth += 1
        commands, goes_on = _split(tokens, goes_on)
        for words, is_sure in commands:
            opened = words[0] in _OPENS
            if opened:
                depth += 1
            if words[0] in _CLOSES or (words == ["}"] and depth):
                depth -= 1
            yield from _command(_bare(words), number, known, is_sure and not depth)


def _bare(words: list[str]) -> list[str]:
    """Return the command without the keywords before it."""
    at = next((at for at, word in enumerate(words) if word not in _KEYWORDS), len(words))
    return words[at:]


def _command(
    rest: list[str], number: int, known: dict[str, str], is_sure: bool
) -> Iterator[SimpleCommand]:
    words = [_put(word, known) for word in rest]
    assigned: list[tuple[str, str]] = []
    while words and (match := _ASSIGNED.fullmatch(words[0])):
        assigned.append((match[1], match[2]))
        del words[0]
    if words:
        yield SimpleCommand(tuple(words), number, tuple(assigned), is_sure)
        if words[0] in ("export", "declare", "readonly", "local"):
            assigned += [(one[1], one[2]) for w in words[1:] if (one := _ASSIGNED.fullmatch(w))]
        else:
            return
    for name, value in assigned:
        if is_sure and "`" not in value:
            known[name] = value
        else:
            known.pop(name, None)


def is_plain(word: str) -> bool:
    """Return True if nothing in the word is for the shell to find out."""
    return not re.search(r"[$`*?\[]", word)


def _put(word: str, known: dict[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        return known.get(match[1] or match[2], match[0])

    return _VARIABLE.sub(value, word)[:4096]


def _tokens(line: str) -> list[str] | None:
    """Return the words and operators; None for what is no whole command in this line."""
    line = _PWD.sub("$PWD", line)
    for _ in range(_MOST_NESTED):
        line, found = _UNKNOWN.subn("$_", line)
        if not found:
            break
    if "`" in line or "$(" in line or "<(" in line:
        return None
    try:
        reader = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")
        reader.whitespace_split = True
        reader.commenters = ""
        return [one for part in reader for one in _operators(part)]
    except ValueError:
        return None


def _operators(part: str) -> list[str]:
    """Return the operators that stand in one word, as in `);`; else the word."""
    return _OPERATOR.findall(part) if part and set(part) <= set("();<>|&") else [part]


def _split(parts: list[str], is_sure: bool) -> tuple[list[tuple[list[str], bool]], bool]:
    """Return simple commands without their redirections, and whether they run in any case.

    is_sure: of the first one; returned, too: of the first one in the next line, after `&&`."""
    found: list[tuple[list[str], bool]] = []
    words: list[str] = []
    nested = 0
    skip = False
    for part in [*parts, *([";"] if parts and parts[-1] not in _ENDS else [])]:
        if skip:
            skip = False
        elif part in _REDIRECTS:
            skip = True
            if words and words[-1].isdigit():
                del words[-1]
        elif part in _ENDS:
            if words:
                found.append((words, is_sure and not nested))
            is_sure = _is_next_sure(part, words, is_sure)
            nested = max(0, nested + (part == "(") - (part == ")"))
            words = []
        elif part == "()":
            is_sure = False
        else:
            words.append(part)
    return found, is_sure


def _is_next_sure(end: str, words: list[str], is_sure: bool) -> bool:
    """Return True if what follows `end` runs in any case."""
    if end == "||":
        return False
    if end != "&&":
        return is_sure or end not in ("|", "|&", "(", ")")
    bare = [word for word in _bare(words) if not _ASSIGNED.fullmatch(word)]
    return is_sure and (not bare or bare[0] in _PREPARE)
