"""`tk vscode`: write or merge the project's tasks.json and launch.json."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tunnelkit.cli.lazy_typer import typer
from tunnelkit.errors import TunnelkitError, UsageError

if TYPE_CHECKING:
    from tunnelkit.config.schema import Settings
    from tunnelkit.file_changes import FileChange
    from tunnelkit.model import PathMapping


def vscode(
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="The directory that VS Code opens; default: the project's."
        ),
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="For editors without child sessions: also a launch configuration for each of "
            "N ranks and a compound of them; 0 takes them away. Default: as it is.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would change, write nothing.")
    ] = False,
) -> None:
    """Write or merge VS Code's files, so that F5 attaches through tk.

    Your own entries, comments and layout stay as they are; a second run changes nothing.

    tk vscode
    tk vscode --dry-run --folder ..
    tk vscode --ranks 4
    """
    from tunnelkit import file_changes
    from tunnelkit.cli.terminal.context import settings as read_settings

    settings = _with_session_port(read_settings())
    folder = folder or settings.project_dir
    changes = plan_editor_files(settings, folder, ranks=ranks)
    if not dry_run:
        file_changes.apply(changes, within=folder)
    report(changes, dry_run=dry_run)


def plan_editor_files(
    settings: Settings, folder: Path, *, ranks: int | None = None
) -> list[FileChange]:
    """Return the changes for a workspace folder that is, holds, or lies in the project.

    ranks: number of launch configurations of single ranks; None: as now. Raises UsageError.
    """
    from tunnelkit.debug.vscode import vscode as editor

    folder = Path(os.path.abspath(folder))
    if not folder.is_relative_to(settings.project_dir):
        folder = folder.resolve()  # the project's has no symlinks
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a directory", hint="give the directory VS Code opens")
    project = settings.project_dir
    remote_root, subdir = _remote_root(settings), ""
    also = _also(settings, folder, remote_root)
    if folder.is_relative_to(project):
        below = folder.relative_to(project)
        remote_root = remote_root if below == Path() else f"{remote_root}/{below.as_posix()}"
    elif project.is_relative_to(folder):
        subdir = project.relative_to(folder).as_posix()
    else:
        raise UsageError(
            f"{folder} has nothing to do with the project {project}",
            hint="give the project's directory, one inside it or one above it",
        )
    return editor.plan(
        folder,
        port=settings.debug.port,
        remote_root=remote_root,
        just_my_code=settings.debug.just_my_code,
        tk_command=tk_command(),
        subdir=subdir,
        ranks=ranks,
        also=also,
    )


def follow_port(settings: Settings, port: int) -> list[FileChange]:
    """Let launch.json, the project's and of folders above it, attach to the session's port.

    The task before it is this project's then, too.

    Returns what was changed. A file that tk has not written into, or for another project, stays
    as it is.
    """
    from tunnelkit import file_changes
    from tunnelkit.debug.vscode import vscode as editor

    project, found = settings.project_dir, []
    for folder in (project, *filter(_is_own, project.parents)):
        subdir = project.relative_to(folder).as_posix() if folder != project else ""
        at, place = editor.attach_port(folder, subdir), editor.ready_place(folder)
        if at is not None and (at != port or editor.is_of_another(place, subdir)):
            planned = plan_editor_files(_at_port(settings, port), folder)
            # A tasks.json without tk's task stays as it is.
            wanted = [one for one in planned if place is not None or one.path.name == "launch.json"]
            changes = [one for one in wanted if one.status != "already right"]
            file_changes.apply(changes, within=folder)
            found += changes
    return found


def _is_own(folder: Path) -> bool:
    """True for a folder of this user that not everybody may write into."""
    try:
        found = folder.stat()
    except OSError:
        return False
    return found.st_uid == os.geteuid() and not found.st_mode & 0o002


def _with_session_port(settings: Settings) -> Settings:
    """Return the settings with the port that a live session took, which may be another one."""
    from tunnelkit.session.runtime import blocking_client
    from tunnelkit.session.runtime.control_calls import Status
    from tunnelkit.session.runtime.paths import session_paths

    try:
        status = blocking_client.ask(session_paths(settings.project_dir), Status(), silence_s=5.0)
    except TunnelkitError:
        return settings
    return _at_port(settings, int(status["debug_port"] or settings.debug.port))


def _at_port(settings: Settings, port: int) -> Settings:
    from dataclasses import replace

    return replace(settings, debug=replace(settings.debug, port=port))


def _also(settings: Settings, folder: Path, remote_root: str) -> list[PathMapping]:
    """Return the mappings of [[mirror.also]].

    The project's own remote root does not always show the directory of `~`; the session adds at
    F5 what is missing here.
    """
    from tunnelkit.model import PathMapping

    rest = settings.mirror.remote[1:]
    own_home = settings.mirror.remote.startswith("~/") and remote_root.endswith(rest)
    home = remote_root.removesuffix(rest) if own_home else ""
    found = []
    for root in settings.mirror.also:
        remote = home + root.remote[1:] if home and root.remote.startswith("~/") else root.remote
        if remote.startswith("/"):
            local = root.place(settings.project_dir)
            if not os.path.isabs(os.path.expanduser(root.local)):
                # As it was written, from here: so the file serves other laptops, too.
                local = "${workspaceFolder}/" + os.path.relpath(local, folder)
            found.append(PathMapping(local, remote))
    return found


def _remote_root(settings: Settings) -> str:
    """Return the project's absolute path on the cluster; query the cluster only for `~`."""
    if settings.mirror.remote.startswith("/"):
        return settings.mirror.remote
    settings.require_cluster()
    from tunnelkit.cli.terminal.tty import answer_prompt
    from tunnelkit.session.connection.probe import remote_root

    return remote_root(settings, answer_prompt)


def tk_command() -> str:
    """Return the command of VS Code's task: `tk`, or its full path where not every PATH has it.

    A VS Code that a desktop starts has no environment's PATH that only a terminal has activated."""
    found = shutil.which("tk")
    if found is not None:
        environments = (os.environ.get(name) for name in ("VIRTUAL_ENV", "CONDA_PREFIX"))
        inside = any(one and Path(found).is_relative_to(one) for one in environments)
        return found if inside else "tk"
    beside = Path(sys.executable).with_name("tk")
    return str(beside) if os.access(beside, os.X_OK) else "tk"


def report(changes: list[FileChange], *, dry_run: bool = False) -> None:
    """Print a line for each file: what was, or would be, done to it."""
    for change in changes:
        differs = change.status != "already right"
        typer.echo(
            f"{_shown(change.path)}: {'would be ' if dry_run and differs else ''}{change.status}"
        )


def _shown(path: Path) -> str:
    cwd = Path.cwd()
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)
