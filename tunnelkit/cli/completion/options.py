"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from tunnelkit.cli.completion import sources

ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="Cluster profile, instead of the project's.",
        autocompletion=sources.profiles,
    ),
]
LoginOption = Annotated[
    str | None,
    typer.Option(
        "--login",
        metavar="HOST",
        help="Login host: host, user@host or ssh_config alias.",
        autocompletion=sources.logins,
    ),
]
LinkOption = Annotated[
    str | None,
    typer.Option("--link", metavar="NAME", help="Which ssh: auto, openssh or paramiko."),
]
