"""`tk version`."""

from __future__ import annotations

from tunnelkit.cli.terminal.output import say


def version() -> None:
    """Show the version, as `tk --version` does.

    tk version
    """
    from tunnelkit import __version__

    say(f"tk {__version__}")
