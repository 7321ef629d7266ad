"""The list of commands in help, by task, and what a mistyped command may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter, Parameter

#: Headings of `tk --help`, each with its commands in order.
TASKS = {
    "Start and end": ("init", "up", "status", "down"),
    "Debug": ("loop", "ready", "attach", "interrupt", "ranks", "console", "pdb", "vscode"),
    "Work on the node": ("run", "shell", "logs", "forward"),
    "Files": ("sync", "pull", "mount", "umount"),
    "Batch jobs": ("simulate", "submit", "keep", "top"),
    "When something fails": ("why", "doctor", "bugreport", "auth"),
    "Learn and set up": ("demo", "lab", "config", "trust", "help", "version"),
}
#: A word is taken for another one from this likeness on (difflib's ratio).
_ALIKE = 0.6
#: Others are named beside the best one only if they are nearly as like.
_NEARLY = 0.07


class NamedArguments(TyperCommand):
    """A command whose help shows its arguments' names alone: typer 0.29 adds `<list[str]>`."""

    def get_params(self, ctx: Context) -> list[Parameter]:
        """Return the parameters, the arguments without a type to show."""
        params = super().get_params(ctx)
        for one in params:
            if one.param_type_name == "argument":
                vars(one)["display_type_rich"] = _no_type
        return params


def _no_type(ctx: Context) -> None:
    """Return no text, in the place of an argument's type."""


class WholeLine(NamedArguments):
    """A command that gets all its words as they are; its options are declared for its help."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse nothing, unless help is asked for, or there is nothing."""
        if not args or args[0] in ("-h", "--help"):
            return super().parse_args(ctx, args)
        super().parse_args(ctx, ["--", "SCRIPT"])
        ctx.params["words"] = list(args)
        return []


class Commands(TyperGroup):
    """All of tk's commands."""

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the commands below the headings of TASKS; those in none of them come last."""
        left = {name: command for name, command in self.commands.items() if not command.hidden}
        if not left:
            return
        widest = max(len(name) for name in left)
        for heading, names in [*TASKS.items(), ("Others", tuple(self.commands))]:
            found = [(name, left.pop(name)) for name in names if name in left]
            if found:
                with formatter.section(heading):
                    rows = [
                        (name.ljust(widest), one.get_short_help_str(200)) for name, one in found
                    ]
                    formatter.write_dl(rows)

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        """Return the command of the words; the error of an unknown one names likely ones."""
        self.suggest_commands = False
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:
            message = getattr(error, "message", None)
            meant = likely(args[0], self.commands) if message is not None else []
            if meant:
                quoted = " or ".join(repr(name) for name in meant)
                vars(error)["message"] = f"{str(message).rstrip('.')}. Did you mean {quoted}?"
            raise


def likely(typed: str, names: Iterable[str]) -> list[str]:
    """Return the names that `typed` may stand for, the likeliest first; [] if none is like it."""
    scores = {name: difflib.SequenceMatcher(None, typed, name).ratio() for name in names}
    best = max(scores.values(), default=0.0)
    if best < _ALIKE:
        return []
    near = [name for name, score in scores.items() if score >= best - _NEARLY]
    near += [name for name in names if len(name) <= len(typed) and _one_slip(typed, name)]
    return sorted(set(near), key=lambda name: (not _one_slip(typed, name), -scores[name]))[:3]


def _one_slip(typed: str, name: str) -> bool:
    """Return True if one slip (a wrong, extra or exchanged key) lies between the two."""
    if len(typed) == len(name):
        wrong = [at for at in range(len(name)) if typed[at] != name[at]]
        if len(wrong) == 2:
            span = slice(wrong[0], wrong[1] + 1)
            return wrong[1] == wrong[0] + 1 and typed[span] == name[span][::-1]
        return len(wrong) == 1
    return any(typed[:at] + typed[at + 1 :] == name for at in range(len(typed)))
