"""The simple commands of a shell script, as far as its text shows them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tunnelkit.scheduler.shell_text import shell_lines

_MOST_LINES = 20_000
_LONGEST_LINE = 64 * 1024
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.S)
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_FUNCTION = re.compile(r"\s*(?:function\s+[\w:.-]+|[\w:.-]+\s*\(\s*\))\s*(?:\(\s*\))?\s*\{?\s*$")
#: What ends a simple command, in a pipeline or a list.
_ENDS = frozenset({";", "&", "&&", "||", "|", "|&", "(", ")", ";;"})
_REDIRECTS = frozenset({">", ">>", "<", "<<<", ">&", "<&", "&>", "&>>", ">|", "<<"})
_OPERATOR = re.compile(r"\(\)|&>>|<<<|&>|&&|\|\||\|&|;;|>>|<<|>&|<&|>\||[();<>|&]")
#: They ask something: what follows them after `&&` may not run. After any other command it does, as
#: the script plans for no failure.
_TESTS = frozenset(
    re.split(" ", "[ [[ test grep egrep fgrep pgrep which command type hash diff cmp false let")
)
#: Output that only the shell will know; the innermost first.
_UNKNOWN = re.compile(r"\$\(\((?:[^()]|\([^()]*\))*\)\)|[$<>]\([^()]*\)|`[^`]*`")
#: In the place of a text that only the shell will know.
_ANYTHING = "${_}"
_PWD = re.compile(r"\$\(\s*pwd\s*\)|`\s*pwd\s*`")
_MOST_NESTED = 8
#: In the environment of every shell: to set one is to export it.
_EXPORTED = frozenset({"PATH", "MODULEPATH"})
_OPENS, _CLOSES = frozenset({"if", "case"}), frozenset({"fi", "esac"})
_KEYWORDS = frozenset(
    {"if", "then", "else", "elif", "fi", "while", "until", "do", "done", "{", "}", "!", "time"}
)


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """One command. assigned: the variables set for it alone. line: from 1.

    is_sure: it runs in any case: not only under a condition, nor in a function. in_subshell: what
    it sets has no effect on what follows."""

    words: tuple[str, ...]
    line: int
    assigned: tuple[tuple[str, str], ...] = ()
    is_sure: bool = True
    in_subshell: bool = False


def simple_commands(text: str) -> Iterator[SimpleCommand]:
    """Yield the commands.

    Variables that the script itself has set to plain text are put in their places; a word that
    holds anything else keeps its `$`."""
    known: dict[str, str] = {}
    depth = 0
    place = _Place(is_conditional=False)
    for number, line in shell_lines("\n".join(text.split("\n")[:_MOST_LINES])):
        tokens = _tokens(line)
        if tokens is None:
            continue
        if _FUNCTION.match(line) is not None:
            depth += 1
        place.around.clear()
        for words, is_sure, in_subshell in _split(tokens, place):
            opened = words[0] in _OPENS
            if opened:
                depth += 1
            if words[0] in _CLOSES or (words == ["}"] and depth):
                depth -= 1
            scope = dict(known) if in_subshell else known
            for one in _command(_bare(words), number, scope, is_sure and not depth):
                yield replace(one, in_subshell=in_subshell)


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
        known.update(dict.fromkeys(_changed(words, known), _ANYTHING))
        if words[0] in ("export", "declare", "readonly", "local"):
            assigned += [(one[1], one[2]) for w in words[1:] if (one := _ASSIGNED.fullmatch(w))]
        else:
            return
    elif searched := [f"{name}={value}" for name, value in assigned if name in _EXPORTED]:
        yield SimpleCommand(("export", *searched), number, (), is_sure)
    for name, value in assigned:
        known[name] = value if is_sure and "`" not in value else _ANYTHING


def _changed(words: list[str], known: dict[str, str]) -> list[str]:
    """Return the variables that are something else, which is not known, after this command."""
    if words[0] in ("cd", "pushd", "popd"):
        return [name for name, value in known.items() if "$PWD" in value or "${PWD}" in value]
    if words[0] in ("read", "mapfile", "for", "select"):
        return [word for word in words[1:] if word.isidentifier()]
    return []


def is_plain(word: str) -> bool:
    """Return True if nothing in the word is for the shell to find out."""
    return not re.search(r"[$`*?\[]", word)


def _put(word: str, known: dict[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        return known.get(match[1] or match[2], match[0])

    return _VARIABLE.sub(value, word)[:4096]


def _tokens(line: str) -> list[str] | None:
    """Return the words and operators; None for what is no whole command in this line."""
    if len(line) > _LONGEST_LINE:  # an archive in a string; shlex would take long
        return None
    line = _PWD.sub("$PWD", line)
    for _ in range(_MOST_NESTED):
        line, found = _UNKNOWN.subn(_ANYTHING, line)
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


@dataclass(slots=True)
class _Place:
    """The place of a command in a row: whether it runs in any case."""

    #: After `||`, or after `&&` behind a test.
    is_conditional: bool
    #: After `|`.
    is_piped: bool = False
    #: `is_conditional` of each row around the subshell.
    around: list[bool] = field(default_factory=list)

    @property
    def is_sure(self) -> bool:
        return not (self.is_conditional or self.is_piped)

    def pass_end(self, end: str, words: list[str]) -> None:
        """Go on behind an operator. words: of the command before it."""
        if end == "(":
            self.around.append(self.is_conditional)
            return
        if end == ")":
            self.is_conditional = self.around.pop() if self.around else self.is_conditional
            return
        self.is_piped = end in ("|", "|&")
        if end == "||":
            self.is_conditional = True
        elif end == "&&":
            self.is_conditional |= _is_test(words)
        elif not self.is_piped:
            self.is_conditional = bool(self.around) and self.around[-1]


def _is_test(words: list[str]) -> bool:
    bare = [word for word in _bare(words) if not _ASSIGNED.fullmatch(word)]
    return "!" in words[:2] or (bool(bare) and bare[0] in _TESTS)


def _split(parts: list[str], place: _Place) -> list[tuple[list[str], bool, bool]]:
    """Return simple commands without their redirections, whether they run in any case, and whether
    in a subshell. place: of the first one; afterwards of the next line's."""
    found: list[tuple[list[str], bool, bool]] = []
    words: list[str] = []
    skip = False
    goes_on = not parts or (parts[-1] in _ENDS and parts[-1] != ")")
    for part in [*parts, *([] if goes_on else [";"])]:
        if skip:
            skip = False
        elif part in _REDIRECTS:
            skip = True
            if words and words[-1].isdigit():
                del words[-1]
        elif part in _ENDS:
            if words:
                found.append((words, place.is_sure, bool(place.around)))
            place.pass_end(part, words)
            words = []
        elif part == "()":
            place.is_conditional = True
        else:
            words.append(part)
    return found
