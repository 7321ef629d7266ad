"""One line on stderr while a command waits for its answer, on a terminal alone."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: A quick answer needs no line.
_QUIET_S = 1.5
_EVERY_S = 0.5


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Show how long the command has waited, and for what; the line goes with the answer."""
    if not (sys.stderr.isatty() and sys.stdin.isatty()):
        yield
        return
    over = threading.Event()
    shower = threading.Thread(target=_show, args=(what, over), daemon=True)
    shower.start()
    try:
        yield
    finally:
        over.set()
        shower.join()


def _show(what: str, over: threading.Event) -> None:
    begun = time.monotonic()
    if over.wait(_QUIET_S):
        return
    while True:
        sys.stderr.write(f"\r\x1b[K{time.monotonic() - begun:.0f} s: {what}")
        sys.stderr.flush()
        if over.wait(_EVERY_S):
            break
    sys.stderr.write("\r\x1b[K")
    sys.stderr.flush()
