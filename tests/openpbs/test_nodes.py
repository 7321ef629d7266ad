"""An agent on each node of a job of a real OpenPBS."""

from __future__ import annotations

import pytest

from tests.support.openpbs.project import SiteProject
from tests.support.tkrig import eventually

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]


async def on_both(project: SiteProject, job: str) -> None:
    """Processes run on both nodes, as a part of the job."""
    for node in project.lab.nodes:
        done = await project.tk(
            "run", "--node", node, "--", "sh", "-c", "hostname; echo $PBS_JOBID"
        )
        assert done.out.split() == [node, job]


def others(status: dict[str, object]) -> list[str]:
    nodes = status["other_nodes"]
    assert isinstance(nodes, list)
    return [one["node"] for one in nodes if one["agent"] is not None]


async def test_an_agent_on_each_node(project: SiteProject) -> None:
    status = await project.up("--nodes", "2", "--cpus", "1")
    job = status["job"]["id"]
    await on_both(project, job)
    assert others(await project.status()) == ["node2"]
    # The session goes; the agents stay, and are found again.
    await project.tk("down", "--keep")
    again = await project.up("--nodes", "2", "--cpus", "1")
    assert again["agent"]["pid"] == status["agent"]["pid"]
    await on_both(project, job)
    await project.tk("down")
    await project.nothing_left()


@pytest.mark.parametrize("given", ["as qstat shows it", "its number"])
async def test_in_a_job_made_by_hand(project: SiteProject, given: str) -> None:
    script = "echo 'sleep 600' | qsub -f -l select=2:ncpus=1 -l place=scatter"
    job = project.site.on("login", "sh", "-c", script).strip()
    await eventually(
        lambda: all(one["substate"] == "42" for one in project.site.pbs.jobs()), "the job runs"
    )
    named = job if given == "as qstat shows it" else job.partition(".")[0]
    await project.up("--attach-job", named)
    await on_both(project, job)
    await project.tk("down")
    await project.nothing_left()
    assert project.site.pbs.unfinished() == [job]
