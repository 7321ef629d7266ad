"""`tk up --attach-job` on a real OpenPBS: a job that a person made with qsub."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator

import pytest

from tests.support import processes
from tests.support.openpbs.pbs import exec_dir
from tests.support.openpbs.project import SiteProject
from tests.support.tkrig import eventually
from tunnelkit.errors import AllocationError

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]


@pytest.fixture
async def by_hand(project: SiteProject) -> AsyncIterator[str]:
    """A job as a person would submit it, running on node1."""
    words = ("-N", "mine", "-l", "select=1:ncpus=2:host=node1", "-l", "walltime=600")
    job = project.site.on(
        "login",
        "sh",
        "-c",
        f"echo 'export MINE=1; sleep 600' | qsub -f {' '.join(words)} -v ODD='a  b'",
    ).strip()
    await eventually(lambda: is_running(project, job), "the job runs")
    yield job
    project.site.pbs.qdel(job)


def is_running(project: SiteProject, job: str) -> bool:
    return any(
        one["id"] == job and one["job_state"] == "R" and one["substate"] == "42"
        for one in project.site.pbs.jobs()
    )


@pytest.mark.parametrize("keys", [("laptop", "cluster"), ("cluster",)], ids=["ssh", "ssh-login"])
async def test_it_is_used_and_left_alone(
    project: SiteProject, by_hand: str, keys: tuple[str, ...]
) -> None:
    project.site.let_in("node1", *keys)
    # As qstat shows it, and as people type it.
    given = by_hand if len(keys) == 2 else by_hand.partition(".")[0]
    status = await project.up("--attach-job", given)
    job = status["job"]
    assert (job["id"], job["made_by"], status["node"]) == (given, "you", "node1")
    assert status["route"] == ("ssh" if len(keys) == 2 else "ssh-login")
    assert 400 < job["time_left_s"] <= 600
    env = (await project.tk("run", "env")).out.splitlines()
    for word in (f"PBS_JOBID={by_hand}", "PBS_JOBNAME=mine", "ODD=a  b"):
        assert word in env
    processes.kill([status["pid"]])
    again = await project.up()
    assert (again["job"]["id"], again["agent"]["pid"]) == (given, status["agent"]["pid"])
    down = await project.tk("down")
    assert f"job {given} is yours and goes on" in down.out
    await project.nothing_left()
    assert is_running(project, by_hand)


async def test_what_runs_in_it_ends_with_it(project: SiteProject, by_hand: str) -> None:
    status = await project.up("--attach-job", by_hand)
    assert "no part of job" not in project.session_log()
    processes.kill([status["pid"]])  # nobody but PBS can end the agent now
    project.site.pbs.qdel(by_hand)
    await eventually(lambda: not project.cluster_processes(), "PBS ends the agent", 40.0)
    # Once the job's own shell is gone PBS kills the rest, however soon after its TERM that is.
    names = f"/tmp/tunnelkit-*/tk-{project.dir.name}-*.sock"
    project.site.hosts["node1"].run("sh", "-c", f"rm -f {names}")


async def test_without_pbs_attach_it_is_said_and_ends_too(
    project: SiteProject, by_hand: str
) -> None:
    node, program = project.site.hosts["node1"], f"{exec_dir()}/bin/pbs_attach"
    node.run("mv", program, f"{program}.away")
    try:
        status = await project.up("--attach-job", by_hand)
        assert (
            f"the agent on node1 is no part of job {by_hand} (this node has no pbs_attach)"
            in project.session_log()
        )
        assert f"PBS_JOBID={by_hand}" in (await project.tk("run", "env")).out
        processes.kill([status["pid"]])
        project.site.pbs.qdel(by_hand)
        await eventually(lambda: not project.cluster_processes(), "the agent ends", 40.0)
    finally:
        node.run("mv", f"{program}.away", program)


async def test_an_interactive_job(project: SiteProject) -> None:
    argv = project.site.hosts["login"].argv(
        "script", "-qec", "qsub -I -l select=1:host=node2 -l walltime=600", "/dev/null", user="ann"
    )
    shell = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        await eventually(
            lambda: any(job["substate"] == "42" for job in project.site.pbs.jobs()), "it runs"
        )
        [job] = project.site.pbs.unfinished()
        status = await project.up("--attach-job", job)
        assert status["node"] == "node2"
        env = (await project.tk("run", "env")).out
        assert "PBS_ENVIRONMENT=PBS_INTERACTIVE" in env and f"PBS_JOBID={job}" in env
        await project.tk("down")
        await project.nothing_left()
        assert is_running(project, job)
    finally:
        project.site.pbs.clear()
        shell.kill()
        shell.wait()


async def test_where_no_ssh_leads_to_the_node(project: SiteProject, by_hand: str) -> None:
    project.site.let_in("node1")
    done = await project.tk("up", "--attach-job", by_hand, code=int(AllocationError.exit_code))
    assert "no ssh leads to the node" in done.err and "tk up" in done.err
