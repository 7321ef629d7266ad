"""The local terminal: raw mode and size for a process on the node, questions to a person."""

from __future__ import annotations

import asyncio
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
        tty.setraw(fd, termios.TCSADRAIN)  # without a flush: what was typed ahead counts
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


async def ask(prompt: str, *, echo: bool, interrupted: asyncio.Event) -> str | None:
    """Ask the person at the terminal for a line; None at the end of input or once
    `interrupted` is set.

    Not input() in a thread: nothing could end that before the person presses Enter.
    """
    fd = sys.stdin.fileno()
    loop = asyncio.get_running_loop()
    typed = asyncio.Event()
    stop = asyncio.create_task(interrupted.wait())
    ready = asyncio.create_task(typed.wait())
    with contextlib.nullcontext() if echo else _no_echo(fd):
        # Only now: what is typed as soon as the question shows must be neither seen nor lost.
        sys.stderr.write(prompt)
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
    """Put ssh's question to the person; None if nobody is there."""
    if not sys.stdin.isatty():
        return None
    return await ask(prompt, echo=echo, interrupted=asyncio.Event())
