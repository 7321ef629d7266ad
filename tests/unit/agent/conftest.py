"""The agent's end of a mirror, on a directory of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.agent.mirror_side import Side, parts_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root"
    path.mkdir()
    return path


@pytest.fixture
def side(root: Path) -> Iterator[Side]:
    one = Side(root)
    yield one
    one.close()
    assert parts_of(root) == []
