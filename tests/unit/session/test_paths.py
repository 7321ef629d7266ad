"""Where sessions live: stable ids, private directories, names that schedulers take."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tunnelkit.errors import ConfigError
from tunnelkit.model import check_job_name
from tunnelkit.session import paths as p


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TK_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("TK_RUNTIME_DIR", str(tmp_path / "run"))


def test_the_same_project_has_the_same_session(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert p.session_paths(tmp_path / "a") == p.session_paths(tmp_path / "link")
    assert p.session_paths(tmp_path / "a").id != p.session_paths(tmp_path).id


def test_another_machine_has_another_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = p.session_paths(tmp_path).id
    monkeypatch.setenv("TK_STATE_DIR", str(tmp_path / "other-state"))
    assert p.session_paths(tmp_path).id != here


@pytest.mark.parametrize(
    "name", ["plain", "with space", "new\nline", "ünïcode", "a'b\"c", "-x", "."]
)
def test_any_directory_name_gives_a_job_name(name: str) -> None:
    check_job_name(p.job_name(Path("/tmp") / name, "ab12cd34"))


def test_directories_are_private(tmp_path: Path) -> None:
    paths = p.session_paths(tmp_path)
    paths.make()
    for path in (paths.runtime.parent, paths.runtime, paths.link_dir, paths.state):
        assert path.stat().st_mode & 0o777 == 0o700, path


def test_a_symlink_in_our_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    with pytest.raises(ConfigError):
        p.private_directory(tmp_path / "link")


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_somebody_elses_directory_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "theirs"
    other.mkdir()
    os.chown(other, 65534, 65534)
    with pytest.raises(ConfigError, match="not a directory of yours"):
        p.private_directory(other)


async def test_a_lock_that_nobody_holds_is_not_waited_for(tmp_path: Path) -> None:
    paths = p.session_paths(tmp_path)
    await p.wait_unlocked(paths, timeout_s=1.0)
    paths.make()
    paths.lock.touch()
    await p.wait_unlocked(paths, timeout_s=1.0)
