"""Kubernetes: `tk up POD`, the loop and F5 in a pod, pods of tk's own; on the stand-in."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import processes
from tests.support.kube_rig import KubeProject, running_stand_in
from tests.support.tkrig import PROGRAM, eventually, line_of, made_project
from tunnelkit.lab.kube.stand_in import StandIn
from tunnelkit.session.runtime import completion_cache

STOP = line_of(PROGRAM, "total += step")


@pytest.fixture(scope="module")
def pods() -> Iterator[StandIn]:
    with running_stand_in() as cluster:
        cluster.make_pod("ml-dev-env")
        cluster.make_pod("evictee")
        cluster.make_pod("w-0", owner=("StatefulSet", "w"))
        cluster.make_pod("no-home", image="standin/nohome")
        for number in (0, 1):
            cluster.make_pod(f"train-{number}", app="train")
        yield cluster


@pytest.fixture
async def project(pods: StandIn) -> AsyncIterator[KubeProject]:
    async with made_project(lambda base: KubeProject(pods, base)) as made:
        yield made


def files_of(pod_dir: Path) -> list[str]:
    """What is in a pod's own directories, but the programs of its image."""
    found = (path.relative_to(pod_dir) for path in pod_dir.rglob("*") if not path.is_dir())
    return sorted(str(path) for path in found if path.parts[0] not in ("bin", "log"))


def processes_of(pods: StandIn, pod: str) -> Any:
    return pods.ask("POST", "/standin/processes", {"pod": pod})


async def test_from_up_to_down_in_a_pod_of_the_users(pods: StandIn, project: KubeProject) -> None:
    """Also: all streams are cut, and the proxy is killed, while the program is at a breakpoint."""
    before = processes_of(pods, "ml-dev-env")
    status = await project.up("ml-dev-env")
    assert (status["state"], status["node"]) == ("ready", "ml-dev-env")
    assert (status["job"]["id"], status["job"]["made_by"]) == ("pod/ml-dev-env", "you")
    terminal = await project.loop("python", "2.py")
    await project.ready()
    editor, thread, _ = await project.f5_to_stop(STOP)
    await editor.request("setBreakpoints", source={"path": str(project.dir / "2.py")})
    pods.ask("POST", "/standin/cut", {})
    (proxy,) = [one for one in project.laptop_processes() if "proxy" in one.argv]
    os.kill(proxy.pid, signal.SIGKILL)
    await editor.request("next", threadId=thread)
    assert (await editor.stopped(30.0))[1]["line"] == STOP + 1
    await editor.finish(thread)
    await terminal.line(r"run 1 · ended: exit code 0")

    project.write("2.py", PROGRAM.replace('"first"', '"second"'))
    await project.ready()
    editor, thread, _ = await project.f5_to_stop(STOP)
    await editor.request("setBreakpoints", source={"path": str(project.dir / "2.py")})
    assert project.remote("2.py").read_text() == PROGRAM.replace('"first"', '"second"')
    await editor.finish(thread)
    await terminal.line(r"step 2 second")

    done = await project.tk("down")
    assert "ml-dev-env is yours and goes on" in done.out
    await terminal.ended()
    assert processes_of(pods, "ml-dev-env") == before
    left = files_of(pods.root / "pods" / "ml-dev-env")
    assert left == ["home/work/2.py", "home/work/tunnelkit.toml"]


async def test_a_server_that_has_just_started_knows_no_rights_yet(
    pods: StandIn, project: KubeProject
) -> None:
    """It refuses what it allowed before; the session goes on trying, and nobody has to come."""
    await project.up("ml-dev-env")
    terminal = await project.loop("python", "2.py")
    editor, thread, frame = await project.f5_to_stop(STOP)
    await editor.request("setBreakpoints", source={"path": str(project.dir / "2.py")})
    pods.ask("POST", "/standin/deny", {"rights": ["create pods/exec"]})
    try:
        pods.ask("POST", "/standin/cut", {})
        async with asyncio.timeout(60):
            while "you don't have the right to" not in str(await project.status()):
                await asyncio.sleep(0.1)
    finally:
        pods.ask("POST", "/standin/deny", {"rights": []})
    async with asyncio.timeout(60):
        assert await editor.evaluate("total + 1000", frame) == "1000"
    await editor.finish(thread)
    await terminal.line(r"run 1 · ended: exit code 0")
    assert "Nothing is tried" not in project.session_log(1 << 20)
    await project.tk("down")


