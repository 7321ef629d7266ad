"""The local terminal: raw mode and size for a process on the node, questions to the user."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from functools import partial

from tunnelkit.text_format import shown

#: How often a background command checks if it is in the foreground: a shell's `fg` sends no
#: signal to a job that runs.
_LOOK_S = 0.2


def in_foreground(fd: int) -> bool:
    """Return True if this process may read `fd` and set its modes, or if it is not its terminal.

    The kernel stops a background job that does so with its terminal.
    """
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return True


class RawMode:
    """Raw mode: each key goes to the node, while this process is in the foreground.

    The terminal's mode is restored at the end. changed: called each time that the mode was set.
    """

    def __init__(self, fd: int, changed: Callable[[], None] = lambda: None) -> None:
        self._fd = fd
        self._changed = changed
        self._restore: Callable[[], None] | None = None
        self._looking: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGCONT, self._set)
        self._set()

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGCONT)
        if self._looking is not None:
            self._looking.cancel()
        if self._restore is not None and in_foreground(self._fd):
            self._restore()

    def _set(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        if not in_foreground(self._fd):
            loop = asyncio.get_running_loop()
            self._looking = loop.call_later(_LOOK_S, self._set)
            return
        if self._restore is None:
            before = termios.tcgetattr(self._fd)
            self._restore = partial(termios.tcsetattr, self._fd, termios.TCSADRAIN, before)
        tty.setraw(self._fd, termios.TCSADRAIN)  # without a flush: what was typed ahead counts
        self._changed()


def read_keys(fd: int) -> bytes:
    """Read `fd`, blocking; from a terminal only in the foreground.

    Call it in a thread, with SIGTTIN ignored. Raises OSError.
    """
    while True:
        if in_foreground(fd):
            try:
                return os.read(fd, 65536)
            except OSError:
                if in_foreground(fd):
                    raise
        time.sleep(_LOOK_S)


def size() -> dict[str, int]:
    """Return the rows and columns of the terminal."""
    columns, rows = os.get_terminal_size(sys.stdin.fileno())
    return {"rows": rows, "cols": columns}


def is_interactive() -> bool:
    """Return True if stdin and stdout are terminals."""
    return sys.stdin.isatty() and sys.stdout.isatty()


async def ask(prompt: str, *, echo: bool, interrupted: asyncio.Event) -> str | None:
    """Ask the user for a line; return None at the end of input or once `interrupted` is set.

    input() in a thread could not be ended before the user presses Enter.
    """
    fd = sys.stdin.fileno()
    loop = asyncio.get_running_loop()
    typed = asyncio.Event()
    stop = asyncio.create_task(interrupted.wait())
    ready = asyncio.create_task(typed.wait())
    with contextlib.nullcontext() if echo else _no_echo(fd):
        # Only now: what is typed as soon as the question shows must be neither seen nor lost.
        sys.stderr.write(shown(prompt, keep="\n"))  # text from the cluster
        sys.stderr.flush()
        loop.add_reader(fd, typed.set)
        try:
            await asyncio.wait([stop, ready], return_when=asyncio.FIRST_COMPLETED)
            data = os.read(fd, 4096) if typed.is_set() else b""
        finally:
            loop.remove_reader(fd)
            stop.cancel()
            ready.cancel()
    if not echo or not data:
        sys.stderr.write("\n")
        sys.stderr.flush()
    return data.decode("utf-8", "replace").rstrip("\r\n") if data else None


@contextlib.contextmanager
def _no_echo(fd: int) -> Iterator[None]:
    before = termios.tcgetattr(fd)
    silent = [*before]
    silent[3] &= ~termios.ECHO
    try:
        termios.tcsetattr(fd, termios.TCSAFLUSH, silent)
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSAFLUSH, before)


async def answer_prompt(prompt: str, echo: bool) -> str | None:
    """Put ssh's question to the user; return None without a terminal."""
    if not sys.stdin.isatty():
        return None
    return await ask(prompt, echo=echo, interrupted=asyncio.Event())
