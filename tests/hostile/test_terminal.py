"""Nothing that a cluster says moves the cursor, sets the title or paints a line like tk's."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.faults.test_ssh_scheduler import Programs
from tests.support.login_rig import LoginHost, login_host, project_by
from tests.support.logins import allowed
from tests.support.pty_terminal import on_a_terminal
from tests.support.tkrig import Project
from tunnelkit.lab import LabInfo

#: A title, a cleared screen, a line that looks like tk's, 8-bit CSI, an override of the direction.
EVIL = r"\033]0;OWNED\007\033[2J\rtk: ready, press F5\033[8m\302\2332J\342\200\256"


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


async def test_what_the_scheduler_says_is_shown_as_text(
    project: Project, programs: Programs
) -> None:
    asked = 'case " $* " in *" --version "*) exec "$REAL" "$@" ;; esac'
    programs.replace("sbatch", f"{asked}\nprintf 'no: {EVIL}' >&2; exit 1")
    async with on_a_terminal(project, "up", "node1") as screen:
        assert await screen.ended() != 0
    assert "OWNED" in screen.raw, "the person is shown what it said"
    for obeyed in ("\x1b]", "\x1b[2J", "\x1b[8m", "\x07", "\x9b", "\u202e"):
        assert obeyed not in screen.raw
    assert not any(line.startswith("tk: ready") for line in screen.lines)