async def test_a_pod_of_tks_own_from_its_wait_to_its_end(
    pods: StandIn, project: KubeProject
) -> None:
    scarce = "0/5 nodes are available: 5 Insufficient nvidia.com/gpu. preemption: no victims."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    status = {"phase": "Pending", "conditions": [{**condition, "message": scarce}]}
    pods.ask("POST", "/standin/hold", {"status": status})
    terminal = await project.terminal("up", "--image", "standin:1", "--gpus", "1", "--time", "1h")
    name = (await terminal.line(r"submitted pod/(\S+)"))[1]
    await terminal.line("5 Insufficient nvidia.com/gpu")
    pods.ask("POST", "/standin/hold", {"status": None})
    made = pods.ask("POST", "/standin/status", {"pod": name, "run": True})
    assert await terminal.ended() == 0
    spec: Any = made["spec"]
    assert spec["activeDeadlineSeconds"] == 3600
    limits = spec["containers"][0]["resources"]["limits"]
    assert limits == {"nvidia.com/gpu": "1"}
    project.pod_dir = pods.root / "pods" / name
    done = await project.tk("run", "sh", "-c", "cat 2.py")
    assert "total += step" in done.out
    await project.tk("down")
    await eventually(lambda: name not in _names(pods), "the pod is deleted")


def _names(pods: StandIn) -> list[str]:
    found: Any = pods.ask("GET", f"/api/v1/namespaces/{pods.namespace}/pods")["items"]
    return [pod["metadata"]["name"] for pod in found]


async def test_a_killed_session_and_a_home_that_cant_be_written(
    pods: StandIn, project: KubeProject
) -> None:
    """The next `tk up` finds the agent; `tk down` after another kill ends it, and cleans up."""
    before = processes_of(pods, "no-home")
    first = await project.tk("up", "no-home")
    assert "the pod lacks HOME" in first.err
    shown = await project.tk("run", "sh", "-c", "echo $HOME; pwd; : >left; sleep 1000 & echo $!")
    home, cwd, *_ = shown.out.splitlines()
    assert home == str(pods.root / "pods" / "no-home" / "tk" / "home") and cwd == f"{home}/work"
    pid = (await project.status())["agent"]["pid"]
    before_it = _proxies(project)
    _kill_session(project)
    again = await project.up("no-home")
    assert again["agent"]["pid"] == pid
    assert len(_proxies(project)) == 1 and _proxies(project) != before_it
    _kill_session(project)
    done = await project.tk("down")
    assert "the session was killed; its agent was ended; pod/no-home goes on" in done.out
    assert _proxies(project) == []
    assert processes_of(pods, "no-home") == before
    project.forget_killed_agents()
    left = files_of(pods.root / "pods" / "no-home")
    assert "tk/home/work/2.py" in left and not [one for one in left if "agent" in one]


def _kill_session(project: KubeProject) -> None:
    """Kill the daemon; its proxy goes on, until the next session or `tk down` ends it."""
    for one in project.laptop_processes():
        if "daemon" in " ".join(one.argv):
            os.kill(one.pid, signal.SIGKILL)


def _proxies(project: KubeProject) -> list[int]:
    return [one.pid for one in project.laptop_processes() if "proxy" in one.argv]


async def test_all_pods_of_a_selector(pods: StandIn, project: KubeProject) -> None:
    status = await project.up("-l", "app=train")
    assert status["node"] == "train-0"
    assert [one["node"] for one in status["other_nodes"]] == ["train-1"]
    done = await project.tk("run", "--node", "train-1", "sh", "-c", "echo $TK_NODE")
    assert done.out == "train-1\n"
    await project.tk("down")
    for name in ("train-0", "train-1"):
        assert not [one for one in files_of(pods.root / "pods" / name) if one.startswith("tk/")]


async def test_what_cant_be_had_is_one_line(pods: StandIn, project: KubeProject) -> None:
    gone = await project.tk("up", "no-such-pod", code=8)
    assert "there is no pod/no-such-pod in this namespace" in gone.err
    pods.ask("POST", "/standin/login", {"known": False})
    try:
        unknown = await project.tk("up", "ml-dev-env", code=5)
    finally:
        pods.ask("POST", "/standin/login", {"known": True})
    assert "does not know who you are" in unknown.err and "tk auth" in unknown.err


async def test_a_pod_that_is_evicted_says_so(pods: StandIn, project: KubeProject) -> None:
    await project.up("evictee")
    status = {"phase": "Failed", "reason": "Evicted", "containerStatuses": []}
    message = "The node was low on resource: memory."
    pods.ask(
        "POST", "/standin/status", {"pod": "evictee", "status": {**status, "message": message}}
    )
    processes.kill(project.cluster_processes())
    project.forget_killed_agents()

    async def ended() -> str:
        while (now := await project.status())["state"] != "ended":
            await asyncio.sleep(0.1)
        return str(now["detail"])

    async with asyncio.timeout(60):
        assert f"Evicted, by its node: {message}" in await ended()
    await project.tk("down")


