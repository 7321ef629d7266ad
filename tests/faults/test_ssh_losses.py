"""The connection goes: the laptop sleeps, the login host reboots, or the next one answers.

The debug session stands where it stood, on the same local ports.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket

from tests.support.login_rig import LoginHost, debugging
from tests.support.tkrig import Project, eventually


def _stop(project: Project, number: signal.Signals) -> None:
    for one in project.laptop_processes():
        os.kill(one.pid, number)


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
