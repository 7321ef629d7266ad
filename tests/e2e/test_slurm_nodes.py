"""Several nodes, an agent on each: `tk run --node`, `tk shell NODE`, on the lab's real Slurm; and
what the login host sees of such a session once it is settled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.processes import Seen
from tests.support.pty_terminal import on_a_terminal
from tests.support.tkrig import PATIENCE_S, PROGRAM, Project, line_of
from tunnelkit import lab as tk_lab
from tunnelkit.lab import LabInfo
from tunnelkit.scheduler.poller import SETTLED_S

STOP = line_of(PROGRAM, "total += step")
COMMANDS = ("sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo", "srun")
_WRAPPER = """#!/bin/sh
echo "$(date +%s.%N) {name} $*" >> {log}
exec /usr/bin/{name} "$@"
"""


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


async def only_srun_stays(project: Project) -> None:
    """srun itself, and the process of its own that watches it. Another command may be ending."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        here = [one for one in on_login(project) if one.program != "sshd:"]
        if 1 <= len(here) <= 2 and {one.program for one in here} == {"srun"}:
            return
        assert time.monotonic() < until_s, named(here)
        await asyncio.sleep(0.2)


async def lands_there(project: Project, job: str) -> None:
    """stdin, exit code, stderr, GPUs and the mirrored directory are those of any `tk run`."""
    env = (await project.tk("run", "--node", "node2", "env")).out.splitlines()
    for word in ("SLURMD_NODENAME=node2", f"SLURM_JOB_ID={job}", "SLURM_CPUS_ON_NODE=2"):
        assert word in env
    assert any(word.startswith("CUDA_VISIBLE_DEVICES=") for word in env)
    script = "cat; pwd; echo told >&2; exit 7"
    done = await project.tk("run", "--node", "node2", "sh", "-c", script, code=7, stdin=b"given\n")
    assert done.out.splitlines() == ["given", str(project.remote()).rstrip("/")]
    assert done.err == "told\n"


async def works(project: Project, number: int) -> None:
    """An edit, and the F5 after it."""
    project.write("2.py", PROGRAM.replace('"first"', f'"word{number}"'))
    await project.ready()
    editor, thread, frame = await project.f5_to_stop(STOP)
    assert await editor.evaluate("WORD", frame) == f"'word{number}'"
    await editor.request("setBreakpoints", source=frame["source"], breakpoints=[])
    await editor.finish(thread)
    await editor.close()


@pytest.mark.slow
async def test_every_node_is_at_hand_and_the_login_host_is_left_in_peace(
    asked: Path, project: Project
) -> None:
    status = await project.up("--nodes", "2", "--gpus", "1", "--cpus", "2")
    assert status["job"]["nodes"] == ["node1", "node2"]
    await project.loop("python", "2.py")
    before, begin_s = len(calls(asked)), time.monotonic()
    assert any("squeue" in line for line in calls(asked)), "the wrappers are used"

    await lands_there(project, status["job"]["id"])
    env = (await project.tk("run", "--node", "node1", "env")).out.splitlines()
    assert "SLURMD_NODENAME=node1" in env
    done = await project.tk("run", "--node", "node7", "true", code=2)
    assert "node7 is not a node of this allocation" in done.err and "node1, node2" in done.err
    assert "node     node2, agent " in (await project.tk("status")).out
    async with on_a_terminal(project, "shell", "--node", "node2") as screen:
        screen.type("echo on $SLURMD_NODENAME; exit 3\n")
        await screen.shows(r"^on node2")
        assert await screen.ended() == 3

    words = 0
    while (took_s := time.monotonic() - begin_s) < SETTLED_S + 1:
        words += 1
        await works(project, words)
        here = on_login(project)
        assert len(here) <= 2, named(here)
    after = [line for line in calls(asked)[before:] if "tk-agent" not in line]
    assert len(after) <= took_s // SETTLED_S + 1, "\n".join(after)
    assert all(" squeue " in line for line in after)

    # What runs on the other node outlives a dead ssh; an agent that dies there is had anew.
    running = await project.terminal(
        "run", "--node", "node2", "sh", "-c", "echo up; cat; echo over"
    )
    await running.line("^up$")
    processes.kill(project.ssh_processes())
    assert running.process.stdin is not None
    running.process.stdin.write(b"still there\n")
    running.process.stdin.close()
    await running.line("^still there$")
    await running.line("^over$")
    assert await running.ended() == 0
    pid = (await project.status())["other_nodes"][0]["agent"]
    processes.kill([pid])
    while (await project.tk("run", "--node", "node2", "true", code=None)).code:
        await asyncio.sleep(0.2)
    assert (await project.status())["other_nodes"][0]["agent"] != pid
    await project.tk("down")
    await project.nothing_left()


async def test_all_of_them_by_srun(asked: Path, project: Project) -> None:
    project.configure('[cluster]\nnode_ssh = "no"\n')
    status = await project.up("--nodes", "2", "--gpus", "1", "--cpus", "2")
    await project.loop("python", "2.py")
    await project.ready()
    await only_srun_stays(project)
    await lands_there(project, status["job"]["id"])
