"""The agent's directory: ours, private, and no one else's trick."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tunnelkit.agent.links import socket_dir


@pytest.fixture
def parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    made = [tmp_path / "first", tmp_path / "second"]
    for parent in made:
        parent.mkdir()
    monkeypatch.setattr(socket_dir, "_PARENTS", tuple(str(parent) for parent in made))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return made


def own_name() -> str:
    return f"tunnelkit-{os.getuid()}"


def test_makes_a_private_directory(parents: list[Path]) -> None:
    path = Path(socket_dir.make_directory())
    assert path == parents[0] / own_name()
    assert path.stat().st_mode & 0o777 == 0o700


def test_a_symlink_in_our_place_is_passed_over(parents: list[Path], tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (parents[0] / own_name()).symlink_to(elsewhere)
    assert Path(socket_dir.make_directory()).parent == parents[1]


def test_a_directory_open_to_others_is_passed_over(parents: list[Path]) -> None:
    (parents[0] / own_name()).mkdir()
    (parents[0] / own_name()).chmod(0o770)
    assert Path(socket_dir.make_directory()).parent == parents[1]


def squat(parents: list[Path]) -> None:
    for parent in parents:
        (parent / own_name()).write_text("a file")


def test_where_all_known_names_are_taken_a_secret_one_is_used(parents: list[Path]) -> None:
    squat(parents)
    path = Path(socket_dir.make_directory())
    assert path.parent == parents[0] and path.stat().st_mode & 0o777 == 0o700
    assert socket_dir.make_directory() == str(path)
    (path / "job.sock").touch()
    assert list(socket_dir.find_sockets("job")) == [str(path / "job.sock")]
    secret = parents[0].parent / "home/.cache/tunnelkit/places"
    assert secret.stat().st_mode & 0o777 == 0o600
    assert os.listdir(secret.parent) == [secret.name]


def test_a_secret_that_others_can_read_or_that_is_cut_short_is_made_again(
    parents: list[Path],
) -> None:
    squat(parents)
    secret = parents[0].parent / "home/.cache/tunnelkit/places"
    used = {socket_dir.make_directory()}
    secret.chmod(0o644)
    used.add(socket_dir.make_directory())
    secret.write_bytes(b"")
    used.add(socket_dir.make_directory())
    assert len(used) == 3
    assert secret.stat().st_mode & 0o777 == 0o600


def test_no_place_at_all_tells_why(parents: list[Path]) -> None:
    squat(parents)
    (parents[0].parent / "home").write_text("a file")
    with pytest.raises(
        socket_dir.NoSocketDirectory, match=r"not a private directory.*Not a directory"
    ):
        socket_dir.make_directory()


def test_sockets_are_found_only_in_safe_directories(parents: list[Path]) -> None:
    for parent in parents:
        directory = parent / own_name()
        directory.mkdir(mode=0o700)
        (directory / "job.sock").touch()
    (parents[0] / own_name()).chmod(0o755)
    found = list(socket_dir.find_sockets("job"))
    assert found == [str(parents[1] / own_name() / "job.sock")]


@pytest.mark.parametrize("name", ["", "a/b", "..\n", "x" * 65, "a b"])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="bad agent name"):
        socket_dir.check_name(name)
