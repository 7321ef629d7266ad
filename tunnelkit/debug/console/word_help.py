"""The words of the console: help and completion."""

from __future__ import annotations

import textwrap

from tunnelkit.debug.console.ranks_there import RanksThere
from tunnelkit.debug.ranks.terms import FAILED, STATE_WORDS
from tunnelkit.text_format import shown

_SELECTING = ("on ", "list ", "pause ", "cast ranks(")
_MOST = 200
_COLUMNS = 79
#: words -> meaning.
_WORDS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("on",), "on SEL: these ranks get the lines from now on; `on all`: every rank"),
    (("attach",), "attach [NAME] N: lines go to rank N, after where it is and what it said last"),
    (("detach",), "lines go to the ranks before `on` or `attach`; nothing else changes"),
    (("cast",), "cast [NAME] ranks(SEL) LINE: one line for other ranks, which answer once"),
    (("list", "l"), "who is where; list SEL, list -a (a row for each rank). In `on`: the source"),
    (("pause",), "pause [SEL]: stop running ranks"),
    (("p", "pp", "whatis"), "the value of an expression; p! and pp! show all of it"),
    (("!",), "!STATEMENT: Python, even if it begins with one of these words"),
    (("n", "next", "s", "step", "r", "return"), "next line, step in, step out"),
    (("c", "cont", "continue"), "run on; for all ranks: this console's breakpoints go"),
    (("w", "where", "bt"), "the stack"),
    (("u", "up", "d", "down"), "u [N], d [N]: the frame that values are taken from"),
    (("ll",), "the source of the current function"),
    (("a", "args"), "the arguments of the current function"),
    (("b", "break", "tbreak"), "b FILE:LINE[, CONDITION], b LINE; alone: all breakpoints"),
    (("cl", "clear"), "cl [NUMBER ...], cl FILE:LINE: remove breakpoints"),
    (("catch",), "catch raised, catch uncaught: stop at such exceptions; catch off"),
    (("mesh",), "mesh pp=2,dp=4: names of dimensions, for selections as pp=1"),
    (("editor",), "editor N: open rank N in the editor that is there, or say how one gets it"),
    (("quit", "q"), "leave; all ranks stay as they are"),
    (("help", "h"), "help [WORD]"),
)
_SELECTIONS = (
    "SEL: 3  0-3,7  0:8:2  all  stopped  failed  @B  node=1,local=0  !3",
    "Any other line is Python for the ranks of the prompt.",
)
WORDS: tuple[str, ...] = tuple(word for words, _ in _WORDS for word in words if word != "!")


def help_text(word: str) -> str:
    """The help for a word; all of it for "" or a word that is none."""
    for words, meaning in _WORDS:
        if word in words:
            return f"{', '.join(words)}: {meaning}"
    rows = [
        row
        for words, meaning in _WORDS
        for row in textwrap.wrap(
            f"  {', '.join(words):<20} {meaning}", _COLUMNS, subsequent_indent=" " * 23
        )
    ]
    return "\n".join([*rows, *_SELECTIONS])


def completions(text: str, there: RanksThere) -> list[str]:
    """Return whole lines that begin with the text."""
    for before in _SELECTING:
        if text.startswith(before):
            return _selections(text, there)
    words = sorted({*WORDS, *(one.strip() for one in _SELECTING)})
    if not text:
        return words
    return [word for word in words if word.startswith(text) and word != text]


def _selections(text: str, there: RanksThere) -> list[str]:
    at = max(text.rfind(mark) for mark in (" ", "(", ",")) + 1
    begun = text[at:]
    roster = there.roster()
    names = ["all", *STATE_WORDS, FAILED, *(f"@{name}" for name in roster.classes)]
    names += [f"{name}=" for name in roster.dimensions]
    names += [f"node={shown(node)}" for node in roster.nodes[:_MOST]]
    return [text[:at] + name for name in names if name.startswith(begun) and name != begun]
