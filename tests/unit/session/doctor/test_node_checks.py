"""The check of the debuggee's Python, by a real one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tunnelkit.session.doctor import node_checks, parse


def test_the_check_imports_nothing_of_the_project(tmp_path: Path) -> None:
    for name in ("debugpy", "json", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    argv = ["sh", "-c", node_checks._FIRST_PYTHON, "sh", node_checks._ASK]
    done = subprocess.run(
        argv, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True
    )
    assert parse.tagged(done.stdout, "tk-debugpy").strip().startswith("1.")
    assert not (tmp_path / "ran").exists()
