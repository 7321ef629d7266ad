"""`tk why` on jobs that run in the lab: with a session and without, on two nodes, with a GPU."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.lab_fixtures import ssh
from tests.support.pty_terminal import on_a_terminal
from tests.support.slow_rig import prefer, pretend_nvml
from tests.support.tkrig import Project, eventually, line_of

pytestmark = pytest.mark.slow

WAIT = "import threading; print('ready', flush=True); threading.Event().wait()"
SERVE = (
    "import socket; s = socket.create_server(('127.0.0.1', 0)); print('ready', flush=True); "
    "s.accept()"
)
LOADER = """\
import os
out, into = os.pipe()
if os.fork() == 0:
    while True:
        sum(range(3_000_000))
        os.write(into, b"x")
print("ready", flush=True)
while os.read(out, 1):
    pass
"""
Submit = Callable[..., Awaitable[str]]


async def at_login(project: Project, command: str) -> str:
    return (await asyncio.to_thread(ssh, project.lab, "login", command)).strip()


@pytest.fixture
async def submit(project: Project) -> AsyncIterator[Submit]:
    """Submits jobs as a user would, and waits until their programs say `ready`."""
    jobs = []

    async def submit(words: str, command: str, count: int = 1) -> str:
        log = project.base / f"log{len(jobs)}"
        script = project.base / f"script{len(jobs)}.sh"
        script.write_text(f"#!/bin/sh\n{command}\n")
        line = f"sbatch --parsable -t 10 -o {log} {words} {script}"
        job = await at_login(project, line)
        jobs.append(job)
        await eventually(
            lambda: log.exists() and log.read_text().count("ready") >= count, "it is ready", 60
        )
        return job

    yield submit
    for job in jobs:
        await at_login(project, f"scancel {job}")
    if jobs:
        listed = f"squeue -h -j {','.join(jobs)} 2>/dev/null || true"
        while await at_login(project, listed):
            await asyncio.sleep(0.1)


async def why(project: Project, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = (await project.tk("why", *words, "--json", timeout_s=90)).json
    return found


def codes(found: dict[str, Any]) -> list[str]:
    return [one["code"] for one in found["verdicts"]]


@pytest.mark.why("slow")
async def test_a_job_that_tk_did_not_make_is_sampled_without_a_session(
    project: Project, submit: Submit
) -> None:
    job = await submit("-w node1 -c 1", f'python3 -c "{WAIT}"')
    zips = set(project.lab.home.rglob("probe-*.zip"))
    found = await why(project, job, "--sample", "3")
    assert (found["stage"], found["not_asked"]) == ("running", [])
    assert codes(found) == ["hang"] and found["verdicts"][0]["certainty"] == "likely"
    text = (await project.tk("why", job, "--sample", "3", timeout_s=90)).out
    assert text.startswith(f"job {job} most likely stands still")
    assert "  not it " in text and "CPU quota" in text and "py-spy dump" in text
    # Nothing is written on the node.
    assert set(project.lab.home.rglob("probe-*.zip")) == zips
    found = await why(project, job, "--sample", "0")
    assert codes(found) == ["running"]


@pytest.mark.why("slow")
async def test_all_nodes_of_a_job_are_asked(project: Project, submit: Submit) -> None:
    job = await submit("-N 2 -n 2 -c 1", f'srun python3 -c "{WAIT}"', count=2)
    found = await why(project, job, "--sample", "2")
    assert (codes(found), found["not_asked"]) == (["hang"], [])
    texts = [one["text"] for one in found["verdicts"][0]["because"]]
    waits = [text for text in texts if text.startswith("rank ")]
    assert sorted(text.split(" (")[0] for text in waits) == ["rank 0", "rank 1"]
    assert {"on node1" in text for text in waits} == {True, False}


@pytest.mark.why("slow")
async def test_elements_of_an_array_are_told_apart(project: Project, submit: Submit) -> None:
    """The last element has the array's number for its own."""
    spins = "print('ready', flush=True)\nwhile True: pass"
    command = f'[ $SLURM_ARRAY_TASK_ID = 2 ] || exec python3 -c "{spins}"\npython3 -c "{WAIT}"'
    array = await submit("-a 2-3 -w node1 -c 1 --open-mode=append", command, count=2)
    stands = await why(project, f"{array}_2", "--sample", "2")
    runs = await why(project, f"{array}_3", "--sample", "2")
    assert (codes(stands), stands["not_asked"]) == (["hang"], [])
    assert "hang" not in codes(runs) and runs["not_asked"] == []


SPINS = "import os\nprint('pid', os.getpid(), flush=True)\nwhile True:\n    pass\n"


