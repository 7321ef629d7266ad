"""`tk status`, `tk ready` and `tk down`, which prompts, editors and scripts call, without an app.

Building one costs more than their work (typer brings pydantic). Only what is
plainly right is taken here; all else, `--help` and mistakes too, goes the
common way. A test holds these options to those of the commands.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple


class FastCommand(NamedTuple):
    """A command: the function behind it, and option -> (parameter, type of its value or
    None for a switch)."""

    module: str
    function: str
    options: dict[str, tuple[str, type | None]]

    def call(self, values: dict[str, Any]) -> None:
        """Do the command's work. Raises TunnelkitError."""
        work: Callable[..., None] = getattr(
            importlib.import_module(f"tunnelkit.cli.views.{self.module}"), self.function
        )
        work(**values)


QUICK = {
    "down": FastCommand("down", "end_session", {"--keep": ("keep", None)}),
    "status": FastCommand("status", "show_status", {"--json": ("as_json", None)}),
    "ready": FastCommand(
        "ready",
        "wait_ready",
        {
            "--sync": ("sync_first", None),
            "--timeout": ("timeout_s", float),
            "--json": ("as_json", None),
        },
    ),
}


def run(words: list[str]) -> bool:
    """Run the command line if it is one of ours and well-formed; False if it is not."""
    quick = QUICK.get(words[0]) if words else None
    values = parse(quick, words[1:]) if quick is not None else None
    if quick is None or values is None:
        return False
    quick.call(values)
    return True


def parse(quick: FastCommand, words: list[str]) -> dict[str, Any] | None:
    """The values of a command's options; None if anything is unusual."""
    values: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        if word not in quick.options:
            return None
        name, kind = quick.options[word]
        try:
            values[name] = True if kind is None else kind(next(rest))
        except (StopIteration, ValueError):
            return None
    return values
