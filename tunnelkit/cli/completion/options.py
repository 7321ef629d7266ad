"""Options that several commands share, for their annotations."""

from __future__ import annotations

from typing import Any

from tunnelkit.cli.completion import sources
from tunnelkit.cli.lazy_typer import typer


def profile_option() -> Any:
    """Return the option `--profile`."""
    return typer.Option(
        "--profile",
        metavar="NAME",
        help="Cluster profile, instead of the project's.",
        autocompletion=sources.profiles,
    )


def login_option() -> Any:
    """Return the option `--login`."""
    return typer.Option(
        "--login",
        metavar="HOST",
        help="Login host: host, user@host or ssh_config alias.",
        autocompletion=sources.logins,
    )


def link_option() -> Any:
    """Return the option `--link`."""
    return typer.Option("--link", metavar="NAME", help="Which ssh: auto, openssh or paramiko.")
