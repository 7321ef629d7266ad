"""`tk status` runs in prompts and `tk ready` before every F5: they load only what they use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tunnelkit import __version__

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
else:
    code = 0
print(code, *sorted(set(sys.modules) - before), sep="\\n")
"""


def loaded(words: list[str], directory: Path) -> tuple[str, list[str]]:
    """The exit code of `tk WORDS` in that directory, and the modules that it has imported."""
    environ = {
        **os.environ,
        "TK_STATE_DIR": str(directory / "s"),
        "TK_RUNTIME_DIR": str(directory),
    }
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *words],
        cwd=directory,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    _, _, printed = done.stdout.rpartition(f"tk {__version__}\n")
    code, *modules = printed.split()
    return code, modules


@pytest.mark.parametrize("words", [["status"], ["status", "--json"], ["ready", "--sync"]])
def test_what_is_loaded(words: list[str], tmp_path: Path) -> None:
    code, modules = loaded(words, tmp_path)
    assert code == "4"
    assert "tunnelkit.session.runtime.blocking_client" in modules
    assert HEAVY.isdisjoint(modules), HEAVY.intersection(modules)


def test_ranks_are_asked_before_what_describes_them_is_loaded(tmp_path: Path) -> None:
    code, modules = loaded(["ranks"], tmp_path)
    assert code == "4"
    described = {"dataclasses", "inspect", "shutil"}
    described |= {one for one in modules if one.startswith("tunnelkit.debug")}
    assert described.isdisjoint(modules), described.intersection(modules)
    assert "tunnelkit.cli.views.ranks_text" not in modules


@pytest.mark.parametrize("words", [["version"], ["--version"], ["-V"]])
def test_the_version_needs_nothing(words: list[str], tmp_path: Path) -> None:
    _, modules = loaded(words, tmp_path)
    assert HEAVY.isdisjoint(modules), HEAVY.intersection(modules)
