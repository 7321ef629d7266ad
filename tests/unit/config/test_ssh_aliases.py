"""Which names of ~/.ssh/config are offered."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.config.ssh_aliases import _parsed, ssh_aliases


def test_names_in_their_order_without_patterns(tmp_path: Path) -> None:
    (tmp_path / "config.d").mkdir()
    (tmp_path / "config.d/b").write_text("Host inner *.inner\n")
    (tmp_path / "config.d/a").write_text('host = "first one" second\n')
    (tmp_path / "config").write_text(
        "# Host no\nUser me\nInclude config.d/*\nHOST login login !bad 10.0.0.?\n\tHostName x\n"
        "Match host y\nHost\tlast\n"
    )
    found = ssh_aliases(tmp_path / "config")
    assert found == ["first one", "second", "inner", "login", "last"]


def test_what_includes_itself_ends(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("Host a\nInclude config\nHost b\n")
    assert ssh_aliases(tmp_path / "config") == ["a", "b"]


def test_what_cannot_be_read_has_none(tmp_path: Path) -> None:
    assert ssh_aliases(tmp_path / "config") == []
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "config").write_text(f"Include {tmp_path}/pipe\nHost 'open\nHost good\n")
    assert ssh_aliases(tmp_path / "config") == ["good"]


@given(st.text(max_size=60))
def test_any_line_can_be_read(line: str) -> None:
    keyword, words = _parsed(line)
    assert keyword == keyword.lower() or keyword.lower() == keyword
    assert all(isinstance(word, str) for word in words)
