"""Text for people: colour only on a terminal that wants it, errors as one line."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from typing import TextIO, TypeVar

from tunnelkit.cli.terminal.wrapping import fit
from tunnelkit.errors import TunnelkitError
from tunnelkit.text_format import shown

T = TypeVar("T")

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_PAINTED = re.compile(rf"(\x1b\[(?:0|{'|'.join(_CODES.values())})m)")


def wants_colour(stream: TextIO) -> bool:
    """Return True on a terminal, unless NO_COLOR or TERM=dumb is set (https://no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def paint(text: str, colour: str, stream: TextIO = sys.stdout) -> str:
    """Return `text` in a colour, if `stream` shows colours."""
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if wants_colour(stream) else text


def safe(text: str) -> str:
    """Escape control characters, but not line ends, tabs and the colours of `paint`."""
    parts = _PAINTED.split(text)
    return "".join(
        part if number % 2 else shown(part, keep="\n\t") for number, part in enumerate(parts)
    )


def fitted(text: str, stream: TextIO) -> str:
    """Break long lines at words if `stream` is a terminal.

    For a script each text stays one line.
    """
    try:
        return fit(text, os.get_terminal_size(stream.fileno()).columns)
    except (OSError, ValueError):  # no terminal, or closed
        return text


def say(text: str = "") -> None:
    """Print a result on stdout."""
    print(fitted(safe(text), sys.stdout), flush=True)


def report(answer: T, show: Callable[[T], None], *, as_json: bool) -> None:
    """Print an answer as JSON, or have `show` print it."""
    if as_json:
        import json

        say(json.dumps(answer))
    else:
        show(answer)


def note(text: str) -> None:
    """Print progress or a remark on stderr; stdout is for results."""
    print(fitted(safe(text), sys.stderr), file=sys.stderr, flush=True)


def show_error(error: TunnelkitError) -> None:
    """Print an error as one line on stderr."""
    note(f"{paint('tk:', 'red', sys.stderr)} {shown(error.one_line())}")


class StatusLine:
    """One line that is rewritten on a terminal; each new text printed once elsewhere."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._shown = ""

    @property
    def live(self) -> bool:
        """True on a terminal."""
        return self._live

    def update(self, text: str) -> None:
        """Show the state of the moment."""
        text = shown(text)
        if text == self._shown:
            return
        self._shown = text
        if self._live:
            width = max(20, os.get_terminal_size(sys.stderr.fileno()).columns - 1)
            sys.stderr.write(f"\r\x1b[K{text[:width]}")
            sys.stderr.flush()
        else:
            note(text)

    def clear(self) -> None:
        """Remove the line, before other text.

        Elsewhere than on a terminal nothing is removed, so that a text is printed once only.
        """
        if self._live and self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = ""
