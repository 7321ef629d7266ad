"""The main job on PBS and on Torque: programs that answer as theirs do, on the lab's login host."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.lab_fixtures import running_lab, why_no_lab
from tests.support.pbs_standin.rig import StandIn, install
from tests.support.tkrig import PATIENCE_S, Project, eventually, project_on
from tunnelkit import lab as tk_lab
from tunnelkit.lab import LabInfo


@pytest.fixture(scope="module")
def pbs_lab() -> Iterator[LabInfo]:
    if reason := why_no_lab():
        pytest.skip(reason)
    with running_lab(scheduler="none") as info:
        yield info


@pytest.fixture(scope="module")
def server(pbs_lab: LabInfo) -> StandIn:
    return install(pbs_lab)


@pytest.fixture
async def project(pbs_lab: LabInfo, server: StandIn) -> AsyncIterator[Project]:
    """A project on a login host with OpenPBS."""
    server.reset()
    try:
        async with project_on(pbs_lab) as made:
            made.configure('[cluster]\nscheduler = "auto"\nnode_ssh = "auto"\n')
            yield made
            server.set(down=False)
    finally:
        server.clear()
        await jobs_end(server)


async def ended(project: Project) -> str:
    """Wait until the session says that its allocation is over; why."""
    detail = ""

    async def over() -> bool:
        nonlocal detail
        status = await project.status()
        detail = str(status["detail"])
        return bool(status["state"] == "ended")

    async with asyncio.timeout(PATIENCE_S):
        while not await over():
            await asyncio.sleep(0.1)
    return detail


async def ready_and_in(project: Project, server: StandIn) -> str:
    """`tk up` with all that can be asked for, and a command inside the job; the job's id."""
    status = await project.up("node1", "--gpus", "1", "--cpus", "2", "--time", "10:00")
    assert status["node"] == "node1"
    [job_id] = server.unfinished()
    assert status["job"]["id"] == job_id == server.first
    assert list(server.jobs()) == [job_id]
    assert 500 < status["job"]["time_left_s"] <= 600
    done = await project.tk("run", "--", "sh", "-c", 'echo "$PBS_JOBID"; cat "$PBS_NODEFILE"')
    assert done.out.split() == [job_id, "node1", "node1"]
    return job_id


async def test_a_session_from_up_to_down(project: Project, server: StandIn) -> None:
    """Once for all that one session can show."""
    server.set(down=True)
    done = await project.tk("up", "--scheduler", "pbs", code=7)
    assert "cannot connect to server login" in done.err
    server.set(down=False, lost_replies=1)  # a lost reply submits no second job
    job_id = await ready_and_in(project, server)
    await names_are_there_for_tab(project, job_id)
    await f5_stops_inside_the_job(project)
    server.set(down=True)
    # What runs goes on; the scheduler is only asked now and then.
    assert (await project.tk("run", "--", "echo", "on")).out == "on\n"
    server.set(down=False)
    # A successor takes the job over.
    await project.tk("down", "--keep")
    status = await project.up("node1")
    assert status["job"]["id"] == job_id
    assert list(server.jobs()) == [job_id]
    await project.tk("down")
    await jobs_end(server)
    await project.nothing_left()


async def names_are_there_for_tab(project: Project, job_id: str) -> None:
    cache = project.base / "c" / "tunnelkit" / "names.json"

    def names() -> dict[str, list[str]]:
        clusters: dict[str, dict[str, list[str]]] = json.loads(cache.read_text())["clusters"]
        return clusters["login"]

    await eventually(lambda: job_id in names()["jobs"], "the job among the names for TAB")
    assert names()["nodes"] == list(project.lab.nodes)


async def jobs_end(server: StandIn) -> None:
    """After `tk down`: PBS has taken the qdel, and ends the job in its own time."""
    await eventually(lambda: not server.unfinished(), "the end of all jobs")


async def f5_stops_inside_the_job(project: Project) -> None:
    terminal = await project.loop("python", "2.py")
    client, thread, frame = await project.f5_to_stop(10)
    assert frame["line"] == 10
    await client.request("continue", threadId=thread)
    await terminal.line("^node")


@pytest.mark.slow
async def test_without_history_and_with_broken_json(project: Project, server: StandIn) -> None:
    server.reset(history=False, broken_json=True)
    await ready_and_in(project, server)
    await project.tk("down")
    await jobs_end(server)
    await project.nothing_left()


