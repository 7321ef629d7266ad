"""What is wrong around the connection: a local port, the name service."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from dataclasses import replace

import pytest

from tests.support.login_rig import LoginHost, debugging, project_by
from tests.support.names_rig import Names
from tests.support.tkrig import Project


@pytest.mark.logins(login=2)  # `tk vscode`, before there is a session, and `tk up`
async def test_a_taken_debug_port_names_its_owner_and_launch_json_follows(
    project: Project,
) -> None:
    launch = project.dir / ".vscode" / "launch.json"
    wanted = project.port
    await project.tk("vscode")
    launch.write_text(launch.read_text().replace("{", "{ // mine", 1))
    with socket.create_server(("127.0.0.1", wanted)):
        done = await project.tk("up", "node1", "--cpus", "2")
        assert f"port {wanted} is taken by" in done.err and f"(pid {os.getpid()})" in done.err
        status = await project.status()
        project.port = status["debug_port"]
        assert wanted < project.port <= wanted + 20
        assert f'"port": {project.port}' in launch.read_text() and "// mine" in launch.read_text()
        assert "already right" in (await project.tk("vscode")).out
        async with debugging(project, up=False):
            pass


@pytest.mark.root
@pytest.mark.logins(2)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a process its own resolver")
async def test_a_name_service_that_hangs_is_bounded_and_tk_status_answers(
    login: LoginHost, names: Names
) -> None:
    login.write_client_config(host=names.login)
    login.lab = replace(login.lab, enter=names.enter)
    async with project_by(login) as project, debugging(project):
        names.give()
        login.cut()

        async def reconnecting() -> str:
            while (status := await project.status())["state"] != "reconnecting":
                await asyncio.sleep(0.1)
            assert status["attention"] is None, "it may pass: nobody has to do anything"
            return str(status["detail"])

        await asyncio.wait_for(reconnecting(), 30)
        asked = time.monotonic()
        while "can't be resolved now" not in await reconnecting():
            await asyncio.sleep(0.1)
        assert time.monotonic() - asked < 45
        names.give("127.0.0.1")
        await project.tk("auth")
    assert len(login.accepted()) == 2
