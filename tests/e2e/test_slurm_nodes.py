"""Several nodes: an agent on each, `tk run --node`, `tk shell NODE`, on the lab's real Slurm."""

from __future__ import annotations

import asyncio

import pytest

from tests.support import processes
from tests.support.pty_terminal import on_a_terminal
from tests.support.tkrig import Project, eventually


@pytest.mark.parametrize("way", ["ssh", "srun"])
async def test_commands_land_on_the_node_that_is_named(project: Project, way: str) -> None:
    if way == "srun":
        project.configure('[cluster]\nnode_ssh = "no"\n')
    status = await project.up("--nodes", "2", "--gpus", "1", "--cpus", "2")
    first, other = status["job"]["nodes"]
    assert (first, other) == ("node1", "node2")

    env = (await project.tk("run", "--node", other, "env")).out.splitlines()
    for word in ("SLURMD_NODENAME=node2", f"SLURM_JOB_ID={status['job']['id']}"):
        assert word in env
    assert any(word.startswith("CUDA_VISIBLE_DEVICES=") for word in env)
    assert "SLURM_CPUS_ON_NODE=2" in env
    # stdin, exit code, stderr and the mirrored directory are those of any `tk run`.
    script = "cat; pwd; echo told >&2; exit 7"
    done = await project.tk("run", "--node", other, "sh", "-c", script, code=7, stdin=b"given\n")
    assert done.out.splitlines() == ["given", str(project.remote()).rstrip("/")]
    assert done.err == "told\n"
    env = (await project.tk("run", "--node", first, "env")).out.splitlines()
    assert "SLURMD_NODENAME=node1" in env

    done = await project.tk("run", "--node", "node7", "true", code=2)
    assert "node7 is not a node of this allocation" in done.err and "node1, node2" in done.err
    assert "node     node2, agent " in (await project.tk("status")).out
    # What runs there, and its agent, outlives a dead ssh, and ends with `tk down`.
    running = await project.terminal("run", "--node", other, "sh", "-c", "echo up; cat; echo over")
    await running.line("^up$")
    processes.kill(project.ssh_processes())
    assert running.process.stdin is not None
    running.process.stdin.write(b"still there\n")
    running.process.stdin.close()
    await running.line("^still there$")
    await running.line("^over$")
    assert await running.ended() == 0
    await project.tk("down")
    await project.nothing_left()


async def test_a_shell_on_the_other_node(project: Project) -> None:
    await project.up("--nodes", "2", "--cpus", "2")
    async with on_a_terminal(project, "shell", "node2") as screen:
        screen.type("echo on $SLURMD_NODENAME; exit 3\n")
        await screen.shows(r"^on node2")
        assert await screen.ended() == 3


async def test_an_agent_that_dies_is_had_anew(project: Project) -> None:
    await project.up("--nodes", "2", "--cpus", "2")
    await project.tk("run", "--node", "node2", "true")
    before = (await project.status())["other_nodes"][0]
    processes.kill([before["agent"]])
    await eventually(lambda: not processes.is_alive(before["agent"]), "the agent is gone")
    for _ in range(100):
        done = await project.tk("run", "--node", "node2", "true", code=None)
        if done.code == 0:
            break
        await asyncio.sleep(0.2)
    assert done.code == 0, done
    after = (await project.status())["other_nodes"][0]
    assert after["agent"] != before["agent"]
    assert after["why_not"] is None