@pytest.mark.why("healthy")
async def test_a_program_at_a_breakpoint_does_not_hang(project: Project) -> None:
    """With its session: the debugger's place. From elsewhere it is not known, and no hang."""
    (project.dir / "spin.py").write_text(SPINS)
    stop = line_of(SPINS, "print")
    await project.up("--nodes", "1", "--cpus", "1")
    job = (await project.tk("status", "--json")).json["job"]["id"]
    terminal = await project.loop("python", "spin.py")
    found = await why(project, "--sample", "1")
    assert codes(found) == ["waits-for-editor"], found
    assert found["verdicts"][0]["certainty"] == "proven"
    editor = await project.f5(stop, file="spin.py")
    thread, frame = await editor.stopped(60)
    found = await why(project, "--sample", "2")
    assert codes(found) == ["at-breakpoint"], found
    [verdict] = found["verdicts"]
    assert verdict["certainty"] == "proven" and f"/spin.py:{stop}" in verdict["sentence"]
    assert verdict["because"][0]["source"] == "the session's debugger"
    (project.base / "o").mkdir()
    other = Project(project.lab, project.base / "o")
    found = await why(other, job, "--sample", "2")
    assert codes(found)[0] in ("at-breakpoint", "nothing"), found
    assert found["verdicts"][0]["certainty"] in ("likely", "unknown")
    # While it runs it is sampled as a program that a launcher has started.
    await editor.request("setBreakpoints", source=frame["source"], breakpoints=[])
    await editor.request("continue", threadId=thread)
    pid = (await terminal.line(r"pid (\d+)")).group(1)
    rows = (await project.tk("top", "--json")).json["rows"]
    assert [str(row["pid"]) for row in rows] == [pid], rows


@pytest.mark.why("healthy")
async def test_a_server_without_clients_has_no_finding(project: Project, submit: Submit) -> None:
    job = await submit("-w node1 -c 1", f'python3 -c "{SERVE}"')
    found = await why(project, job, "--sample", "2")
    assert codes(found) == ["nothing"]


async def test_a_session_asks_its_agents_and_other_jobs_by_steps(
    project: Project, submit: Submit
) -> None:
    await project.up("--nodes", "2", "--cpus", "1")
    # The agent alone: tk's own processes are no program of the job's.
    found = await why(project, "--sample", "2")
    assert (codes(found), found["not_asked"]) == (["nothing"], [])
    assert "no program of it was found on node1, node2" in found["verdicts"][0]["sentence"]
    terminal = await project.terminal("run", "python3", "-c", WAIT)
    await terminal.line("ready")
    found = await why(project, "--sample", "2")
    assert codes(found) == ["hang"], found
    assert re.search(r"; python3? \(pid \d+.*\) waits ", found["verdicts"][0]["sentence"])
    other = await submit("-w node2 -c 1", f'python3 -c "{SERVE}"')
    assert codes(await why(project, other, "--sample", "2")) == ["nothing"]


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = pretend_nvml(tmp_path_factory.mktemp("library"))
    if place is None:
        pytest.skip("no C compiler")
    return place


@pytest.mark.why("slow")
async def test_a_gpu_that_waits_for_data(project: Project, submit: Submit, nvml: Path) -> None:
    """The node's driver is a pretend one, which the cluster's Python finds."""
    script = project.base / "train.py"
    script.write_text(LOADER)
    job = await submit("-w node1 -c 2 --gpus 1", f"echo pid $$; exec python3 {script}")
    pid = int((project.base / "log0").read_text().split()[1])
    prefer(pid)
    play, python = project.base / "recording", project.base / "python"
    play.write_text(f"gpu 300000 11000 81920 1980 {pid}\nat 9 2 71000 1980 0\n")
    python.write_text(
        f'#!/bin/sh\nLD_LIBRARY_PATH={nvml} TK_PRETEND_NVML={play} exec python3 "$@"\n'
    )
    python.chmod(0o755)
    project.configure(f'[cluster]\npython = "{python}"\n')
    found = await why(project, job, "--sample", "4")
    assert codes(found) == ["gpu-waits-for-data"], found
    because = {one["label"]: one["text"] for one in found["verdicts"][0]["because"]}
    assert because["GPU"] == "0: 9 % busy, 71 of 300 W, memory 11 of 80 GB"
    assert "data from a pipe" in because["main"]


async def test_a_terminal_shows_that_it_samples(project: Project, submit: Submit) -> None:
    job = await submit("-w node1 -c 1", f'python3 -c "{SERVE}"')
    done = await project.tk("why", job, "--sample", "61", code=2)
    assert "--sample takes 0 to 60 seconds" in done.err
    async with on_a_terminal(project, "why", job, "--sample", "4") as screen:
        await screen.shows("a running job is sampled for 4 s")
        assert await screen.ended() == 0
        # The line goes with the answer.
        assert screen.lines[0].startswith(f"job {job} runs, and used no CPU in 4 s")
