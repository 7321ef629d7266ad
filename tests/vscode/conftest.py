"""A window of VS Code on the project; skips where its parts are not installed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.tkrig import Project
from tests.vscode.server import Parts, find_parts, serving
from tests.vscode.window import Window, window


@pytest.fixture(scope="session")
def parts() -> Parts:
    found = find_parts()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture
async def vscode(parts: Parts, project: Project, tmp_path: Path) -> AsyncIterator[Window]:
    async with (
        serving(parts, project.env) as server,
        window(parts, server, project.dir, tmp_path) as shown,
    ):
        yield shown
