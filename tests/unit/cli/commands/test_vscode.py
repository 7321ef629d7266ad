"""The command of VS Code's task: one that a VS Code of the desktop finds, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunnelkit.cli.commands.debug.vscode import tk_command


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tk that the PATH has."""
    program = tmp_path / "venv" / "bin" / "tk"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    return program


def test_a_tk_of_every_path_needs_no_more_than_its_name(installed: Path) -> None:
    assert tk_command() == "tk"


@pytest.mark.parametrize("name", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_a_tk_of_an_activated_environment_is_named_whole(
    installed: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, str(installed.parents[1]))
    assert tk_command() == str(installed)
    monkeypatch.setenv(name, "/another/environment")
    assert tk_command() == "tk"
