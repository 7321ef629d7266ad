"""Settings, the session of a command, and the event loop, for all commands.

Slow modules are imported only where they are needed: `tk status` must be instant.
"""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tunnelkit.config.project import find_project
from tunnelkit.errors import ExitCode, NoSessionError
from tunnelkit.session.runtime.blocking_client import is_alive, no_session
from tunnelkit.session.runtime.control_address import check_place
from tunnelkit.session.runtime.paths import SessionPaths, live_sessions, session_paths

if TYPE_CHECKING:
    from tunnelkit.config.schema import Settings

T = TypeVar("T")


def run(work: Coroutine[object, object, T]) -> T:
    """Run a coroutine; Ctrl-C cancels it, so that it cleans up, and ends with 130."""
    import asyncio

    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise SystemExit(int(ExitCode.INTERRUPTED)) from None


def settings(**overrides: object) -> Settings:
    """Return the settings of the current directory; `a__b` sets the key `a.b`.

    Commands that run or send anything get them only here: the user has agreed to what the
    project's file decides. Raises ConfigError, NotTrusted.
    """
    from tunnelkit.cli.terminal.trust_question import trusted
    from tunnelkit.config.load import load

    flags = {name.replace("__", "."): value for name, value in overrides.items()}
    given = {key: value for key, value in flags.items() if value is not None}
    return trusted(load(Path.cwd(), overrides=given))


def as_typed(remote: str) -> str:
    """Undo the local shell's expansion of `~` in a directory of the cluster: it means that home."""
    home = str(Path.home())
    inside = remote == home or remote.startswith(f"{home}/")
    return "~" + remote[len(home) :] if inside else remote


def project_dir() -> Path:
    """Return the project of the current directory: where tunnelkit.toml is, else itself."""
    return find_project(Path.cwd()) or Path.cwd()


def find_session() -> SessionPaths:
    """Return the live session of this project; outside of any project the only one.

    Raises NoSessionError, and ConfigError where another user could pretend to be it.
    """
    project = find_project(Path.cwd())
    paths = session_paths(project or Path.cwd())
    check_place(paths)
    if is_alive(paths):
        return paths
    if paths.launch.exists():
        raise NoSessionError(
            "no session is up for this project, but its job may still be there",
            hint="`tk up` takes it over, `tk down` ends it",
        )
    others = [other for other in live_sessions() if is_alive(other)]
    # Inside a project another one's node and files are never what is meant.
    if len(others) == 1 and project is None:
        return others[0]
    if others:
        from tunnelkit.session.runtime.launch_spec import project_of

        places = sorted({place for other in others if (place := project_of(other))})
        raise NoSessionError(
            "no session is up for this project, but others are",
            cause=", ".join(places) or None,
            hint="change to the project's directory, or start one here: tk up; where that "
            "directory is gone: tk down",
        )
    raise no_session()


def absolute(paths: list[str]) -> list[str]:
    """Return absolute paths: the session has another working directory."""
    import os

    return [os.path.abspath(path) for path in paths]
