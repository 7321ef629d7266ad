"""Whose a remote root is: the laptop directory's identity, and its file in words."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.mirror.remote.owner import Owner, describe_owner, displaced, refused, this_owner


def test_a_laptop_directory_keeps_its_identity(tmp_path: Path) -> None:
    first = this_owner(tmp_path / "state", "/home/me/project")
    assert this_owner(tmp_path / "state", "/home/me/project").id == first.id
    assert this_owner(tmp_path / "state", "/home/me/other").id != first.id
    assert this_owner(tmp_path / "state of another laptop", "/home/me/project").id != first.id
    assert (tmp_path / "state" / "laptop-id").stat().st_mode & 0o077 == 0
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["laptop-id"]


@given(st.text(), st.text(), st.text(), st.floats(0, 2e9))
def test_what_is_written_is_read(host: str, directory: str, user: str, since: float) -> None:
    owner = Owner("ab" * 16, host, directory, user, since)
    assert Owner.parse(owner.dump()) == owner
    assert "\n" not in owner.dump()
    assert owner.describe().isprintable()


@given(st.text())
def test_anything_else_is_no_owner(text: str) -> None:
    assert Owner.parse(text) is None
    assert describe_owner(text) == "somebody whose record can't be read"


def test_the_errors_name_the_other() -> None:
    text = Owner("ab", "tower", "/home/me/project", "me", 1.7e9).dump()
    for error in (refused("login", "/far", text), displaced("login", "/far", text)):
        assert "login:/far" in error.message
        for part in ("/home/me/project", "tower", "user me", "since 2023-11-1"):
            assert part in (error.cause or "")
        assert "tk up --take-over" in (error.hint or "")