async def test_it_says_why_it_waits(project: Project, server: StandIn) -> None:
    server.set(nodes=["node2"])
    terminal = await project.terminal("up", "node1", "--gpus", "1")
    await terminal.line(rf"queued, job {server.first}: waiting for the node to become free")
    server.set(nodes=["node1", "node2"])
    await terminal.line(rf"ready on node1 \(job {server.first}\)")
    assert await terminal.ended() == 0


async def test_what_can_never_run_is_cancelled_and_said(project: Project, server: StandIn) -> None:
    done = await project.tk("up", "--gpus", "9", code=8)
    assert "can never run" in done.err
    assert "ngpus: 9 asked for, 2 free of 2" in done.err
    await jobs_end(server)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "the job was deleted by root@login"),
        ({"history": False}, ""),
        (
            {"dialect": "torque"},
            "was ended by the scheduler: cancelled, preempted, or at its time limit",
        ),
    ],
    ids=["pbs", "no-history", "torque"],
)
async def test_qdel_ends_the_session_and_it_says_so(
    project: Project, server: StandIn, config: dict[str, object], words: str
) -> None:
    server.reset(**config)
    server.qdel(await ready_and_in(project, server))
    detail = await ended(project)
    assert words in detail
    assert detail


@pytest.mark.slow
async def test_the_time_limit_ends_the_session_and_it_says_so(
    project: Project, server: StandIn
) -> None:
    await project.up("node1", "--time", "8s")
    assert "the job reached its time limit" in await ended(project)


@pytest.mark.slow
async def test_a_cancelled_job_that_is_still_ending_is_not_taken_over(
    project: Project, server: StandIn
) -> None:
    """Torque calls it running until its end has come from the node."""
    server.reset(dialect="torque", lingers=True)
    await project.up("node1")
    await project.tk("down")
    assert server.jobs()[server.first]["job_state"] == "R"
    terminal = await project.terminal("up", "node1")
    await terminal.line(
        rf"job {server.first} was cancelled and is still ending: waiting for its end"
    )
    assert list(server.jobs()) == [server.first]
    server.set(lingers=False)
    await terminal.line(rf"submitted job {server.second}")
    await terminal.line(rf"ready on node1 \(job {server.second}\)")
    assert await terminal.ended() == 0
    assert (await project.tk("run", "--", "echo", "in")).out == "in\n"


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["torque", "pbs"])
@pytest.mark.parametrize("session", ["lives", "killed"])
async def test_tk_up_at_once_after_a_qdel_by_hand_gets_another_job(
    project: Project, server: StandIn, dialect: str, session: str
) -> None:
    """The job is called running until its end has come from the node."""
    server.reset(dialect=dialect, lingers=True)
    status = await project.up("node1")
    if session == "killed":
        os.kill(status["pid"], signal.SIGKILL)
    server.qdel(server.first)
    while session == "lives" and (await project.status())["state"] == "ready":
        await asyncio.sleep(0.05)  # it is about to hear of it
    terminal = await project.terminal("up", "node1")
    if dialect == "torque":
        await terminal.line(rf"job {server.first} .* still ending: waiting for its end")
    server.set(lingers=False)
    await terminal.line(rf"ready on node1 \(job {server.second}\)")
    assert await terminal.ended() == 0
    assert (await project.tk("run", "--", "echo", "in")).out == "in\n"


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["pbs", "torque"])
@pytest.mark.parametrize("pause_s", [0.0, 0.2])
async def test_ctrl_c_in_the_moment_of_the_submission(
    project: Project, server: StandIn, dialect: str, pause_s: float
) -> None:
    server.reset(dialect=dialect)
    terminal = await project.terminal("up", "node1")
    while not server.jobs():
        await asyncio.sleep(0.01)
    await asyncio.sleep(pause_s)
    terminal.interrupt()
    await terminal.ended()
    await project.tk("down", code=None)  # where Ctrl-C came too late
    async with asyncio.timeout(PATIENCE_S):
        while server.unfinished():
            await asyncio.sleep(0.1)
    assert list(server.jobs()) == [server.first]


