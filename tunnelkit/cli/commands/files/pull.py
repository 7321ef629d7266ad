"""`tk pull`: outputs from the cluster to the laptop."""

from __future__ import annotations

from typing import Annotated, Any

from tunnelkit.cli.lazy_typer import typer
from tunnelkit.cli.terminal.context import absolute
from tunnelkit.cli.terminal.output import note, say

_NAMED = 10


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("pull")(pull)


def pull(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH", help="In the project, or a path on the cluster in it."),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Bring outputs from the cluster: files and whole directories.

    tk pull results/                     what the job wrote there
    tk pull results/best.ckpt train.log  these two

    Files that you mirror are left as they are, and so is a local file that is newer.
    Called again after a broken connection, it goes on where it was.
    """
    from tunnelkit.cli.terminal.context import find_session, run

    report = run(_pull(find_session(), absolute(paths), quiet=as_json))
    if as_json:
        import json

        say(json.dumps(report))
        return
    show_report(report)


async def _pull(session_paths: Any, paths: list[str], *, quiet: bool) -> dict[str, Any]:
    from tunnelkit.cli.terminal.output import StatusLine
    from tunnelkit.session.runtime import control_client

    line = StatusLine()

    async def progress(params: dict[str, Any]) -> None:
        if not quiet:
            line.update(progress_line(params))

    try:
        async with control_client.connect(session_paths, notices={"pull": progress}) as session:
            report: dict[str, Any] = await session.call("pull", paths=paths)
            return report
    finally:
        line.clear()


def progress_line(progress: dict[str, Any]) -> str:
    """How far a pull is."""
    from tunnelkit.cli.views.status import hours
    from tunnelkit.text_format import human_bytes

    left, total = progress["eta_s"], progress["files_total"]
    line = (
        f"pulling: {progress['files']} of {total} {'file' if total == 1 else 'files'}, "
        f"{human_bytes(progress['bytes'])} of {human_bytes(progress['bytes_total'])}"
    )
    if not left:
        return line
    pace = (progress["bytes_total"] - progress["bytes"]) / left
    return f"{line}, {human_bytes(round(pace))}/s, {hours(round(left))} left"


def show_report(report: dict[str, Any]) -> None:
    """What came and what did not, for a person."""
    from tunnelkit.text_format import human_bytes

    count = len(report["pulled"])
    files = "1 file" if count == 1 else f"{count} files"
    say(f"pulled {files} ({human_bytes(report['bytes'])}) in {report['duration_s']:.1f} s")
    _list("left as they are, because the copy here is the same or newer", report["kept"])
    _list("not brought: no file there, or a symlink that leads out", report["refused"])
    _list("mirrored from here: left as they are (`tk sync --theirs` for edits)", report["owned"])
    _list("mirrored from now on, since no ignore rule names them", report["mirrored"])


def _list(what: str, paths: list[str]) -> None:
    from tunnelkit.cli.views.status import printable

    if paths:
        more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
        note(f"{what}: {', '.join(printable(path) for path in paths[:_NAMED])}{more}")
