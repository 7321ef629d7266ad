"""`tk why` by a login of its own: one command over ssh, and few of the scheduler's."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.lab_fixtures import ssh
from tests.support.login_rig import LoginHost
from tests.support.scheduler_rig import Programs
from tests.support.scheduler_rig import host as host
from tests.support.scheduler_rig import programs as programs
from tests.support.scheduler_rig import project as project
from tests.support.tkrig import Project


def commands(host: LoginHost) -> int:
    return len(re.findall(r"^Starting session: ", host.said(), re.M))


@pytest.mark.logins(2)
async def test_one_command(project: Project, host: LoginHost, programs: Programs) -> None:
    asked = host.home / "asked"
    for name in ("sbatch", "squeue", "sinfo", "sprio", "scontrol", "sacct"):
        programs.replace(name, f'echo {name} >>{asked}\nexec "$REAL" "$@"')
    job = ssh(project.lab, "login", "sbatch --parsable --hold -t 5 --wrap true").strip()
    try:
        found = (await project.tk("why", job, "--json")).json
        assert (found["stage"], found["verdicts"][0]["code"]) == ("waiting", "held-you")
        assert commands(host) == 1, host.said()
        names = asked.read_text().split()
        assert "sbatch" not in names and 3 <= len(names) <= 6, names
        # Without a job one is looked for first: together with the scheduler.
        assert (await project.tk("why", "--json")).json["job_id"] == job
        assert commands(host) == 3, host.said()
    finally:
        ssh(project.lab, "login", f"scancel {job}")


@pytest.mark.logins(1)
async def test_ssh_is_asked_once_for_its_configuration(
    project: Project, host: LoginHost, tmp_path: Path
) -> None:
    """Which of a name's hosts answered matters to those alone that connect again."""
    job = ssh(project.lab, "login", "sbatch --parsable --hold -t 5 --wrap true").strip()
    calls = tmp_path / "calls"
    wrapper = tmp_path / "bin" / "ssh"
    wrapper.parent.mkdir()
    real = shutil.which("ssh")
    wrapper.write_text(
        f'#!/bin/sh\nprintf "%s " "$@" | tr "\\n" " " >>{calls}\necho >>{calls}\nexec {real} "$@"\n'
    )
    wrapper.chmod(0o755)
    project.env["PATH"] = f"{wrapper.parent}:{os.environ['PATH']}"
    try:
        assert (await project.tk("why", job, "--json")).json["job_id"] == job
        lines = calls.read_text().splitlines()
        assert sum(" -G " in line for line in lines) == 1, lines
        assert commands(host) == 1, host.said()
    finally:
        ssh(project.lab, "login", f"scancel {job}")
