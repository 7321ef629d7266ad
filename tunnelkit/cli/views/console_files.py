"""Files that a console uses: sources on the laptop, and its history."""

from __future__ import annotations

from pathlib import Path

from tunnelkit.cli.views.local_source import lines_of
from tunnelkit.debug.console.console import Console
from tunnelkit.session.runtime.blocking_client import ask
from tunnelkit.session.runtime.control_calls import Status
from tunnelkit.session.runtime.paths import SessionPaths, private_directory, state_root


def new_core(paths: SessionPaths, columns: int = 80, *, ends: bool = False) -> Console:
    """Return a console that knows the laptop's files and the session's ports.

    ends: as for `Console`.
    """
    return Console(
        columns=columns,
        local_source=lines_of,
        resolve=_resolve,
        editor=lambda rank: _editor(paths, rank),
        ends=ends,
    )


def history_of() -> Path:
    """Return the file of the lines that were typed; only its owner reads it."""
    path = private_directory(state_root()) / "console_history"
    path.touch(mode=0o600)
    return path


def _resolve(name: str) -> str | None:
    path = Path(name).expanduser().absolute()
    return str(path) if path.is_file() else None


def _editor(paths: SessionPaths, rank: int) -> list[str]:
    """Return what leads an editor to a rank."""
    for loop in ask(paths, Status())["loops"]:
        for one in loop["ranks"] or ():
            if one["rank"] == rank and one["port"] is not None:
                return [
                    f"rank {rank}: attach an editor to 127.0.0.1:{one['port']}",
                    "in VS Code: `tk vscode --ranks N` writes a configuration for each rank",
                ]
    return [f"rank {rank} has no port of its own; F5 opens a session for each rank"]
