"""`tk init`: one login at most, nothing half done, nothing of the environment that is not meant."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tunnelkit.cli.commands.debug import vscode
from tunnelkit.cli.commands.start import init

_TK = Path(sys.executable).parent / "tk"


def _answers(login: str | None, profile: str | None = None) -> init._Answers:
    return init._Answers(login, None, None, profile)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory, and a profile `lab` in the user's configuration."""
    for name in ("TK_CONFIG_DIR", "TK_STATE_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    clusters = tmp_path / "TK_CONFIG_DIR" / "clusters"
    clusters.mkdir(parents=True)
    (clusters / "lab.toml").write_text('[cluster]\nlogin = "login"\nssh_config = "/lab/config"\n')
    made = tmp_path / "proj"
    made.mkdir()
    return made


def test_a_cluster_that_did_not_answer_is_not_asked_again(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second login would be a second push, or a second wrong password."""
    settings = init._settings(project / "tunnelkit.toml", _answers("me@h"))

    def plan(*args: object) -> None:
        raise AssertionError("it was asked for its home")

    monkeypatch.setattr(vscode, "plan_editor_files", plan)
    assert init._editor_changes(settings, silent=True) == []


def test_the_environments_profile_goes_with_its_login_alone(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TK_PROFILE", "lab")
    target = project / "tunnelkit.toml"
    own = init._ask(target, _answers("me@login.example.org"), may_ask=False)
    assert (own.login, own.profile) == ("me@login.example.org", None)
    assert init._ask(target, _answers("me@h", "lab"), may_ask=False).profile == "lab"
    assert init._ask(target, _answers(None), may_ask=False).profile == "lab"


def test_a_link_in_the_place_of_vscodes_directory_stops_it_all(project: Path) -> None:
    (project / ".vscode").symlink_to("/var/tmp")
    words = ["init", "--login", "me@h", "--scheduler", "none", "--remote", "/home/me/code", "--yes"]
    done = subprocess.run(
        [str(_TK), *words], cwd=project, env=os.environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 10 and "is a link out of" in done.stderr
    assert not (project / "tunnelkit.toml").exists()
