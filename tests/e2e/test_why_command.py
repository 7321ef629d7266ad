"""The command `tk why`: its exit codes, its ways to the cluster, its codes' texts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.lab_fixtures import ssh
from tests.support.tkrig import Project
from tunnelkit.diagnosis.codes.registry import CODES
from tunnelkit.errors import ExitCode

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("slurm_lab")]


async def _at_login(project: Project, command: str) -> str:
    return (await asyncio.to_thread(ssh, project.lab, "login", command)).strip()


async def _submit(project: Project, words: str) -> str:
    return await _at_login(project, f"sbatch --parsable -c 1 -t 5 -o /dev/null {words}")


async def _until(project: Project, job: str, *states: str) -> None:
    while await _at_login(project, f"squeue -h -t all -j {job} -o %T") not in states:
        await asyncio.sleep(0.2)


async def test_check_tells_a_failed_job_from_one_that_runs(project: Project) -> None:
    """By a connection of the command's own, then by the session's: the same answers."""
    failed = await _submit(project, "--wrap 'exit 3'")
    runs = await _submit(project, "--wrap 'sleep 600'")
    await _until(project, failed, "FAILED")
    await _until(project, runs, "RUNNING")
    logins = len(project.sshd_connections())
    for session in (False, True):
        if session:
            await project.up("node1", "--cpus", "1")
        done = await project.tk("why", failed, "--check", "--json", code=ExitCode.DIAGNOSED)
        info = json.loads(done.out)
        assert (info["job_id"], info["stage"]) == (failed, "ended")
        assert any(CODES[one["code"]].fatal for one in info["verdicts"])
        assert (await project.tk("why", failed, code=0)).out.startswith(f"job {failed} ")
        done = await project.tk("why", runs, "--check", "--json", code=0)
        assert json.loads(done.out)["stage"] == "running"
        if not session:
            assert len(project.sshd_connections()) == logins  # none is left open
    await _at_login(project, f"scancel {runs}")


async def test_outside_of_any_project_a_login_host_is_enough(
    project: Project, tmp_path: Path
) -> None:
    """Without a session, a project or a profile: `--login` alone."""
    failed = await _submit(project, "--wrap 'exit 3'")
    await _until(project, failed, "FAILED")
    (project.dir / "tunnelkit.toml").unlink()
    project.dir = tmp_path
    words = ("--profile", "lab", "--login", "login")
    done = await project.tk("why", failed, *words, "--check", "--json", code=ExitCode.DIAGNOSED)
    assert json.loads(done.out)["job_id"] == failed
    newest = json.loads((await project.tk("why", *words, "--json")).out)
    assert newest["job_id"] == failed
    place = json.loads((await project.tk("logs", failed, *words, "--json")).out)
    assert place["path"] == "/dev/null"
    unknown = await project.tk("why", "1;reboot", *words, code=ExitCode.USAGE)
    assert "is not a Slurm job id" in unknown.err


async def test_codes_are_explained_and_a_mistyped_one_is_guessed(project: Project) -> None:
    done = await project.tk("why", "--explain", "never")
    assert done.out.startswith("never: ") and CODES["never"].remedy in done.out
    told = json.loads((await project.tk("why", "--explain", "never", "--json")).out)
    assert (told["name"], told["fatal"]) == ("never", True)
    near = await project.tk("why", "--explain", "nevr", code=ExitCode.USAGE)
    assert "did you mean never" in near.err
    far = await project.tk("why", "--explain", "zzzz", code=ExitCode.USAGE)
    assert "known: never" in far.err
    assert "proven" in (await project.tk("help", "why")).out
