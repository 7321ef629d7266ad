"""`tk mount` and `tk umount`: the cluster's directory here, without a copy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tunnelkit.cli.completion import sources
from tunnelkit.cli.lazy_typer import typer
from tunnelkit.cli.terminal.output import say


def mount(
    places: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[REMOTE] DIR",
            help="The directory there (default: the mirror's), and an empty one here.",
            show_default=False,
        ),
    ] = None,
    remote: Annotated[
        str | None, typer.Option(metavar="REMOTE", help="The directory there.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The mounts as JSON.")] = False,
) -> None:
    """Mount a remote directory by sshfs; alone: list the mounts.

    tk mount ~/cluster
    tk mount /scratch/me/data ~/data
    tk mount --json

    It rides on the session's connection, and ends with the session.
    """
    from tunnelkit.cli.terminal.context import as_typed
    from tunnelkit.errors import UsageError

    words = places or []
    first, point = words[:-1], words[-1] if words else None
    if len(first) > 1 or (first and remote):
        raise UsageError("too many directories", hint="tk mount [REMOTE] DIR")
    if point is None:
        if remote is not None:
            raise UsageError("the directory here is missing", hint="tk mount REMOTE DIR")
        _list(as_json=as_json)
        return
    name = first[0] if first else remote
    source = _mount(as_typed(name) if name is not None else None, Path(point))
    if as_json:
        _list(as_json=True)
    else:
        say(f"mounted {source} on {point}")


def _mount(remote: str | None, mountpoint: Path) -> str:
    from tunnelkit.cli.terminal.context import find_session, run
    from tunnelkit.session.runtime import control_client
    from tunnelkit.session.runtime.control_calls import Mount

    async def work() -> str:
        async with control_client.connect(find_session()) as session:
            return await session.call(Mount(remote=remote, mountpoint=str(mountpoint.absolute())))

    return run(work())


def _list(*, as_json: bool) -> None:
    import json

    from tunnelkit.cli.views.status import printable
    from tunnelkit.mount.mounts import listed
    from tunnelkit.session.runtime.paths import state_root

    found = listed(state_root())
    for one in _live():  # a session knows more: whether the server answers
        found = [one if one["mountpoint"] == other["mountpoint"] else other for other in found]
    if as_json:
        say(json.dumps(found, indent=2))
    for one in () if as_json else found:
        where, there = printable(str(one["mountpoint"])), printable(str(one["remote"]))
        say(f"{where} <- {one['host']}:{there}, {one['state']}")
    if not found and not as_json:
        say("nothing is mounted")


def _live() -> list[dict[str, object]]:
    from tunnelkit.errors import TunnelkitError
    from tunnelkit.session.runtime.blocking_client import ask, is_alive
    from tunnelkit.session.runtime.control_calls import Status
    from tunnelkit.session.runtime.paths import live_sessions

    found: list[dict[str, object]] = []
    for paths in live_sessions():
        try:
            if is_alive(paths):
                found += [dict(one) for one in ask(paths, Status()).get("mounts", [])]
        except (OSError, TunnelkitError):
            continue  # it is ending; its mounts are in the list all the same
    return found


def umount(
    mountpoint: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="What `tk mount` was given.",
            autocompletion=sources.mountpoints,
        ),
    ],
) -> None:
    """Unmount: without root, also when server or session is gone.

    tk umount ~/cluster
    """
    from tunnelkit.cli.terminal.context import run
    from tunnelkit.errors import UsageError
    from tunnelkit.mount import sshfs
    from tunnelkit.mount.mount_table import resolve
    from tunnelkit.session.runtime.paths import state_root

    if not run(sshfs.umount(mountpoint, state_dir=state_root())):
        raise UsageError(
            f"no sshfs is mounted at {resolve(mountpoint)}",
            hint="`tk mount` lists what is mounted, and where",
        )
    say(f"unmounted {mountpoint}")
