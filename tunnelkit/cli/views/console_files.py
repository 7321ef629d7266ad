"""Files that a console uses: sources on the laptop, and its history."""

from __future__ import annotations

from pathlib import Path

from tunnelkit.cli.views.local_source import lines_of
from tunnelkit.debug.console.console import Console
from tunnelkit.session.runtime.paths import private_directory, state_root


def new_core(columns: int = 80, *, ends: bool = False) -> Console:
    """Return a console that knows the laptop's files. ends: as for `Console`."""
    return Console(columns=columns, local_source=lines_of, resolve=_resolve, ends=ends)


def history_of() -> Path:
    """Return the file of the lines that were typed; only its owner reads it."""
    path = private_directory(state_root()) / "console_history"
    path.touch(mode=0o600)
    return path


def _resolve(name: str) -> str | None:
    path = Path(name).expanduser().absolute()
    return str(path) if path.is_file() else None
