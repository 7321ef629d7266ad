"""`tk` on a real OpenPBS: two nodes, GPUs as a counted resource, an ordinary user, and qsub on
the login host's PATH of login shells only."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.support.main_job import main_job
from tests.support.openpbs.project import SiteProject
from tests.support.tkrig import eventually

pytestmark = [pytest.mark.root, pytest.mark.timeout(400)]


@pytest.mark.parametrize("history", [True, False], ids=["history", "no-history"])
async def test_the_main_job(project: SiteProject, history: bool) -> None:
    project.site.pbs.qmgr(f"set server job_history_enable = {history}")
    await main_job(project)


async def test_the_main_job_where_no_ssh_leads_to_nodes(project: SiteProject) -> None:
    project.site.let_in("node1")
    await main_job(project)


@pytest.mark.parametrize(
    ("keys", "route"),
    [(("laptop", "cluster"), "ssh"), (("cluster",), "ssh-login"), ((), "dial-in")],
    ids=["ssh", "ssh-login", "dial-in"],
)
async def test_the_ways_in(project: SiteProject, keys: tuple[str, ...], route: str) -> None:
    project.site.let_in("node1", *keys)
    status = await project.up("node1")
    assert status["route"] == route
    assert (await project.tk("run", "--", "hostname")).out == "node1\n"
    await project.tk("down")
    await project.nothing_left()


async def test_it_says_why_it_waits(project: SiteProject) -> None:
    full = ("qsub", "-l", "select=1:ncpus=4:ngpus=2:host=node1", "--", "/bin/sleep", "300")
    job = project.site.on("login", *full).strip()
    terminal = await project.terminal("up", "node1", "--gpus", "1", "--time", "10:00")
    await terminal.line(r"queued, job \S+: waiting for the .* to become free")
    project.site.pbs.qdel(job)
    await terminal.line(r"ready on node1 \(job \S+\)")
    assert await terminal.ended() == 0


async def test_what_can_never_run_is_cancelled_and_said(project: SiteProject) -> None:
    done = await project.tk("up", "--gpus", "9", code=8)
    assert "can never run" in done.err
    assert "ngpus: 9 asked for, 2 free of 2" in done.err
    assert project.site.pbs.unfinished() == []


@pytest.mark.parametrize("history", [True, False], ids=["history", "no-history"])
async def test_qdel_from_another_terminal(project: SiteProject, history: bool) -> None:
    project.site.pbs.qmgr(f"set server job_history_enable = {history}")
    status = await project.up("node1")
    project.site.on("login", "qdel", status["job"]["id"])
    detail = str((await project.state("ended"))["detail"])
    assert "deleted by ann@login" in detail or not history, detail
    assert detail
    await project.tk("down", code=None)
    await project.nothing_left()


async def test_the_time_limit(project: SiteProject) -> None:
    await project.up("node1", "--time", "15s")
    detail = str((await project.state("ended"))["detail"])
    assert "the job reached its time limit" in detail


async def test_put_back_into_the_queue_it_goes_on(project: SiteProject) -> None:
    first = await project.up("node1", "--requeue")
    project.site.pbs.qrerun(first["job"]["id"])
    old = first["agent"]["pid"]
    async with asyncio.timeout(60):
        # Between the two there is none.
        while not (agent := (await project.status())["agent"]) or agent["pid"] == old:
            await asyncio.sleep(0.2)
    status = await project.state("ready")
    assert status["job"]["id"] == first["job"]["id"]
    assert (await project.tk("run", "--", "hostname")).out == "node1\n"


async def test_a_node_that_pbs_has_lost(project: SiteProject) -> None:
    """The agent is reached all the same; what can't be ended is said, with the way out."""
    await project.up("node1")
    with project.site.pbs.without_mom("node1"):
        assert (await project.tk("run", "--", "hostname")).out == "node1\n"
        assert "tk down` once more" in (await project.tk("down", code=8)).err
        done = await project.tk("down", code=None)
        assert done.code != 0
        assert "Server could not connect to MOM" in done.err and "qdel -W force" in done.err
    await project.tk("down", code=None)
    project.site.pbs.clear()


async def test_a_named_node_that_never_has_as_much(project: SiteProject) -> None:
    """PBS itself waits for it, and tells no amounts."""
    terminal = await project.terminal("up", "node2", "--gpus", "1")
    await terminal.line(r"queued, job \S+: waiting .*pbsnodes NODE.* \(ngpus\)")
    terminal.interrupt()
    await terminal.ended()


async def test_the_server_goes_and_comes(project: SiteProject) -> None:
    """What runs goes on."""
    status = await project.up("node1")
    await eventually(
        lambda: all(job["substate"] == "42" for job in project.site.pbs.jobs()), "it has begun"
    )
    project.site.pbs.stop_server()
    assert (await project.tk("run", "--", "hostname")).out == "node1\n"
    project.site.pbs.start_server()
    again = await project.status()
    assert (again["state"], again["job"]["id"]) == ("ready", status["job"]["id"])
    assert (await project.tk("run", "--", "hostname")).out == "node1\n"
    await project.tk("down")
    await project.nothing_left()


async def test_no_server(project: SiteProject) -> None:
    project.site.pbs.stop_server()
    try:
        done = await project.tk("up", "node1", code=7)
        assert "cannot connect to server login" in done.err
    finally:
        project.site.pbs.start_server()


async def test_a_successor_takes_the_job_over(project: SiteProject) -> None:
    first = await project.up("node1")
    await project.tk("down", "--keep")
    second = await project.up("node1")
    assert second["job"]["id"] == first["job"]["id"]
    assert second["agent"]["pid"] == first["agent"]["pid"]


async def test_what_the_job_wrote_is_in_its_log(project: SiteProject) -> None:
    project.configure('[cluster]\nprologue = "echo from the prologue"\n')
    await project.up("node1")
    await project.tk("down")
    logs = project.far(".cache/tunnelkit/jobs")
    await eventually(lambda: list(logs.glob(f"tk-{project.dir.name}-*.log")), "the job's log")
    [log] = logs.glob(f"tk-{project.dir.name}-*.log")
    await eventually(lambda: "from the prologue" in log.read_text(), "what it wrote")


async def test_odd_values_in_the_environment(project: SiteProject) -> None:
    """PBS's JSON is none then; the text form serves."""
    project.configure('[allocation]\nextra = ["-v ODD=.5,WORSE=nan"]\n')
    status = await project.up("node1", "--time", "10:00")
    assert 400 < status["job"]["time_left_s"] <= 600
    assert (await project.tk("run", "--", "sh", "-c", "echo $ODD $WORSE")).out == ".5 nan\n"


async def test_the_doctor(project: SiteProject) -> None:
    await project.up("node1")
    report = (await project.tk("doctor", "--json")).json
    checks: dict[str, Any] = {one["name"]: one for one in report["checks"]}
    assert checks["scheduler"]["status"] == "ok"
    assert checks["scheduler"]["data"]["name"] == "pbs"
    failed = [one for one in checks.values() if one["status"] == "fail"]
    assert not failed, json.dumps(failed)


async def test_a_lost_reply_submits_no_second_job(project: SiteProject) -> None:
    """The server took the job, but qsub was cut off before it printed the id."""
    with project.site.lost_reply():
        status = await project.up("node1")
    assert project.site.pbs.unfinished() == [status["job"]["id"]]
