"""`tk bugreport`: logs, settings and checks in one file, without names and secrets."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tunnelkit.cli.lazy_typer import typer
from tunnelkit.cli.terminal.output import note, say

if TYPE_CHECKING:
    from tunnelkit.config.schema import Settings
    from tunnelkit.errors import TunnelkitError
    from tunnelkit.session.report.scrub import Scrubber


def bugreport(
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Where to; default: a name with the date, here, or at home if a project is here "
            "(it is mirrored).",
        ),
    ] = None,
    no_output: Annotated[
        bool, typer.Option("--no-program-output", help="Leave out what your programs printed.")
    ] = False,
) -> None:
    """Bundle versions, settings, checks and logs for a bug report.

    Host names, user names and home paths become pseudonyms; keys, tokens, passwords
    and values of the environment are taken out. Nothing is sent anywhere.

    tk bugreport
    tk bugreport -o /tmp/report.tar.gz
    """
    from tunnelkit.cli.terminal.context import run
    from tunnelkit.errors import UsageError
    from tunnelkit.session.report.gather import write

    path = output or default_place() / time.strftime("tk-bugreport-%Y%m%d-%H%M%S.tar.gz")
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path} is already there", hint="name another file with -o")
    note("checking and collecting ...")
    from tunnelkit.cli.commands.support.doctor import read_settings

    settings = read_settings()  # may ask, and then Ctrl-C ends it
    files, scrubber = run(_collect(settings, with_output=not no_output))
    write(files, path)
    for line in _told(files, scrubber):
        say(line)
    say(f"{path} — read it before you send it: tar -xzOf {path} | less")


def default_place() -> Path:
    """Return the directory of a report: this one, or the home directory inside a project.

    A project's files are mirrored to the cluster at once.
    """
    from tunnelkit.config.project import find_project
    from tunnelkit.session.runtime.paths import session_paths

    here = Path.cwd()
    if find_project(here) is None and not session_paths(here).launch.exists():
        return Path()
    return Path.home()


async def _collect(
    settings: Settings | TunnelkitError, *, with_output: bool
) -> tuple[dict[str, str], Scrubber]:
    from tunnelkit.cli.commands.support.doctor import scene_here
    from tunnelkit.session.backends.registry import checks_for
    from tunnelkit.session.report.gather import gather

    async with scene_here(settings) as scene:
        return await gather(scene, checks_for(settings), with_output=with_output)


def _told(files: dict[str, str], scrubber: Scrubber) -> list[str]:
    """List what is in the file, and what was taken out."""
    lines = [f"  {name:<14} {len(text.encode()):>8} bytes" for name, text in files.items()]
    names = scrubber.pseudonyms
    counts = ", ".join(f"{kind}s {names[kind]}" for kind in ("host", "user", "home"))
    secrets = scrubber.removed["secret"]
    return [*lines, f"names replaced: {counts}; secrets and values taken out: {secrets}"]
