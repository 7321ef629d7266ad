"""What the login host sees of a settled session: how often it is asked, how much runs there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.processes import Seen
from tests.support.tkrig import PROGRAM, Project, line_of
from tunnelkit import lab as tk_lab
from tunnelkit.lab import LabInfo

STOP = line_of(PROGRAM, "total += step")
COMMANDS = ("sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo", "srun")
_WRAPPER = """#!/bin/sh
echo "$(date +%s.%N) {name} $*" >> {log}
exec /usr/bin/{name} "$@"
"""
_WORK_S = 40.0


@pytest.fixture
def asked(slurm_lab: LabInfo, tmp_path: Path) -> Iterator[Path]:
    """A log of every call of Slurm's commands on the lab's hosts: wrappers come first there."""
    log, own = tmp_path / "asked", slurm_lab.dir / "bin"
    wrappers = [own / name for name in COMMANDS if Path("/usr/bin", name).exists()]
    if not wrappers:
        pytest.skip("Slurm's commands are not in /usr/bin")
    for path in wrappers:
        path.write_text(_WRAPPER.format(name=path.name, log=log))
        path.chmod(0o700)
    yield log
    for path in wrappers:
        path.unlink()


def calls(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def on_login(project: Project) -> list[Seen]:
    """What serves or runs the session on the login host."""
    [listener] = [
        one.pid for one in tk_lab.status(project.lab.dir).daemons if one.name == "sshd-login"
    ]
    below = processes.descendants([listener])
    host = "TK_LAB_HOST=login"
    name = f"tk-{project.dir.name}-"
    known = {one.pid for one in below}
    return below + [
        one
        for one in processes.look().values()
        if one.pid not in known and host in one.environ and any(name in word for word in one.argv)
    ]


def named(seen: list[Seen]) -> str:
    return "\n".join(map(str, seen))


async def test_it_is_asked_every_30_s_and_has_one_connection(asked: Path, project: Project) -> None:
    await project.up("node1", "--cpus", "2")
    assert any("squeue" in line for line in calls(asked)), "the wrappers are used"
    await project.loop("python", "2.py")
    await project.ready()
    before, begin_s = len(calls(asked)), time.monotonic()
    words = 0
    while time.monotonic() - begin_s < _WORK_S:
        words += 1
        project.write("2.py", PROGRAM.replace('"first"', f'"word{words}"'))
        await project.ready()
        editor, thread, frame = await project.f5_to_stop(STOP)
        assert await editor.evaluate("WORD", frame) == f"'word{words}'"
        await editor.request("setBreakpoints", source=frame["source"], breakpoints=[])
        await editor.finish(thread)
        await editor.close()
        await project.tk("run", "true")
        await project.tk("status")
        here = on_login(project)
        assert len(here) <= 2, named(here)
    after = calls(asked)[before:]
    took_s = time.monotonic() - begin_s
    assert len(after) <= took_s // 30 + 1, "\n".join(after)
    assert all(" squeue " in line for line in after)


async def test_entered_by_srun_that_is_all_that_runs_there(asked: Path, project: Project) -> None:
    project.configure('[cluster]\nnode_ssh = "no"\n')
    await project.up("node1", "--cpus", "2")
    await project.loop("python", "2.py")
    await project.ready()
    here = [one for one in on_login(project) if one.program != "sshd:"]
    # srun itself, and the process of its own that watches it.
    assert len(here) <= 2 and {one.program for one in here} == {"srun"}, named(here)
