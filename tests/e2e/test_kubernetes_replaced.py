"""A pod is evicted, deleted, restarted, and its owner makes another: the session goes on there."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.support.kube_rig import KubeProject, running_stand_in
from tests.support.ports import free_port
from tests.support.tkrig import PATIENCE_S, PROGRAM, line_of, made_project
from tunnelkit.lab.kube.stand_in import StandIn
from tunnelkit.lab.kube.wire import Json

STOP = line_of(PROGRAM, "total += step")
_STS = ("StatefulSet", "train")


@pytest.fixture(scope="module")
def pods() -> Iterator[StandIn]:
    with running_stand_in() as cluster:
        yield cluster


@pytest.fixture
async def project(pods: StandIn) -> AsyncIterator[KubeProject]:
    async with made_project(lambda base: KubeProject(pods, base)) as made:
        yield made


def fail(pods: StandIn, pod: str, *, gone: bool = False, **status: object) -> None:
    """End a pod as the node or the API would, with all that runs in it."""
    pods.ask("POST", "/standin/fail", {"pod": pod, "gone": gone, "status": status})


async def until(project: KubeProject, state: str, detail: str = "") -> dict[str, Any]:
    """Wait for a state of the session; its status."""
    async with asyncio.timeout(PATIENCE_S):
        while (now := await project.status())["state"] != state or detail not in now["detail"]:
            await asyncio.sleep(0.1)
    return now


async def test_the_pod_in_the_place_of_an_evicted_one(pods: StandIn, project: KubeProject) -> None:
    """Mirror, port, loop and forward go on, and `tk ready` waits; the pods' roots differ."""
    label = {"job-name": "fit"}
    pods.make_pod("fit-a", **label)
    status = await project.up("job/fit")
    assert status["node"] == "fit-a"
    forward = f"{free_port()}:{free_port()}"
    await project.tk("forward", forward)
    terminal = await project.loop("python", "2.py")
    editor, _, _ = await project.f5_to_stop(STOP)
    message = "The node was low on resource: memory."
    fail(pods, "fit-a", phase="Failed", reason="Evicted", message=message)
    await editor.wait_event("terminated")
    why = rf"what ran on fit-a is gone: Evicted, by its node: {message}"
    await terminal.line(rf"the loop waits for another node, and starts again there: {why}")
    project.write("2.py", PROGRAM.replace('"first"', '"second"'))

    scarce = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    waits: Json = {"phase": "Pending", "conditions": [{**scarce, "message": "0/1 nodes: full"}]}
    pods.ask("POST", "/standin/hold", {"status": waits})
    pods.make_pod("fit-b", **label)
    pods.ask("POST", "/standin/hold", {"status": None})
    asked = await project.terminal("ready", "--sync")
    await until(project, "pending", "full")
    pods.ask("POST", "/standin/status", {"pod": "fit-b", "run": True})
    assert await asked.ended() == 0
    await terminal.line(r"armed")
    project.pod_dir = pods.root / "pods" / "fit-b"
    assert '"second"' in project.remote("2.py").read_text()
    editor, thread, frame = await project.f5_to_stop(STOP)
    assert await editor.evaluate("WORD", frame) == "'second'"
    await editor.request("setBreakpoints", source={"path": str(project.dir / "2.py")})
    await editor.finish(thread)
    await terminal.line(r"run 1 · ended: exit code 0")
    now = await project.status()
    assert (now["node"], now["job"]["requeues"]) == ("fit-b", 1)
    assert [one["route"] for one in now["forwards"]] == ["wire"]
    assert "job/fit runs again, on fit-b" in project.session_log(1 << 20)
    assert "job/fit on fit-b" in (await project.tk("status")).out
    await project.tk("down")


