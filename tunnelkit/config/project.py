"""The root of a project. Apart from load.py, so that to know it needs no settings."""

from __future__ import annotations

import os
from pathlib import Path

FILE_NAME = "tunnelkit.toml"


def find_project(cwd: Path) -> Path | None:
    """The nearest directory, from `cwd` upward, that holds a tunnelkit.toml."""
    cwd = Path(os.path.abspath(cwd))
    for directory in (cwd, *cwd.parents):
        if os.path.isfile(directory / FILE_NAME):
            return directory
    return None
