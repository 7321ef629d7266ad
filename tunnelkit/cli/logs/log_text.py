"""A log's bytes for people: one rank's lines, and of what a terminal obeys only colours."""

from __future__ import annotations

import codecs
import re

from tunnelkit.text_format import shown

_COLOUR = re.compile(r"(\x1b\[[0-9;]{0,20}m)")
#: The end of a piece that may be the beginning of a colour, or of a line end.
_UNFINISHED = re.compile(r"(?:\x1b(?:\[[0-9;]{0,20})?|\r)$")
_RETURNS = re.compile(r"\r+\n?")
_LABEL = re.compile(
    rb"(?:\[rank([0-9]{1,7})\]:(?: |$)"
    rb"|\[(?:[^\s\]]{1,100}@)?[0-9]{1,7},([0-9]{1,7})\]<std(?:out|err)>:"
    rb"| {0,7}([0-9]{1,7}):(?: |$))"
)
_MOST_LABELS = 3
_LONGEST_LINE = 1 << 20


class TerminalText:
    """Text for a terminal, from pieces that are split anywhere.

    Control characters are shown as escapes, but not colours, tabs and line ends. A carriage return
    alone, as of a progress bar, becomes a line end.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._coloured = False

    def feed(self, data: bytes, *, final: bool = False) -> str:
        """Return what can be printed of it. final: nothing comes after it."""
        text = self._rest + self._decoder.decode(data, final)
        unfinished = None if final else _UNFINISHED.search(text)
        at = len(text) if unfinished is None else unfinished.start()
        text, self._rest = text[:at], text[at:]
        parts = _COLOUR.split(_RETURNS.sub("\n", text))
        self._coloured = self._coloured or len(parts) > 1
        safe = [part if odd % 2 else shown(part, keep="\n\t") for odd, part in enumerate(parts)]
        reset = "\x1b[0m" if final and self._coloured else ""
        return "".join(safe) + reset


class RankLines:
    """The lines of one rank, without their labels: of `srun -l`, of mpirun, or of torch."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._rest = b""
        #: True once a line of the rank has come.
        self.found = False

    def feed(self, data: bytes, *, final: bool = False) -> bytes:
        """Return the rank's whole lines in it. final: nothing comes after it."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if final or len(self._rest) > _LONGEST_LINE:
            lines.append(self._rest)
            self._rest = b""
        kept = [own for line in lines if (own := self._own(line)) is not None]
        self.found = self.found or bool(kept)
        return b"".join(line + b"\n" for line in kept)

    def _own(self, line: bytes) -> bytes | None:
        rank = None
        for _ in range(_MOST_LABELS):
            match = _LABEL.match(line)
            if match is None:
                break
            rank = int(match[1] or match[2] or match[3])
            line = line[match.end() :]
        return line if rank == self._rank else None
