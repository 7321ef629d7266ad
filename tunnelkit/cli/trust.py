"""`tk trust`: agree to what a project's tunnelkit.toml asks for; and the question itself."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tunnelkit.cli.console import note, say
from tunnelkit.errors import NotTrusted, UsageError

if TYPE_CHECKING:
    from tunnelkit.config.schema import Settings
    from tunnelkit.session.trusted import Asked


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("trust")(trust)


def trust(
    show: Annotated[bool, typer.Option("--show", help="Only show what it asks for.")] = False,
    revoke: Annotated[bool, typer.Option("--revoke", help="Take the agreement back.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Agree without a question.")] = False,
) -> None:
    """Agree to what tunnelkit.toml makes tk run or send.

    A file that came with a clone decides nothing of that before; changes are asked again.

    tk trust --show
    tk trust --yes
    tk trust --revoke
    """
    from tunnelkit.config.load import load
    from tunnelkit.session.trusted import examine, forget

    if show + revoke + yes > 1:
        raise UsageError("--show, --revoke and --yes exclude each other", hint="give one of them")
    settings = load(Path.cwd())
    if revoke:
        say("forgotten" if forget(settings) else "nothing was agreed to here")
        return
    asked = examine(settings)
    if not asked.items:
        say("nothing here needs an agreement")
        return
    for line in lines(asked):
        say(line)
    if show or asked.agreed:
        say("agreed" if asked.agreed else "not agreed yet: tk trust")
        return
    if not yes and not _confirmed():
        raise _refusal(asked)
    asked.agree()
    say("agreed")


def trusted(settings: Settings) -> Settings:
    """The settings, once the person has agreed to what their project's file decides; a person
    at a terminal is asked. Raises NotTrusted, ConfigError."""
    if settings.config_file is None:
        return settings
    from tunnelkit.session.trusted import examine

    asked = examine(settings)
    if not asked.agreed:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise _refusal(asked)
        for line in lines(asked):
            note(line)
        if not _confirmed():
            raise _refusal(asked)
        asked.agree()
    return asked.usable()


def lines(asked: Asked) -> list[str]:
    """What it asks for, for a person."""
    from tunnelkit.words import shown

    head = f"{shown(str(asked.settings.config_file))} wants tk to use:"
    return [head, *(f"  {name} = {value}" for name, value in asked.items.items())]


def _confirmed() -> bool:
    if not sys.stdin.isatty():
        return False
    return typer.confirm("Do you trust who wrote that?", default=False, err=True)


def _refusal(asked: Asked) -> NotTrusted:
    from tunnelkit.words import shown

    return NotTrusted(
        f"{shown(str(asked.settings.config_file))} is not trusted yet",
        cause=f"it sets {', '.join(asked.items)}",
        hint="read it with `tk trust --show`, then agree with `tk trust`",
    )
