"""`tk pull`: outputs from the cluster to the laptop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from tunnelkit.cli.lazy_typer import typer
from tunnelkit.cli.terminal.context import absolute
from tunnelkit.cli.terminal.output import note, report, say

if TYPE_CHECKING:
    from tunnelkit.mirror.progress import ProgressInfo
    from tunnelkit.session.runtime.control_answers import PullAnswer
    from tunnelkit.session.runtime.paths import SessionPaths

_NAMED = 10


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

    Files that you mirror are left as they are, and so is a local file that is newer or that
    you have edited since you pulled it. If only a file's content shows that it changed since then,
    here or there, the cluster's comes, and the copy here is kept in .tk-replaced. A
    repository's own files (.git) come only if you name them: git runs what they say.
    Called again after a broken connection, it goes on where it was. What can't be read there is
    named, and the exit code is 9; the rest comes. Files that the job removes meanwhile are
    named, too; that fails only if you have named one of them yourself.
    """
    from tunnelkit.cli.terminal.context import find_session, run

    answer = run(_pull(find_session(), absolute(paths), quiet=as_json))
    report(answer, show_report, as_json=as_json)
    check_complete(answer)


async def _pull(session_paths: SessionPaths, paths: list[str], *, quiet: bool) -> PullAnswer:
    from tunnelkit.cli.terminal.output import StatusLine
    from tunnelkit.session.runtime import control_client
    from tunnelkit.session.runtime.control_calls import PULL, Pull

    line = StatusLine()

    async def show(progress: ProgressInfo) -> None:
        if not quiet:
            line.update(progress_line(progress))

    try:
        notices = dict([PULL.read_by(show)])
        async with control_client.connect(session_paths, notices=notices) as session:
            return await session.call(Pull(paths=paths))
    finally:
        line.clear()


def progress_line(progress: ProgressInfo) -> str:
    """Return the progress of a pull in words."""
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


def show_report(answer: PullAnswer) -> None:
    """Print what was fetched and what was not."""
    from tunnelkit.text_format import human_bytes

    count = len(answer["pulled"])
    files = "1 file" if count == 1 else f"{count} files"
    say(f"pulled {files} ({human_bytes(answer['bytes'])}) in {answer['duration_s']:.1f} s")
    _list("left as they are: the copy here is the same, newer, or edited here", answer["kept"])
    _list("not brought: no file there, or a symlink that leads out", answer["refused"])
    _list("not brought: removed there while they were pulled", answer["gone"])
    _list(
        "left as they are: not read there in time, so it is not known if they changed in the moment"
        " of the last pull",
        answer["uncompared"],
    )
    _list(
        "left as they are: mirrored from here (`tk sync --theirs` for edits), or a repository's own"
        " files; what lies in a .git comes if you name that .git",
        answer["owned"],
    )
    _list("mirrored from now on, since no ignore rule names them", answer["mirrored"])


def check_complete(answer: PullAnswer) -> None:
    """Raise MirrorError if something could not be read there."""
    from tunnelkit.errors import MirrorError
    from tunnelkit.mirror.api import name_paths

    if answer["unread"]:
        raise MirrorError(
            f"not all came: the cluster's login can't read {name_paths(answer['unread'])}",
            hint="`tk run ls -la` shows who may; make it readable there, then pull again",
        )


def _list(what: str, paths: list[str]) -> None:
    from tunnelkit.cli.views.status import printable

    if paths:
        more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
        note(f"{what}: {', '.join(printable(path) for path in paths[:_NAMED])}{more}")
