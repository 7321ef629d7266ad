"""The question whether a project's tunnelkit.toml is trusted."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tunnelkit.cli.terminal.output import note
from tunnelkit.errors import NotTrusted

if TYPE_CHECKING:
    from tunnelkit.config.schema import Settings
    from tunnelkit.session.runtime.trust_store import TrustRequest


def trusted(settings: Settings) -> Settings:
    """Return the settings, once the user has agreed to what the project's file decides.

    A user at a terminal is asked. Raises NotTrusted, ConfigError.
    """
    if settings.config_file is None:
        return settings
    from tunnelkit.session.runtime.trust_store import examine

    asked = examine(settings)
    if not asked.agreed:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise refusal(asked)
        for line in lines(asked):
            note(line)
        if not confirmed():
            raise refusal(asked)
        asked.agree()
    return asked.usable()


def lines(asked: TrustRequest) -> list[str]:
    """List what the file asks for, as text."""
    from tunnelkit.text_format import shown

    head = f"{shown(str(asked.settings.config_file))} wants tk to use:"
    return [head, *(f"  {name} = {value}" for name, value in asked.items.items())]


def confirmed() -> bool:
    """Ask the user; return False without a terminal."""
    if not sys.stdin.isatty():
        return False
    import typer

    return typer.confirm("Do you trust who wrote that?", default=False, err=True)


def refusal(asked: TrustRequest) -> NotTrusted:
    """Return the error for a file that the user has not agreed to."""
    from tunnelkit.text_format import shown

    return NotTrusted(
        f"{shown(str(asked.settings.config_file))} is not trusted yet",
        cause=f"it sets {', '.join(asked.items)}",
        hint="read it with `tk trust --show`, then agree with `tk trust`",
    )
