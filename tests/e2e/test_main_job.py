"""The main job, end to end on the lab: up, mirror, loop, F5, down."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.tkrig import PROGRAM, Project, eventually, line_of

LOOP = ("python", "-m", "debugpy", "--wait-for-client", "2.py")
STOP = line_of(PROGRAM, "total += step")


async def test_the_main_job(project: Project) -> None:
    status = await project.up("node1", "--gpus", "1", "--cpus", "2")
    assert status["state"] == "ready"
    assert status["node"] == "node1"
    assert await project.jobs() == [f"{status['job']['id']} RUNNING"]

    env = (await project.tk("run", "env")).out.splitlines()
    assert f"SLURM_JOB_ID={status['job']['id']}" in env
    assert "CUDA_VISIBLE_DEVICES=0" in env
    assert "SLURMD_NODENAME=node1" in env
    assert "SLURM_CPUS_ON_NODE=2" in env

    terminal = await project.loop(*LOOP)
    assert (await project.ready())["port"] == project.port
    editor, thread, frame = await project.f5_to_stop(STOP)
    assert frame["line"] == STOP
    assert await editor.evaluate("step", frame) == "0"
    assert await editor.evaluate("os.environ['SLURMD_NODENAME']", frame) == "'node1'"
    await terminal.line(r"attached: an editor")
    _check_status(await project.status(), project, status["job"]["id"])
    text = (await project.tk("status")).out
    assert "attached" in text and "node1" in text and str(project.port) in text

    await editor.request("next", threadId=thread)
    thread, frame = await editor.stopped()
    assert frame["line"] == STOP + 1
    await editor.request("setBreakpoints", source=frame["source"], breakpoints=[])
    await editor.finish(thread)
    await terminal.line(r"^node node1$")
    await terminal.line(r"run 1 · ended: exit code 0")
    await terminal.line(r"run 2 .* armed")
    logs = (await project.tk("logs")).out
    assert "step 2 first" in logs and "node node1" in logs

    await project.tk("down")
    assert await terminal.ended() == 0
    await project.nothing_left()


def _check_status(status: dict[str, object], project: Project, job_id: str) -> None:
    """What `tk status --json` promises, while an editor is attached."""
    expected = {"state": "ready", "node": "node1", "login": "login", "scheduler": "slurm"}
    assert {key: status[key] for key in expected} == expected
    assert status["project"] == str(project.dir)
    assert status["debug_port"] == project.port
    job, mirror, agent = status["job"], status["mirror"], status["agent"]
    assert isinstance(job, dict) and isinstance(mirror, dict) and isinstance(agent, dict)
    assert job["id"] == agent["job_id"] == job_id
    assert job["nodes"] == ["node1"]
    assert agent["cuda_visible_devices"] == "0"
    assert (mirror["local"], mirror["remote"]) == (
        str(project.dir),
        str(project.remote()).rstrip("/"),
    )
    assert mirror["files"] == 2
    loops = status["loops"]
    assert isinstance(loops, list) and len(loops) == 1
    loop = loops[0]
    assert loop["state"] == "attached"
    assert loop["editor"] == "an editor"
    assert loop["command"] == " ".join(LOOP)
    assert loop["generation"] == 1


async def test_a_node_of_ones_own_without_a_scheduler(project: Project) -> None:
    status = await project.up("node2", "--scheduler", "none")
    assert status["job"] is None
    assert await project.jobs() == []
    assert (await project.tk("run", "printenv", "TK_LAB_HOST")).out == "node2\n"
    terminal = await project.loop("python", "2.py")
    editor, thread, frame = await project.f5_to_stop(STOP)
    assert await editor.evaluate("os.environ['TK_LAB_HOST']", frame) == "'node2'"
    await editor.request("setBreakpoints", source=frame["source"], breakpoints=[])
    await editor.finish(thread)
    await terminal.line(r"run 2 .* armed")
    await project.tk("down")
    await terminal.ended()
    await project.nothing_left()


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_100_f5_in_a_row_each_the_moment_the_last_one_terminated(project: Project) -> None:
    """0 refused, 0 lost: every one stops where it should, in a process of its own."""
    await project.up("node1", "--cpus", "2")
    await project.loop(*LOOP)
    pids, closing = set(), []
    for _ in range(100):
        editor, thread, frame = await project.f5_to_stop(STOP)
        pids.add(await editor.evaluate("os.getpid()", frame))
        await editor.request("setBreakpoints", source=frame["source"], breakpoints=[])
        await editor.request("continue", threadId=thread)
        # The next one connects while this one is still connected.
        await editor.wait_event("terminated")
        closing.append(asyncio.create_task(editor.close()))
    await asyncio.gather(*closing)
    assert len(pids) == 100
    # No adapter is left over: two processes each for the one in use and its spare.
    await eventually(
        lambda: (
            sum(
                "tunnelkit.debug.adapter.adapter_server" in p.argv
                for p in project.laptop_processes()
            )
            <= 4
        ),
        "the adapters of past runs are gone",
    )


async def test_f5_right_after_disconnect_is_served_by_a_new_debuggee(project: Project) -> None:
    """The editor stops debugging while stopped at a breakpoint, and comes back at once."""
    await project.up("node1", "--cpus", "2")
    await project.loop(*LOOP)
    pids = set()
    for _ in range(25):
        editor, _, frame = await project.f5_to_stop(STOP)
        pids.add(await editor.evaluate("os.getpid()", frame))
        await editor.close()
    assert len(pids) == 25


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_edit_sync_f5_runs_the_new_code_50_of_50(project: Project) -> None:
    """And what the job writes on the cluster survives all syncs."""
    source = PROGRAM.replace(
        "if __name__", "open('made-here.txt', 'a').write(WORD + ' ')\nif __name__"
    )
    stop = line_of(source, "total += step")
    project.write("2.py", source)
    await project.up("node1", "--cpus", "2")
    await project.loop(*LOOP)
    words = [f"word{number}" for number in range(50)]
    for word in words:
        project.write("2.py", source.replace('"first"', f'"{word}"'))
        await project.ready()
        editor, thread, frame = await project.f5_to_stop(stop)
        assert await editor.evaluate("WORD", frame) == f"'{word}'"
        await editor.request("setBreakpoints", source=frame["source"], breakpoints=[])
        await editor.finish(thread)
    made = project.remote("made-here.txt").read_text().split()
    assert made == words
    assert not (project.dir / "made-here.txt").exists()
