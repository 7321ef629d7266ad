# ruff: noqa: F811 - fixtures are imported
"""`tk submit` and `tk keep` on PBS and Torque: a script is as under qsub, and kept if it fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.e2e.test_pbs import pbs_lab, project, server  # noqa: F401 - fixtures
from tests.support.pbs_standin.rig import StandIn
from tests.support.tkrig import PATIENCE_S, Project, eventually
from tunnelkit.demo.dap_client import DapClient

pytestmark = pytest.mark.slow

#: Says what it sees, without what differs between two jobs.
RECORD = r"""
cat >"$OUT.stdin"
{ cat "$0"; tr '\0' '\n' </proc/$$/environ | grep -v '^PBS_\(JOBID\|NODEFILE\)=\|^_=\|^SHLVL='
  umask; pwd; grep -E '^(Sig(Blk|Ign)):' /proc/self/status
  [ "$(ps -o pgid= -p $$)" = "$(ps -o pgid= -p $PPID)" ] && echo shell-s-group
  ls /proc/$$/fd; } >"$OUT.rest"
"""
PROGRAM = "def f(row):\n    return row['label']\nf({'image': 1})\n"
CHOSEN = {"pbs": "select=1:host=node1", "torque": "nodes=node1"}


def script(project: Project, name: str, lines: str, *, first: str = "#!/bin/bash\n") -> Path:
    path = project.base / name
    path.write_text(f"{first}#PBS -j oe\n#PBS -o {project.base}/{name}.log\n{lines}")
    return path


def log(path: Path) -> str:
    written = path.with_name(f"{path.name}.log")
    return written.read_text() if written.exists() else ""


async def over(server: StandIn, job: str) -> int:
    """Wait for a job's end; its Exit_status."""
    await eventually(lambda: server.jobs()[job]["job_state"] in "FC", "the job ends", 60)
    return int(server.jobs()[job]["Exit_status"])


@pytest.mark.parametrize(
    ("dialect", "first", "end"),
    [("pbs", "#!/bin/bash\n", "exit 7"), ("torque", "", "kill -TERM $$")],
    ids=["pbs", "torque"],
)
async def test_a_script_is_as_under_qsub(
    project: Project, server: StandIn, dialect: str, first: str, end: str
) -> None:
    """With and without a #! line. It gets the same, and ends the same."""
    server.reset(dialect=dialect)
    seen = []
    for how in ("qsub", "tk"):
        out = project.base / f"out-{how}"
        # The same text for both, so that it can be compared.
        path = script(project, "case.sh", f"{RECORD}\n{end}\n", first=first)
        options = ["-l", CHOSEN[dialect], "-v", f"OUT={out},ODD=a b"]
        if how == "tk":
            job = (await project.tk("submit", "--json", *options, str(path))).json["job"]
        else:
            job = (await project.do_on_login("qsub", *options, str(path))).strip()
        code = await over(server, job)
        rest = out.with_suffix(".rest").read_text().replace(str(out), "OUT")
        seen.append((code, told(rest), out.with_suffix(".stdin").read_text(), log(path)))
    assert seen[0] == seen[1]


def told(text: str) -> list[str]:
    """The lines without the directory, which is that of the command that submitted it."""
    names = ("PWD=", "OLDPWD=", "PBS_O_WORKDIR=")
    return sorted(line for line in text.splitlines() if not line.startswith(names))


async def at_the_exception(editor: DapClient) -> None:
    event = await editor.wait_event("stopped", timeout_s=PATIENCE_S)
    stack = await editor.request(
        "stackTrace", threadId=int(event["threadId"]), startFrame=0, levels=20
    )
    assert await editor.evaluate("row", stack["stackFrames"][0]) == "{'image': 1}"


async def test_a_failed_job_is_kept_and_let_go(project: Project, server: StandIn) -> None:
    program = project.base / "fails.py"
    program.write_text(PROGRAM)
    path = script(project, "train.sh", f"python3 {program}\n")
    options = ["-l", "select=1:ncpus=2:host=node1", "-l", "walltime=1:00:00"]
    words = ["submit", "--json", "--post-mortem", *options, str(path)]
    job = (await project.tk(*words)).json["job"]
    spool = server.root / f"{job.partition('.')[0]}.OU"
    await eventually(
        # The server may not have started it yet.
        lambda: spool.exists() and "the job is kept" in spool.read_text(),
        "it stands",
        60,
    )
    (shown,) = (await project.tk("keep", "--json")).json
    assert (shown["job"], shown["node"], shown["cpus"]) == (job.partition(".")[0], "node1", 2)
    assert 3000 < shown["limit_s"] - shown["since_s"] <= 3600
    assert shown["standing"][0]["error"] == "KeyError: 'label'"
    assert "a program stands" in (await project.tk("up", "--attach-job", job)).out
    editor = await project.f5()
    await at_the_exception(editor)
    await project.tk("keep", job, "--release")
    assert await over(server, job) == 1
    assert log(path).count("Traceback") == 1
    assert (await project.tk("keep", "--json")).json == []
    project.forget_killed_agents()  # PBS ends what pbs_attach has made a part of the job


async def test_the_ways_of_letting_go(project: Project, server: StandIn) -> None:
    async def one(name: str, end: str, *own: str) -> tuple[str, Path]:
        path = script(project, name, f"{end}\n")
        words = ["submit", "--json", *own, "-l", "select=1:ncpus=1:host=node1", str(path)]
        return (await project.tk(*words)).json["job"], path

    for_time, timed = await one("time.sh", "exit 4", "--keep-on-failure=2s")
    assert await over(server, for_time) == 4
    assert "its time is over" in log(timed)
    cancelled, _ = await one("cancel.sh", "exit 5", "--keep-on-failure")
    await wait_kept(project, cancelled)
    done = await project.tk("submit", str(timed), "argument", code=2)
    assert "qsub gives a script no arguments" in done.err
    await project.do_on_login("qdel", cancelled)
    await over(server, cancelled)
    assert (await project.tk("keep", "--json")).json == []


async def wait_kept(project: Project, job: str) -> None:
    async with asyncio.timeout(60):
        while not (await project.tk("keep", "--json")).json:
            await asyncio.sleep(0.3)