@pytest.mark.slow
async def test_a_second_terminals_up_waits_for_the_end_of_the_session(
    project: Project, server: StandIn
) -> None:
    """`tk down` has begun, and is held up by an agent that does not answer."""
    agent = int((await project.up("node1"))["agent"]["pid"])
    os.kill(agent, signal.SIGSTOP)
    down = await project.terminal("down")
    async with asyncio.timeout(PATIENCE_S):
        while (await project.status())["state"] != "closing":
            await asyncio.sleep(0.02)  # `tk down` is on its way
    # F5 of just then must not be told that it is ready.
    assert "is ending" in (await project.tk("ready", code=4)).err
    terminal = await project.terminal("up", "node1")
    try:
        await terminal.line(r"this project's session is ending: waiting for its end")
    finally:
        os.kill(agent, signal.SIGCONT)
    assert await down.ended() == 0
    await terminal.line(rf"ready on node1 \(job {server.second}\)")
    assert await terminal.ended() == 0


# --- the way in --------------------------------------------------------------------------------


@pytest.fixture
def node1_refuses_the_laptop(pbs_lab: LabInfo) -> Iterator[None]:
    """node1 lets in only who comes with a key of the cluster's own."""
    config = pbs_lab.dir / "ssh" / "sshd_node1"
    before = config.read_text()
    keys = pbs_lab.dir / "ssh" / "cluster_only_keys"
    keys.write_text((pbs_lab.dir / "ssh" / "cluster.pub").read_text())
    lines = [
        f"AuthorizedKeysFile {keys}" if line.startswith("AuthorizedKeysFile") else line
        for line in before.splitlines()
    ]
    tk_lab.stop_daemon("sshd-node1", pbs_lab.dir)
    config.write_text("\n".join(lines) + "\n")
    tk_lab.start_daemon("sshd-node1", pbs_lab.dir)
    yield
    tk_lab.stop_daemon("sshd-node1", pbs_lab.dir)
    config.write_text(before)
    tk_lab.start_daemon("sshd-node1", pbs_lab.dir)


@pytest.fixture
def node1_refuses_all(pbs_lab: LabInfo) -> Iterator[None]:
    tk_lab.stop_daemon("sshd-node1", pbs_lab.dir)
    yield
    tk_lab.start_daemon("sshd-node1", pbs_lab.dir)


@pytest.mark.usefixtures("node1_refuses_the_laptop")
async def test_the_login_hosts_own_ssh_leads_there(project: Project, server: StandIn) -> None:
    status = await project.up("node1")
    assert status["route"] == "ssh-login"
    assert (await project.tk("run", "--", "echo", "in")).out == "in\n"
    await project.tk("down")
    await jobs_end(server)


@pytest.mark.usefixtures("node1_refuses_all")
async def test_without_any_ssh_the_agent_dials_the_login_host(
    project: Project, server: StandIn, pbs_lab: LabInfo
) -> None:
    status = await project.up("node1")
    assert status["route"] == "dial-in"
    assert (await project.tk("run", "--", "echo", "in")).out == "in\n"
    invitations = list((pbs_lab.home / ".cache" / "tunnelkit" / "jobs").glob("*.meet"))
    assert [file.read_text() for file in invitations] == [""], "used once"
    # The connection is lost and comes back: the agent dials anew.
    tk_lab.reset(pbs_lab.dir)
    tk_lab.heal(pbs_lab.dir)
    assert (await project.tk("run", "--", "echo", "again")).out == "again\n"
    await project.tk("down")
    await jobs_end(server)


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["pbs", "torque"])
async def test_an_agent_on_each_node(project: Project, server: StandIn, dialect: str) -> None:
    server.reset(dialect=dialect)
    status = await project.up("--nodes", "2", "--cpus", "1")
    # The lab's nodes have their processes in common: each is known by who started it.
    first = await project.tk("run", "--node", "node1", "--", "sh", "-c", "echo $PPID $PBS_JOBID")
    assert first.out.split() == [str(status["agent"]["pid"]), status["job"]["id"]]
    second = await project.tk("run", "--node", "node2", "--", "sh", "-c", "echo $PPID $PBS_JOBID")
    [other] = (await project.status())["other_nodes"]
    assert (other["node"], other["why_not"]) == ("node2", None)
    assert second.out.split() == [str(other["agent"]), status["job"]["id"]]
    await project.tk("down")
    await project.nothing_left()


async def test_the_doctor_knows_the_scheduler(project: Project, server: StandIn) -> None:
    async def checked() -> dict[str, Any]:
        report = (await project.tk("doctor", "--json")).json
        found: dict[str, Any] = next(one for one in report["checks"] if one["name"] == "scheduler")
        return found

    found = await checked()
    assert found["status"] == "ok" and found["data"]["name"] == "pbs"
    server.set(down=True)
    found = await checked()
    assert found["status"] == "warn" and "does not answer" in found["found"]
