"""Another version of tk on the same laptop and the same account, and where agents' zips lie."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import tunnelkit
from tests.support.tkrig import Project, made_project
from tunnelkit import agent_zip
from tunnelkit.lab import LabInfo

_DAY_S = 86400


@pytest.fixture
async def other_version(slurm_lab: LabInfo, tmp_path: Path) -> AsyncIterator[Project]:
    """A project whose tk has another version number, and so another payload."""
    package = tmp_path / "other" / "tunnelkit"
    shutil.copytree(Path(tunnelkit.__file__).parent, package)
    text = (package / "__init__.py").read_text()
    assert tunnelkit.__version__ in text
    (package / "__init__.py").write_text(text.replace(tunnelkit.__version__, "99.9"))

    def make(base: Path) -> Project:
        made = Project(slurm_lab, base)
        made.env["PYTHONPATH"] = str(package.parent)
        return made

    async with made_project(make) as project:
        yield project


class Store:
    """tk's directory in the account's home on the cluster."""

    def __init__(self, home: Path) -> None:
        self.dir = home / ".cache" / "tunnelkit"
        self.dir.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def zip(self) -> Path:
        """This version's."""
        return self.dir / agent_zip.build().file_name

    def compiled(self) -> list[Path]:
        return sorted(self.dir.glob(f"{self.zip.stem}-*.zip"))

    def is_whole(self) -> bool:
        return self.zip.is_file() and self.zip.read_bytes() == agent_zip.build().data

    def clear(self) -> None:
        for path in self.dir.glob("agent-*"):
            path.unlink()

    def file(self, name: str, age_days: float) -> Path:
        """Another one, that old."""
        path = self.dir / name
        path.write_bytes(b"")
        return aged(path, age_days)


def aged(path: Path, days: float) -> Path:
    """`path`, last changed and read so long ago."""
    then = time.time() - days * _DAY_S
    os.utime(path, (then, then))
    return path


@pytest.fixture
def store(slurm_lab: LabInfo) -> Store:
    """The lab account's, empty."""
    made = Store(slurm_lab.home)
    made.clear()
    return made
