"""The login of the user's kubectl ends while a session runs: what runs goes on."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.support.kube_rig import KubeProject, dev_pod, dev_project
from tests.support.tkrig import PROGRAM, line_of
from tunnelkit.lab.kube.stand_in import StandIn

__all__ = ["dev_pod", "dev_project"]

STOP = line_of(PROGRAM, "total += step")


def log_in(pods: StandIn, token: str) -> None:
    """Write a token where `oc login` writes it."""
    config: dict[str, Any] = json.loads(pods.kubeconfig.read_text())
    config["users"][0]["user"]["token"] = token
    pods.kubeconfig.write_text(json.dumps(config))


def proxies(project: KubeProject) -> set[int]:
    return {one.pid for one in project.laptop_processes() if "proxy" in one.argv}


def processes_of(pods: StandIn) -> set[int]:
    """The processes in the pod; a stream that is opened again would be another one."""
    found: Any = pods.ask("POST", "/standin/processes", {"pod": "ml-dev-env"})
    return set(found)


async def refused(project: KubeProject) -> dict[str, Any]:
    """Wait until the session knows that its login has ended; its status."""
    async with asyncio.timeout(60):
        while not (now := await project.status())["attention"]:
            await asyncio.sleep(0.1)
    return now


async def test_streams_go_on_until_the_user_has_logged_in_again(
    pods: StandIn, project: KubeProject
) -> None:
    await project.up("ml-dev-env")
    terminal = await project.loop("python", "2.py")
    await project.ready()
    editor, thread, frame = await project.f5_to_stop(STOP)
    before, running = proxies(project), processes_of(pods)
    await project.tk("sync", "--wait")
    running &= processes_of(pods)  # helpers come and go
    assert len(before) == 1

    # The token has ended: no request and no new stream with it.
    pods.ask("POST", "/standin/login", {"known": True, "token": "second"})
    now = await refused(project)
    assert "does not know who you are" in now["attention"] and now["state"] == "ready"
    assert await editor.evaluate("total + 1000", frame) == "1000"
    not_yet = await project.tk("auth", code=5)
    assert "`oc login`" in not_yet.err
    assert proxies(project) == before
    assert await editor.evaluate("total + 2000", frame) == "2000"
    project.write("saved.txt", "while nobody is logged in\n")
    await project.tk("sync", "--wait")
    assert project.remote("saved.txt").read_text() == "while nobody is logged in\n"

    log_in(pods, "second")
    await project.tk("auth")
    assert (await project.status())["attention"] is None
    assert proxies(project) > before
    assert running and running <= processes_of(pods)

    # A new stream has the new login.
    pods.ask("POST", "/standin/cut", {})
    assert await editor.evaluate("total + 3000", frame) == "3000"
    await editor.request("setBreakpoints", source={"path": str(project.dir / "2.py")})
    await editor.finish(thread)
    await terminal.line(r"run 1 · ended: exit code 0")
    await project.tk("down")
    assert proxies(project) == set()


@pytest.mark.parametrize("code", [401, 500])
async def test_a_stream_that_is_cut_meanwhile_waits_for_the_login(
    pods: StandIn, project: KubeProject, code: int
) -> None:
    """Also where a login plugin fails, which is kubectl's own 500. One `tk auth` is enough."""
    await project.up("ml-dev-env")
    await project.loop("python", "2.py")
    editor, _, frame = await project.f5_to_stop(STOP)
    pods.ask("POST", "/standin/login", {"known": False, "code": code})
    now = await refused(project)
    assert now["state"] == "ready"
    assert await editor.evaluate("total + 1000", frame) == "1000"
    pods.ask("POST", "/standin/cut", {})
    async with asyncio.timeout(60):
        while (await project.status())["state"] == "ready":
            await asyncio.sleep(0.1)
    pods.ask("POST", "/standin/login", {"known": True})
    await project.tk("auth")
    now = await project.status()
    assert (now["state"], now["attention"]) == ("ready", None)
    assert await editor.evaluate("total + 2000", frame) == "2000"
    await project.tk("down")
