# ruff: noqa: F811 - fixtures are imported
"""`tk up --attach-job` on PBS and on Torque: a job that a person has submitted."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from tests.e2e.test_pbs import (  # noqa: F401 - fixtures
    node1_refuses_all,
    node1_refuses_the_laptop,
    pbs_lab,
    project,
    server,
)
from tests.support import processes
from tests.support.pbs_standin.rig import StandIn
from tests.support.tkrig import Project, eventually
from tunnelkit.errors import AllocationError
from tunnelkit.lab import LabInfo
from tunnelkit.lab.layout import Layout

pytestmark = pytest.mark.slow


@pytest.fixture(params=["pbs", "torque"])
async def by_hand(project: Project, server: StandIn, request: pytest.FixtureRequest) -> str:
    """A job as a person would submit it, running on node1."""
    server.reset(dialect=request.param)
    wanted = {"pbs": "select=1:host=node1", "torque": "nodes=node1"}[request.param]
    argv = project.on_login("qsub", "-N", "mine", "-l", wanted, "-v", "ODD=a  b")
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=project.lab.home,  # its output file comes here
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate(b"sleep 600\n")
    job = out.decode().strip()
    await eventually(lambda: server.jobs()[job]["job_state"] == "R", "the job runs")
    return job


async def test_a_job_made_by_hand_is_used_and_left_alone(
    project: Project, server: StandIn, by_hand: str
) -> None:
    # As people type it.
    number = by_hand.partition(".")[0]
    status = await project.up("--attach-job", number)
    assert (status["job"]["id"], status["job"]["made_by"]) == (number, "you")
    assert (status["node"], status["route"]) == ("node1", "ssh")
    assert "no part of job" not in project.session_log()
    env = (await project.tk("run", "env")).out.splitlines()
    for word in (f"PBS_JOBID={by_hand}", "PBS_JOBNAME=mine", "ODD=a  b"):
        assert word in env
    down = await project.tk("down")
    assert f"job {number} is yours and goes on" in down.out
    await project.nothing_left()
    assert server.unfinished() == [by_hand]


@pytest.mark.usefixtures("node1_refuses_the_laptop")
async def test_one_made_by_hand_is_entered_from_the_login_host(
    project: Project, by_hand: str
) -> None:
    assert (await project.up("--attach-job", by_hand))["route"] == "ssh-login"
    assert f"PBS_JOBID={by_hand}" in (await project.tk("run", "env")).out


@pytest.mark.usefixtures("node1_refuses_all")
async def test_one_made_by_hand_where_no_ssh_leads(project: Project, by_hand: str) -> None:
    done = await project.tk("up", "--attach-job", by_hand, code=int(AllocationError.exit_code))
    assert "no ssh leads to the node" in done.err


@pytest.mark.parametrize("attaches", [True, False], ids=["attaches", "without"])
async def test_what_runs_in_a_job_made_by_hand_ends_with_it(
    project: Project, server: StandIn, by_hand: str, pbs_lab: LabInfo, attaches: bool
) -> None:
    name = "pbs_track" if server.config["dialect"] == "torque" else "pbs_attach"
    program = Layout(pbs_lab.dir).bin / name
    away = program.with_name("away")
    if not attaches:
        program.rename(away)
    try:
        status = await project.up("--attach-job", by_hand)
    finally:
        if not attaches:
            away.rename(program)
    outside = f"the agent on node1 is no part of job {by_hand} (this node has no {name})"
    assert (outside in project.session_log()) is not attaches
    processes.kill([status["pid"]])  # the session could end it
    server.qdel(by_hand)
    await eventually(lambda: not project.cluster_processes(), "the agent ends")


@pytest.mark.parametrize(("dialect", "two"), [("pbs", "select=2"), ("torque", "nodes=2")])
async def test_agents_of_a_job_made_by_hand_end_with_the_first(
    project: Project, server: StandIn, dialect: str, two: str
) -> None:
    server.reset(dialect=dialect)
    argv = project.on_login("qsub", "-l", two)
    process = await asyncio.create_subprocess_exec(
        *argv, cwd=project.lab.home, stdin=asyncio.subprocess.PIPE
    )
    await process.communicate(b"sleep 600\n")
    await eventually(lambda: server.jobs()[server.first]["job_state"] == "R", "the job runs")
    status = await project.up("--attach-job", server.first)
    await project.tk("run", "--node", "node2", "--", "true")
    # The session is gone, and the first agent ends: nobody tells the second.
    processes.kill([status["pid"]])
    serving = [one for one in project.cluster_processes() if "serve" in one.argv]
    first = next(one for one in serving if not any(".node2" in word for word in one.argv))
    os.kill(first.pid, signal.SIGTERM)
    await eventually(lambda: not project.cluster_processes(), "the other ends, too")
    assert server.unfinished() == [server.first]
