"""The connection goes: the laptop sleeps, the login host reboots, or the next one answers.

The debug session stands where it stood, on the same local ports.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from dataclasses import replace

import pytest

from tests.support.login_rig import LoginHost, debugging, login_host, project_by
from tests.support.names_rig import Names
from tests.support.tkrig import Project, eventually
from tunnelkit.lab import LabInfo


def _stop(project: Project, number: signal.Signals) -> None:
    for one in project.laptop_processes():
        os.kill(one.pid, number)


@pytest.mark.slow
@pytest.mark.logins(2)
async def test_sleep_and_wake(login: LoginHost, by_login: Project) -> None:
    """All of the laptop stands still; meanwhile the login host has forgotten it."""
    async with debugging(by_login):
        before = await by_login.status()
        _stop(by_login, signal.SIGSTOP)
        try:
            login.cut()
            await asyncio.sleep(3)
        finally:
            _stop(by_login, signal.SIGCONT)
        await eventually(lambda: len(login.accepted()) == 2, "it is back, by one authentication")
    after = await by_login.status()
    assert after["debug_port"] == before["debug_port"] == by_login.port
    assert after["job"] == before["job"] | {"time_left_s": after["job"]["time_left_s"]}
    assert len(login.accepted()) == 2


@pytest.mark.logins(2)
async def test_the_login_host_reboots(login: LoginHost, by_login: Project) -> None:
    async with debugging(by_login):
        before = await by_login.status()
        login.stop()
        with socket.socket() as probe:
            assert probe.connect_ex((login.address, login.port)) != 0
        assert (await by_login.status())["debug_port"] == by_login.port
        await asyncio.sleep(2)  # refusals, as while a host boots
        login.start()
        await eventually(lambda: len(login.accepted()) == 2, "it is back")
    after = await by_login.status()
    assert after["job"]["id"] == before["job"]["id"] and not after["job"]["adopted"]
    assert len(login.accepted()) == 2


@pytest.mark.root
@pytest.mark.logins(node1=3)  # with each new way to login
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a process its own names")
@pytest.mark.parametrize("link", ["openssh", "paramiko"])
async def test_a_round_robin_name_leads_back_to_the_same_host_while_it_is_there(
    slurm_lab: LabInfo, names: Names, link: str
) -> None:
    names.give("127.0.0.1", "127.0.0.2")
    with (
        login_host(slurm_lab, address="127.0.0.2", logins=2) as second,
        login_host(slurm_lab, port=second.port, started=False) as first,
    ):
        second.write_client_config(host=names.login)
        second.lab = replace(slurm_lab, enter=names.enter)
        async with project_by(second, f'link = "{link}"') as project:
            async with debugging(project):
                first.start()  # from now on the name leads there
                second.cut()
                await eventually(lambda: len(second.accepted()) == 2, "it is back on the same host")
                assert first.accepted() == []
                second.stop()
                await eventually(lambda: len(first.accepted()) == 1, "the other host serves")
            log = (await project.tk("logs", "--session")).out
            assert "is another host now: 127.0.0.1" in log
