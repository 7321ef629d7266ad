"""A job is submitted once, however slow sbatch is and whatever becomes of those who wait for it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.login_rig import LoginHost, login_host, project_by
from tests.support.logins import allowed
from tests.support.tkrig import Project, eventually
from tunnelkit.lab import LabInfo

pytestmark = pytest.mark.slow


class Site:
    """A site whose sbatch asks a filter of its own first, which answers when it is `open`ed."""

    def __init__(self, host: LoginHost) -> None:
        self.host = host
        self.gate = host.home / "gate"
        self._calls = host.home / "calls"
        self.programs = host.home / "site"
        self.programs.mkdir()
        host.programs = self.programs
        self.sbatch(f'while [ ! -e {self.gate} ]; do sleep 0.05; done\nexec "$REAL" "$@"')

    def sbatch(self, body: str) -> None:
        """What its sbatch does; `"$REAL" "$@"` is the real one."""
        script = self.programs / "sbatch"
        draft = script.with_suffix(".new")
        real = f"REAL={shutil.which('sbatch')}"
        version = '[ "$1" = --version ] && exec "$REAL" "$@"'
        draft.write_text(f"#!/bin/sh\n{real}\n{version}\necho call >>{self._calls}\n{body}\n")
        draft.chmod(0o755)
        draft.replace(script)

    def open(self) -> None:
        self.gate.touch()

    def calls(self) -> int:
        return len(self._calls.read_text().split()) if self._calls.exists() else 0

    async def is_asked(self) -> None:
        await eventually(self.calls, "sbatch was called")


@pytest.fixture
def site(slurm_lab: LabInfo, request: pytest.FixtureRequest) -> Iterator[Site]:
    with login_host(slurm_lab, started=False, logins=allowed(request, "login")) as host:
        made = Site(host)
        host.start()
        try:
            yield made
        finally:
            made.open()


@pytest.fixture
async def project(site: Site) -> AsyncIterator[Project]:
    async with project_by(site.host) as made:
        yield made


def submissions(project: Project) -> list[Path]:
    jobs = project.lab.home / ".cache" / "tunnelkit" / "jobs"
    return sorted(jobs.glob(f"tk-{project.dir.name}-*.sub-*"))


@pytest.mark.logins(login=2)
async def test_a_slow_one_is_waited_for_over_a_cut(project: Project, site: Site) -> None:
    terminal = await project.terminal("up", "node1")
    await terminal.line(r"the scheduler has not answered the submission for \d+ s")
    site.host.cut()
    site.open()
    await terminal.line("ready on node1")
    assert await terminal.ended() == 0
    assert site.calls() == 1
    assert len(await project.jobs()) == 1


@pytest.mark.logins(login=2)
async def test_a_killed_sessions_submission_is_taken_over(project: Project, site: Site) -> None:
    terminal = await project.terminal("up", "node1")
    await site.is_asked()
    os.kill((await project.status())["pid"], signal.SIGKILL)
    await terminal.ended()
    again = await project.terminal("up", "node1")
    await again.line(r"the scheduler has not answered the submission for \d+ s")
    site.open()
    await again.line("ready on node1")
    assert site.calls() == 1
    assert len(await project.jobs()) == 1


@pytest.mark.logins(login=2)
@pytest.mark.parametrize("killed", [False, True], ids=["Ctrl-C", "tk down after a kill"])
async def test_one_that_is_given_up_leaves_no_job(
    project: Project, site: Site, killed: bool
) -> None:
    terminal = await project.terminal("up", "node1")
    await site.is_asked()
    if killed:
        os.kill((await project.status())["pid"], signal.SIGKILL)
        await terminal.ended()
        down = await project.tk("down", code=7)
        assert "its job is cancelled as soon as it has an id" in down.err
    else:
        terminal.interrupt()
        assert await terminal.ended() == 130
    site.open()
    (directory,) = submissions(project)
    await eventually(lambda: (directory / "code").exists(), "sbatch has answered")
    async with asyncio.timeout(20):
        while await project.jobs():
            await asyncio.sleep(0.1)
    assert site.calls() == 1
    # And the next one is another.
    await project.up("node1")
    assert site.calls() == 2


@pytest.mark.parametrize("pause_s", [0.0, 0.05, 0.2])
async def test_ctrl_c_in_the_moment_of_the_submission(
    project: Project, site: Site, pause_s: float
) -> None:
    site.open()
    terminal = await project.terminal("up", "node1")
    await site.is_asked()
    await asyncio.sleep(pause_s)
    terminal.interrupt()
    await terminal.ended()
    await project.tk("down", code=None)  # where Ctrl-C came too late
    async with asyncio.timeout(20):
        while await project.jobs():
            await asyncio.sleep(0.1)
    assert site.calls() == 1
    # Slurm loses the TERM of a cancel that comes while slurmstepd starts: the agent comes up,
    # and is killed after KillWait. A process killed so can't remove its socket.
    project.forget_killed_agents()


async def test_a_second_job_of_one_submission_is_ended_and_said(
    project: Project, site: Site
) -> None:
    site.sbatch('"$REAL" "$@" <"$0.body" 2>/dev/null; cat >"$0.body"; "$REAL" "$@" <"$0.body"')
    (site.programs / "sbatch.body").write_text("#!/bin/sh\nexec sleep 600\n")
    status = await project.up("node1")
    job = status["job"]["id"]
    async with asyncio.timeout(30):
        while await project.jobs() != [f"{job} RUNNING"]:
            await asyncio.sleep(0.1)
    assert "is a second one of this project" in project.session_log()


async def test_a_refusal_is_told_at_once(project: Project, site: Site) -> None:
    site.sbatch("echo 'sbatch: error: invalid partition specified: gpu' >&2; exit 1")
    done = await project.tk("up", "node1", code=7)
    assert "invalid partition" in done.err
    assert site.calls() == 1
