"""Running a program under debugpy is as `python -m debugpy` does it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tunnelkit.agent.debug.fork_server_client import agent_path
from tunnelkit.debuggee.debugpy_launcher import START

_TELL = "import sys; print(sys.path, sys.argv, __name__, sorted(globals()), __spec__ is None)"


def run(place: Path, start: list[str], target: list[str]) -> str:
    """Run a program below debugpy in a directory; return its output."""
    done = subprocess.run(
        [sys.executable, *start, "--connect", "127.0.0.1:1", *target],
        cwd=place,
        # debugpy then takes itself for started and does not connect.
        env={**os.environ, "DEBUGPY_RUNNING": "true"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("switches", "target"),
    [
        ([], ["tell.py", "a"]),
        (["-P"], ["tell.py", "a"]),
        (["-I"], ["tell.py", "a"]),
        ([], ["-m", "tell", "--b"]),
        ([], ["-c", _TELL, "x"]),
        (["-I"], ["-c", _TELL, "x"]),
        ([], ["sub/tell.py", "a"]),
    ],
)
def test_a_program_finds_itself_as_under_debugpys_own_start(
    tmp_path: Path, switches: list[str], target: list[str]
) -> None:
    """Search path, arguments and names in `__main__` are those of `python -m debugpy`."""
    (tmp_path / "sub").mkdir()
    for place in ("tell.py", "sub/tell.py"):
        (tmp_path / place).write_text(_TELL)

    # debugpy leaves its `cli` behind, too; and a relative directory, which would follow a chdir.
    expected = run(tmp_path, [*switches, "-m", "debugpy"], target).replace("'cli', ", "")
    if target[0] != "-c":
        place = str(tmp_path / os.path.dirname(target[0])).rstrip("/")
        expected = re.sub(r"^\['(sub)?'", f"['{place}'", expected)
    assert run(tmp_path, [*switches, "-c", START, agent_path()], target) == expected


@pytest.mark.parametrize("target", [["sub/goes.py"], ["-m", "goes"]])
def test_a_program_that_changes_its_directory_finds_its_modules(
    tmp_path: Path, target: list[str]
) -> None:
    for place in (tmp_path, tmp_path / "sub"):
        place.mkdir(exist_ok=True)
        (place / "goes.py").write_text("import os\nos.chdir('/')\nimport beside\n")
        (place / "beside.py").write_text("print('found')\n")
    assert run(tmp_path, ["-c", START, agent_path()], target) == "found\n"
