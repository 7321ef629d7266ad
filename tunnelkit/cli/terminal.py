"""The local terminal while a process runs on the node: raw mode, size, keys, signals."""

from __future__ import annotations

import contextlib
import os
import sys
import termios
import tty
from collections.abc import Iterator


@contextlib.contextmanager
def raw_mode(fd: int) -> Iterator[None]:
    """Every key goes to the far side; the terminal is put back however this ends."""
    before = termios.tcgetattr(fd)
    try:
        tty.setraw(fd)
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def size() -> dict[str, int]:
    """Rows and columns of the terminal."""
    columns, rows = os.get_terminal_size(sys.stdin.fileno())
    return {"rows": rows, "cols": columns}


def is_interactive() -> bool:
    """True if a person sits at both stdin and stdout."""
    return sys.stdin.isatty() and sys.stdout.isatty()
