"""`tk mount` and `tk umount`: the cluster's directory here, without a copy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tunnelkit.cli.console import say


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("mount")(mount)
    app.command("umount")(umount)


def mount(
    mountpoint: Annotated[Path, typer.Argument(metavar="DIR", help="An empty directory here.")],
    remote: Annotated[
        str | None, typer.Option(metavar="DIR", help="Directory there; default: the mirror's.")
    ] = None,
) -> None:
    """Mount the remote directory by sshfs, over the session's connection.

    tk mount ~/cluster
    tk mount ~/data --remote /scratch/me/data
    """
    from tunnelkit.cli.common import find_session, run
    from tunnelkit.session import client

    async def work() -> str:
        async with client.connect(find_session()) as session:
            return str(
                await session.call("mount", remote=remote, mountpoint=str(mountpoint.absolute()))
            )

    say(f"mounted {run(work())} on {mountpoint}")


def umount(
    mountpoint: Annotated[Path, typer.Argument(metavar="DIR", help="What `tk mount` was given.")],
) -> None:
    """Unmount, also when the server is gone; needs no root.

    tk umount ~/cluster
    """
    from tunnelkit.cli.common import run
    from tunnelkit.errors import UsageError
    from tunnelkit.mirror import sshfs

    if not run(sshfs.umount(mountpoint)):
        raise UsageError(
            f"no sshfs is mounted at {sshfs.resolve(mountpoint)}",
            hint="`mount` lists what is mounted, and where",
        )
    say(f"unmounted {mountpoint}")
