"""`tk trust`: agree to what a project's tunnelkit.toml asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tunnelkit.cli.lazy_typer import typer
from tunnelkit.cli.terminal.output import say
from tunnelkit.cli.terminal.trust_question import confirmed, lines, refusal
from tunnelkit.errors import UsageError


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
    from tunnelkit.session.runtime.trust_store import examine, forget

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
    if not yes and not confirmed():
        raise refusal(asked)
    asked.agree()
    say("agreed")