async def test_why_a_pod_waits_runs_or_has_ended(pods: StandIn, project: KubeProject) -> None:
    """Without a session by a connection of its own, with one by the session's."""
    name = "asked"
    scarce = "0/5 nodes are available: 5 Insufficient nvidia.com/gpu. preemption: no victims."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    status = {"phase": "Pending", "conditions": [{**condition, "message": scarce}]}
    pods.ask("POST", "/standin/hold", {"status": status})
    pods.make_pod(name, app="asked")
    pods.ask("POST", "/standin/hold", {"status": None})
    pod: Any = pods.ask("GET", f"/api/v1/namespaces/{pods.namespace}/pods/{name}")
    event = {"type": "Warning", "reason": "FailedScheduling", "message": "no GPU", "count": 3}
    about = {"uid": pod["metadata"]["uid"]}
    pods.ask("POST", "/standin/event", {**event, "involvedObject": about})
    done = await project.tk("why", name)
    assert f"pod/{name} waits: no node for it: 0/5 nodes are available: 5 Insuff" in done.out
    assert "FailedScheduling: no GPU (3 times)" in done.out
    if folder := os.environ.get("TK_SCREENSHOTS"):  # `scripts/docs pictures`
        from scripts.docslib.pictures import terminal

        said = done.out.replace(name, "trainer-0")
        terminal(f"$ tk why trainer-0\n{said}", Path(folder) / "kube-why.svg")
    assert "statefulset/w runs (w-0)" in (await project.tk("why", "statefulset/w")).out
    gone = await project.tk("why", "no-such-pod", code=7)
    assert "there is no pod/no-such-pod in this namespace" in gone.err

    pods.ask("POST", "/standin/status", {"pod": name, "run": True})
    await project.up(name)
    assert f"pod/{name} runs" in (await project.tk("why")).out
    killed = {"name": "main", "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
    ended = {"phase": "Failed", "containerStatuses": [killed]}
    pods.ask("POST", "/standin/fail", {"pod": name, "status": ended})
    done = await project.tk("why", name, "--json", "--check", code=14)
    assert done.json["verdicts"][0]["code"] == "pod-out-of-memory"
    assert done.json["stage"] == "ended"
    project.forget_killed_agents()


async def test_doctor_asks_for_each_right(pods: StandIn, project: KubeProject) -> None:
    project.configure('[allocation]\npod = "ml-dev-env"\n')
    done = await project.tk("doctor", "--json")
    found = {one["name"]: one for one in done.json["checks"]}
    assert {one["status"] for one in found.values()} == {"ok"}
    assert "v1.36.0-standin" in found["connection"]["found"]
    assert "ml-dev-env: exec" in found["pod"]["found"]
    names = project.base / "c" / "tunnelkit" / "names.json"
    assert "ml-dev-env" in completion_cache.recall("nodes", project.dir, path=names)
    assert completion_cache.recall("owners", project.dir, path=names) == ["statefulset/w"]
    pods.ask("POST", "/standin/deny", {"rights": ["create pods/exec"]})
    try:
        done = await project.tk("doctor", "--json", code=13)
        refused = await project.tk("up", "ml-dev-env", code=5)
    finally:
        pods.ask("POST", "/standin/deny", {"rights": []})
    found = {one["name"]: one for one in done.json["checks"]}
    assert found["rights"]["status"] == "fail" and found["pod"]["status"] == "skip"
    assert "may not create pods/exec" in found["rights"]["found"]
    assert "create role tunnelkit" in found["rights"]["fix"]
    assert found["rights"]["data"]["role"]["kind"] == "Role"
    assert "you don't have the right to" in refused.err and "tk doctor" in refused.err


async def test_a_pod_with_a_sidecar_is_entered_in_its_default_container(
    pods: StandIn, project: KubeProject
) -> None:
    """The API server takes no exec without a container's name there; kubectl finds it."""
    pods.make_pod("workbench-0", sidecars=("oauth-proxy", "istio-proxy"))
    try:
        status = await project.up("workbench-0")
        assert status["state"] == "ready"
        assert (await project.tk("run", "echo", "inside")).out == "inside\n"
        await project.tk("down")
    finally:
        pods.remove_pod("workbench-0")
