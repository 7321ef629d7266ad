"""Running a program under debugpy is as `python -m debugpy` does it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tunnelkit.agent.debug.fork_server_client import agent_path
from tunnelkit.debuggee.debugpy_launcher import START

_TELL = "import sys; print(sys.path, sys.argv, __name__, sorted(globals()), __spec__ is None)"


@pytest.mark.parametrize(
    ("switches", "target"),
    [
        ([], ["tell.py", "a"]),
        (["-P"], ["tell.py", "a"]),
        (["-I"], ["tell.py", "a"]),
        ([], ["-m", "tell", "--b"]),
        ([], ["-c", _TELL, "x"]),
        (["-I"], ["-c", _TELL, "x"]),
    ],
)
def test_a_program_finds_itself_as_under_debugpys_own_start(
    tmp_path: Path, switches: list[str], target: list[str]
) -> None:
    """Search path, arguments and names in `__main__` are those of `python -m debugpy`."""
    (tmp_path / "tell.py").write_text(_TELL)

    def told(*start: str) -> str:
        done = subprocess.run(
            [sys.executable, *switches, *start, "--connect", "127.0.0.1:1", *target],
            cwd=tmp_path,
            # debugpy then takes itself for started and does not connect.
            env={**os.environ, "DEBUGPY_RUNNING": "true"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    # debugpy leaves its `cli` behind, too.
    assert told("-c", START, agent_path()) == told("-m", "debugpy").replace("'cli', ", "")
