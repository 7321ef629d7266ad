"""A login host whose scheduler's commands are what a test puts there."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.login_rig import LoginHost, login_host, project_by
from tests.support.logins import allowed
from tests.support.tkrig import Project
from tunnelkit.lab import LabInfo

#: Slurm's, all that tk may ask.
COMMANDS = ("sbatch", "squeue", "scancel", "scontrol", "srun", "sinfo", "sacct")


class Programs:
    """Slurm's commands as one login host has them: the real ones, or what a test puts there."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self.restore()

    def replace(self, name: str, body: str) -> None:
        """`body` is shell; `"$REAL" "$@"` is the real one."""
        draft = self.directory / f"{name}.new"
        draft.write_text(f"#!/bin/sh\nREAL={shutil.which(name)}\n{body}\n")
        draft.chmod(0o755)
        draft.replace(self.directory / name)

    def restore(self) -> None:
        for name in COMMANDS:
            if shutil.which(name):
                self.replace(name, 'exec "$REAL" "$@"')


@pytest.fixture
def host(slurm_lab: LabInfo, request: pytest.FixtureRequest) -> Iterator[LoginHost]:
    with login_host(slurm_lab, started=False, logins=allowed(request, "login")) as made:
        made.programs = made.home / "bin"
        Programs(made.programs)
        made.start()
        yield made


@pytest.fixture
def programs(host: LoginHost) -> Programs:
    assert host.programs is not None
    shutil.rmtree(host.programs)
    return Programs(host.programs)


@pytest.fixture
async def project(host: LoginHost) -> AsyncIterator[Project]:
    async with project_by(host) as made:
        yield made
