"""The demo's output: a command as one would type it, then its result, and when."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

#: text, colour name -> text as the terminal is to show it
Paint = Callable[[str, str], str]
_INDENT = " " * 18


class Timeline:
    """Prints steps; times are seconds since it was made. `paint` colours a text, or does not."""

    def __init__(self, out: TextIO, paint: Paint) -> None:
        self._out = out
        self._paint = paint
        self._started = time.monotonic()
        self._step_started = self._started
        self.action = "starting"

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def text(self, text: str = "", colour: str | None = None) -> None:
        """A line without a time."""
        print(self._paint(text, colour) if colour else text, file=self._out, flush=True)

    def step(self, action: str, remark: str = "") -> None:
        """A step begins: what is typed or pressed, and a remark on it."""
        self._step_started = time.monotonic()
        self.action = action
        shown = self._paint(action, "bold")
        self.text(f"{shown}   {self._paint(f'({remark})', 'dim')}" if remark else shown)

    def done(self, text: str, colour: str | None = None) -> None:
        """Show the result: seconds since the start, and since the step began."""
        now = time.monotonic()
        took = f"+{now - self._step_started:.1f} s"
        shown = self._paint(text, colour) if colour else text
        self.text(f"{now - self._started:6.1f} s {self._paint(f'{took:>7}', 'dim')}  {shown}")

    def detail(self, text: str, colour: str | None = None) -> None:
        """A line that belongs to the one above."""
        self.text(_INDENT + (self._paint(text, colour) if colour else text))
