"""What `tk trust` and `tk status` do, without the CPU of a command: for set-up and for polling.

The commands themselves have tests of their own (tests/e2e/test_cli.py, tests/unit/cli).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tunnelkit.config.load import load
from tunnelkit.errors import TunnelkitError
from tunnelkit.session.runtime.blocking_client import ask
from tunnelkit.session.runtime.control_calls import Status
from tunnelkit.session.runtime.paths import SessionPaths, session_paths
from tunnelkit.session.runtime.trust_store import examine

#: A session that is silent for so long is asked by the command, whose error is shown.
_SILENT_S = 5.0


@contextmanager
def _environment(environ: Mapping[str, str]) -> Iterator[None]:
    with patch.dict(os.environ, environ, clear=True):
        yield


def agree(project: Path, environ: Mapping[str, str]) -> None:
    """Agree to all that the project's tunnelkit.toml asks for; not to what tk never allows."""
    with _environment(environ):
        try:
            request = examine(load(project))
        except TunnelkitError:
            return  # the test's command says so
        if not request.agreed:
            request.agree()


def places(project: Path, environ: Mapping[str, str]) -> SessionPaths:
    """Where the project's session is, if there is one."""
    with _environment(environ):
        return session_paths(project)


def status(paths: SessionPaths) -> dict[str, Any] | None:
    """What the session says of itself; None if it doesn't answer this process."""
    try:
        answer = ask(paths, Status(), silence_s=_SILENT_S)
    except TunnelkitError:
        return None
    return {**answer}
