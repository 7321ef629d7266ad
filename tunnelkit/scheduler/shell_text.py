"""The lines of a shell script as a shell takes them: strings whole, no here-documents. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

#: What stands between quotes, and `((...))`, is one piece: `<<`, `#` and quotes mean nothing there.
_PIECE = re.compile(
    r"""
      (?P<gone>\\\n | (?<![^\s;&|()])\#[^\n]*)
    | \\. | '[^']*' | \$'(?:[^'\\]|\\.)*' | <<<
    | \$?\(\((?:[^()\n]|\((?:[^()\n]|\([^()\n]*\))*\))*\)\)
    | <<(?P<tabs>-?)[ \t]*(?P<word>(?:\\.|'[^'\n]*'|"[^"\n]*"|[^\s\\'"<>;&|()`])+)
    | (?P<mark>["'()\n])
    | [^\\'"\#<$()\n]+ | .
    """,
    re.X | re.S,
)
#: The same inside double quotes, where only `$(` begins commands.
_QUOTED = re.compile(r"\\. | (?P<mark>\"|\$\((?!\()) | [^\\\"$]+ | .", re.X | re.S)
#: A row, with those that `\` joins to it.
_ROW = re.compile(r"(?:[^\\\n]|\\.|\\\Z)*", re.S)


def shell_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line with its number, from 1: without its comment, and whole, where a quote is
    open at the end of a row or `\\` joins the next one. The rows of here-documents are none."""
    yield from _Reader(text).lines()


class _Reader:
    """Reads on from `at`, in the row `number`. is_whole: each quote had its end until now."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._number = 1
        self._is_whole = True
        self._endless: set[tuple[str, str]] = set()

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield all lines with their numbers."""
        while self._at < len(self._text):
            at, number = self._at, self._number
            line = self._line(len(self._text)) if self._is_whole else None
            if line is None:
                # Some quote has no end, or not for this reader: from here each row is by itself.
                self._is_whole, self._at, self._number = False, at, number
                self._endless.clear()
                row = _ROW.match(self._text, at)
                line = self._line(row.end() if row else at)
            yield number, line or ""

    def _line(self, end: int) -> str | None:
        """Read one line; None if a quote is still open at `end`, while the text is whole."""
        kept: list[str] = []
        awaited: list[tuple[str, str]] = []
        # What is open: `"`, and in it `(` of a `$(`.
        inside: list[str] = []
        while self._at < end:
            quoted = inside[-1:] == ['"']
            piece = (_QUOTED if quoted else _PIECE).match(self._text, self._at, end)
            assert piece is not None, "any letter is one"
            self._at = piece.end()
            self._number += piece[0].count("\n")
            mark = piece["mark"]
            if not quoted and piece["word"]:
                awaited.append((piece["tabs"], re.sub(r"\\(.)|['\"]", r"\1", piece["word"])))
            if mark == "\n":
                self._skip(awaited)
                awaited = []
                if not inside:
                    return "".join(kept)
            if mark == "'" and self._is_whole:
                return None
            _nest(inside, mark)
            if quoted or not piece["gone"]:
                kept.append(piece[0])
        if inside and self._is_whole:
            return None
        if self._text[self._at : self._at + 1] == "\n":
            self._at, self._number = self._at + 1, self._number + 1
            self._skip(awaited)
        return "".join(kept)

    def _skip(self, awaited: list[tuple[str, str]]) -> None:
        """Go on after the here-documents; without its last row there is none."""
        for tabs, word in awaited:
            if (tabs, word) in self._endless:
                continue
            last = re.compile(rf"^{tabs and chr(9) + '*'}{re.escape(word)}\r?$\n?", re.M)
            match = last.search(self._text, self._at)
            if match is None:
                self._endless.add((tabs, word))
                continue
            self._number += self._text.count("\n", self._at, match.end())
            self._at = match.end()


def _nest(inside: list[str], mark: str | None) -> None:
    """Note what a mark opens or closes. A parenthesis counts only in a string."""
    if mark == '"' and inside[-1:] == ['"']:
        inside.pop()
    elif mark == '"':
        inside.append('"')
    elif mark == "$(" or (mark == "(" and inside):
        inside.append("(")
    elif mark == ")" and inside:
        inside.pop()
