"""A site that puts a script of its own before one of the scheduler's commands."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.login_rig import LoginHost, login_host, project_by
from tests.support.logins import allowed
from tests.support.tkrig import Project
from tunnelkit.lab import LabInfo


@pytest.fixture
def host(slurm_lab: LabInfo, request: pytest.FixtureRequest) -> Iterator[LoginHost]:
    with login_host(slurm_lab, started=False, logins=allowed(request, "login")) as made:
        made.programs = made.home / "site"
        made.programs.mkdir()
        made.start()
        yield made


@pytest.fixture
async def project(host: LoginHost) -> AsyncIterator[Project]:
    async with project_by(host) as made:
        yield made


def wrap(host: LoginHost, name: str) -> Path:
    """Have the site's own `name` first on the PATH; the file where it notes its calls."""
    assert host.programs is not None
    calls = host.home / f"{name}.calls"
    script = host.programs / name
    script.write_text(
        f'#!/bin/sh\necho "$*" >>{calls}\nexec {shutil.which(name)} "$@"\n', encoding="utf-8"
    )
    script.chmod(0o755)
    return calls


@pytest.mark.logins(login=2)
@pytest.mark.parametrize("name", ["sbatch", "squeue", "scancel"])
async def test_one_wrapped_command_is_used_and_the_others_are_found(
    project: Project, host: LoginHost, name: str
) -> None:
    calls = wrap(host, name)
    done = await project.tk("doctor")
    assert "slurm" in done.out
    await project.up("node1")
    await project.tk("down")
    assert [line for line in calls.read_text().splitlines() if "--version" not in line]
    await project.nothing_left()
