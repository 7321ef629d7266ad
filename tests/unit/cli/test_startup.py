"""`tk status` runs in prompts and `tk ready` before every F5: they load only what they use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

#: Each costs more than the whole command, or brings something along that does.
HEAVY = {
    "asyncio",
    "click",
    "concurrent.futures",
    "debugpy",
    "email",
    "importlib.metadata",
    "logging",
    "multiprocessing",
    "pathspec",
    "pydantic",
    "rich",
    "shutil",
    "ssl",
    "subprocess",
    "tempfile",
    "tomllib",
    "typer",
    "watchdog",
    "tunnelkit.config.load",
    "tunnelkit.config.schema",
    "tunnelkit.debug",
    "tunnelkit.lab",
    "tunnelkit.link",
    "tunnelkit.mirror",
    "tunnelkit.model",
    "tunnelkit.mux.mux",
    "tunnelkit.scheduler",
    "tunnelkit.session.runtime.control_client",
    "tunnelkit.session.session",
}

_PROGRAM = """
import sys
before = set(sys.modules)
from tunnelkit.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    code = end.code
print(code, *sorted(set(sys.modules) - before), sep="\\n")
"""


@pytest.mark.parametrize("words", [["status"], ["status", "--json"], ["ready", "--sync"]])
def test_what_is_loaded(words: list[str], tmp_path: Path) -> None:
    environ = {
        **os.environ,
        "TK_STATE_DIR": str(tmp_path / "s"),
        "TK_RUNTIME_DIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *words],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    code, *loaded = done.stdout.split()
    assert code == "4", done.stderr
    assert "tunnelkit.session.runtime.blocking_client" in loaded
    assert HEAVY.isdisjoint(loaded), HEAVY.intersection(loaded)