async def test_a_stateful_set_goes_on_in_its_first_pod(pods: StandIn, project: KubeProject) -> None:
    """First the other pod is deleted, then the first is restarted in place, then deleted."""
    for number in (0, 1):
        pods.make_pod(f"train-{number}", owner=_STS)
    await project.up("sts/train")
    fail(pods, "train-1", gone=True)
    terminal = await project.loop("python", "2.py")
    pods.make_pod("train-1", owner=_STS)
    oom = {"reason": "OOMKilled", "exitCode": 137}
    pods.ask("POST", "/standin/restart", {"pod": "train-0", "terminated": oom})
    why = "its container was restarted (killed for memory (OOMKilled): the container's limit"
    await terminal.line(re.escape(f"what ran on train-0 is gone: {why}"))
    await terminal.line(r"armed")
    there = await project.tk("run", "--node", "train-1", "sh", "-c", "echo $TK_NODE")
    assert there.out == "train-1\n"

    fail(pods, "train-0", gone=True)
    await terminal.line(r"what ran on train-0 is gone: it was deleted")
    pods.make_pod("train-0", owner=_STS)
    await terminal.line(r"armed")
    assert project.remote("2.py").read_text() == PROGRAM
    now = await project.status()
    assert (now["node"], now["job"]["requeues"]) == ("train-0", 2)
    log = project.session_log(1 << 20)
    assert "what ran on train-1 is gone: it was deleted" in log
    await project.tk("down")
    assert await terminal.ended() is not None


async def test_the_files_of_an_image_are_no_edits(pods: StandIn, project: KubeProject) -> None:
    """They are there again after a restart, and in the next session's pod; set aside each time."""
    fill = "mkdir -p ~/work; cd ~/work; echo image >2.py; echo same >same.py; exec sleep 9999999"
    project.write("same.py", "same\n")

    def make() -> None:
        pods.make_pod("image-0", owner=("StatefulSet", "image"), command=["sh", "-c", fill])

    async def synced(requeues: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while (await project.status())["job"]["requeues"] != requeues:
                await asyncio.sleep(0.1)
        await until(project, "ready")
        assert "image" not in (await project.tk("sync")).err
        assert project.remote("2.py").read_text() == PROGRAM
        kept = [one.read_text() for one in project.remote(".tk-replaced").rglob("*.py")]
        assert kept == ["image\n"]

    make()
    await project.up("sts/image")
    await synced(0)
    oom = {"reason": "OOMKilled", "exitCode": 137}
    pods.ask("POST", "/standin/restart", {"pod": "image-0", "terminated": oom})
    await synced(1)
    await project.tk("down")
    fail(pods, "image-0", gone=True)
    make()
    await project.up("sts/image")
    await synced(0)
    await project.tk("down")


async def test_a_bare_pod_and_one_that_ended_well_are_the_end(
    pods: StandIn, project: KubeProject
) -> None:
    pods.make_pod("alone")
    await project.up("alone")
    terminal = await project.loop("python", "2.py")
    oom = {"reason": "OOMKilled", "exitCode": 137}
    pods.ask("POST", "/standin/restart", {"pod": "alone", "terminated": oom})
    await terminal.line(r"the loop has ended: .*was restarted \(killed for memory \(OOMKilled\)")
    assert await terminal.ended() == 8
    await until(project, "ended", "what ran in it is gone")
    await project.tk("down")

    label = {"job-name": "done"}
    pods.make_pod("done-a", **label)
    await project.up("job/done")
    ended = {"name": "main", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    fail(pods, "done-a", phase="Succeeded", containerStatuses=[ended])
    await until(project, "ended", "it ended with exit code 0")
    await project.tk("down")


async def test_down_ends_the_wait_for_a_pod_that_does_not_come(
    pods: StandIn, project: KubeProject
) -> None:
    """The next pod is lost, too, before it could be used; then nothing comes."""
    label = {"job-name": "lost"}
    pods.make_pod("lost-a", **label)
    await project.up("job/lost")
    terminal = await project.loop("python", "2.py")
    fail(pods, "lost-a", phase="Failed", reason="NodeLost")
    await terminal.line("the loop waits for another node.*: NodeLost, its node was lost")
    pods.make_pod("lost-b", image="standin/nopython", **label)
    await until(project, "starting")
    fail(pods, "lost-b", gone=True)
    await until(project, "pending", "there is no pod in its place yet")
    asked = await project.tk("ready", "--sync", "--timeout", "0.5", code=10)
    assert "pending job/lost: there is no pod in its place yet" in asked.err
    done = await project.tk("down")
    assert "goes on" in done.out
    await terminal.line("the session is ending|the allocation is over|no session")
    assert await terminal.ended() != 0
