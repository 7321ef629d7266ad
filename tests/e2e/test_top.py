"""`tk top` on jobs of the lab: with a session and without, on a terminal, and what is left."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest

from tests.lab_fixtures import ssh
from tests.support import processes
from tests.support.pty_terminal import on_a_terminal
from tests.support.tkrig import Project, eventually

#: Rank 2 computes, the others wait for it.
RANKS = """\
    import os
    import threading
    import time

    open(f"begun{os.environ['SLURM_PROCID']}", "w").close()
    while os.environ["SLURM_PROCID"] == "2":
        sum(range(10_000))
    threading.Event().wait()
    """


def probes(project: Project) -> list[int]:
    place = str(project.lab.dir)
    return [
        one.pid
        for one in processes.look().values()
        if "stream" in one.argv
        and any("tunnelkit.probe.main" in word for word in one.argv)
        and any(place in word for word in one.environ)
        and one.program != "srun"
    ]


@pytest.fixture
async def ranks(project: Project) -> AsyncIterator[None]:
    """Four ranks on two nodes of a session's job."""
    project.write("ranks.py", RANKS)
    await project.up("--nodes", "2", "--cpus", "2")
    terminal = await project.terminal("run", "srun", "-n", "4", "python", "ranks.py")
    begun = [project.remote(f"begun{rank}") for rank in range(4)]
    await eventually(lambda: all(one.exists() for one in begun), "all have begun", 60)
    yield
    await terminal.close()


@pytest.mark.usefixtures("ranks")
async def test_the_rank_that_differs_is_marked(project: Project) -> None:
    frame = (await project.tk("top", "--json")).json
    assert [(one["rank"], one["node"]) for one in frame["rows"]] == [
        (0, "node1"), (1, "node1"), (2, "node2"), (3, "node2"),
    ]  # fmt: skip
    # Other tests may leave it too little of a CPU: then that is in what it differs.
    worst = [one["worst"] for one in frame["rows"]]
    assert worst[2] in ("CPU", "waits for CPUs") and worst == ["", "", worst[2], ""]
    assert [one["problem"] for one in frame["nodes"]] == ["", ""]
    assert set(frame) == {
        "job_id", "time_s", "state", "remaining_s", "sampled_s", "nodes", "rows", "gpus",
        "threads", "verdict", "notes", "history",
    }  # fmt: skip
    # Piped, it is one sample as text.
    lines = (await project.tk("top")).out.splitlines()
    assert lines[0].startswith(f"job {frame['job_id']} · running · ")
    assert "▲  node2" in next(line for line in lines if "(differs: " in line)
    assert (await project.tk("top", "--gpu", "--threads", code=2)).err.startswith("tk: ")
    await eventually(lambda: not probes(project), "no probe is left", 30)


@pytest.mark.slow
@pytest.mark.usefixtures("ranks")
async def test_the_screen_shows_the_reason_and_leaves_nothing(project: Project) -> None:
    async with on_a_terminal(project, "top", columns=120) as screen:
        await screen.shows(r"4 ranks")
        # On a busy machine its other programs are the reason.
        await screen.shows(r"why: .*(?:3 ranks wait for rank 2|other processes of the node)", 60)
        screen.type("n")
        await screen.shows(r"busiest")
        assert len(probes(project)) == 2
        screen.type("q")
        assert await screen.ended() == 0
    await eventually(lambda: not probes(project), "no probe is left after q", 30)
    for sign in (signal.SIGINT, signal.SIGKILL):
        async with on_a_terminal(project, "top") as screen:
            await screen.shows(r"4 ranks")
            os.kill(screen.process.pid, sign)
            await screen.ended()
        await eventually(lambda: not probes(project), f"no probe is left after {sign}", 30)
    history = (await project.tk("top", "--history")).out
    assert "node2:rank 2" in history and "least, middle, most" in history


@pytest.mark.slow
@pytest.mark.usefixtures("ranks")
async def test_a_session_that_was_killed_leaves_no_probe(project: Project) -> None:
    async with on_a_terminal(project, "top") as screen:
        await screen.shows(r"4 ranks")
        os.kill((await project.status())["pid"], signal.SIGKILL)
        await screen.shows(r"trying\s+again")
        await project.up("--nodes", "2", "--cpus", "2")
        await screen.shows(r"4 ranks")
        screen.type("q")
        assert await screen.ended() == 0
    await eventually(lambda: not probes(project), "no probe is left", 120)


@pytest.mark.slow
async def test_a_job_without_a_session_and_one_that_has_ended(project: Project) -> None:
    spin = "python3 -c 'while True: sum(range(1000))'"
    line = f'sbatch --parsable -w node1 -c 1 -t 5 -o /dev/null --wrap "{spin}"'
    job = (await asyncio.to_thread(ssh, project.lab, "login", line)).strip()
    try:
        async with asyncio.timeout(60):
            while "python3" not in (done := await project.tk("top", job, "--once", code=None)).out:
                assert done.code in (0, 7), done
                await asyncio.sleep(0.3)
        assert done.out.startswith(f"job {job} · running")
        async with on_a_terminal(project, "top", job) as screen:
            await screen.shows(r"python3")
            await asyncio.to_thread(ssh, project.lab, "login", f"scancel {job}")
            await screen.shows(rf"job {job} has ended: tk why {job}", 120)
            assert await screen.ended() == 0
    finally:
        await asyncio.to_thread(ssh, project.lab, "login", f"scancel {job}")
    done = await project.tk("top", job, code=7)
    assert f"job {job} does not run" in done.err and f"tk why {job}" in done.err
