"""The main job where the laptop truly can't reach a node, and its cable is pulled."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.dap_driver import FarEditor
from tests.support.main_job import STOP, main_job
from tests.support.tkrig import Project, project_on
from tunnelkit import lab as tk_lab
from tunnelkit.lab import LabInfo
from tunnelkit.lab.layout import Layout
from tunnelkit.lab.state import load

pytestmark = pytest.mark.root
_DIAL = "import socket, sys; socket.create_connection((sys.argv[1], 22), 3)"


@pytest.fixture
async def far_project(netns_lab: LabInfo) -> AsyncIterator[Project]:
    if netns_lab.scheduler != "slurm":
        pytest.skip("Slurm is not installed")
    async with project_on(netns_lab) as made:
        yield made
    tk_lab.heal(netns_lab.dir)


def _reaches(lab: LabInfo, host: str) -> bool:
    """Does a plain TCP connection from the laptop reach that host's sshd?"""
    state = load(Layout(lab.dir))
    assert state is not None
    argv = [*lab.enter, sys.executable, "-c", _DIAL, state.network.address[host]]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.logins(2)
async def test_the_main_job_and_a_link_down_for_30_s_while_stopped(far_project: Project) -> None:
    project = far_project
    assert not _reaches(project.lab, "node1")

    async def at_stop() -> None:
        tk_lab.link_down(project.lab.dir)
        # The fault is half a minute without a network; there is nothing to wait for but time.
        await asyncio.sleep(30)
        tk_lab.link_up(project.lab.dir)

    await main_job(project, at_stop=at_stop)


async def test_the_main_job_by_paramiko(far_project: Project) -> None:
    await main_job(far_project, "--link", "paramiko")


@pytest.mark.logins(2)
async def test_the_laptop_changes_its_address_while_stopped(far_project: Project) -> None:
    """Another Wi-Fi: its old address is gone, and with it every connection, without a word."""
    project = far_project
    state = load(Layout(project.lab.dir))
    assert state is not None
    laptop = state.network.namespaces["laptop"]
    await project.up("node1", "--cpus", "2")
    await project.loop("python", "2.py")
    where: dict[str, Any] = {"port": project.port, "mappings": project.path_mappings}
    async with FarEditor(project.lab.enter) as editor:
        await editor.do("f5", **where, path=str(project.dir / "2.py"), line=STOP)
        pid = await editor.do("evaluate", expression="os.getpid()")
        with other_address(laptop):
            # Asked for over a link that nobody knows to be dead yet.
            assert await editor.do("next") == STOP + 1
            assert await editor.do("evaluate", expression="os.getpid()") == pid
            assert (await project.status())["debug_port"] == project.port
            await editor.do("finish")
            # Before the old address is back: else a test's end could ride on old connections.
            await project.tk("down")


@contextmanager
def other_address(namespace: str) -> Iterator[None]:
    """Give the laptop's interface another address in the same net instead of its own."""

    def ip(*words: str) -> str:
        argv = ["ip", "-n", namespace, *words]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout

    address = re.search(r"inet (\S+)", ip("-4", "addr", "show", "dev", "eth0"))
    assert address is not None
    before = address[1]
    # The net has room for a host of each end only, so the new one is a net of its own beside it.
    gateway = _login_outside(before)
    after = "198.51.100.77/32"
    ip("addr", "flush", "dev", "eth0")
    ip("addr", "add", after, "dev", "eth0")
    ip("route", "add", gateway, "dev", "eth0")
    login = namespace.replace("-laptop", "-login")
    back = ["ip", "-n", login, "route"]
    subprocess.run([*back, "add", "198.51.100.77/32", "dev", "laptop"], check=True)
    try:
        yield
    finally:
        subprocess.run([*back, "del", "198.51.100.77/32"], check=True)
        ip("addr", "flush", "dev", "eth0")
        ip("addr", "add", before, "dev", "eth0")


def _login_outside(laptop: str) -> str:
    """The other host of the laptop's little net."""
    own = ipaddress.ip_interface(laptop)
    return str(next(one for one in own.network.hosts() if one != own.ip))


async def test_a_forward_reaches_the_nodes_own_loopback(far_project: Project) -> None:
    """Laptop and node have different loopbacks here: the same port number on both."""
    project = far_project
    project.write(
        "serve.py",
        """\
        import socket
        listener = socket.create_server(("127.0.0.1", 8899))
        print("up", flush=True)
        while True:
            peer, _ = listener.accept()
            peer.sendall(socket.gethostname().encode())
            peer.close()
        """,
    )
    await project.up("node2", "--cpus", "2")
    server = await project.terminal("run", "python", "serve.py")
    await server.line("^up$")
    ask = "import socket; print(socket.create_connection(('127.0.0.1', 8899), 9).recv(99).decode())"
    for words in ([], ["--wire"]):
        answer = (await project.tk("forward", "8899", "--json", *words)).json
        assert answer["ready"] is True
        argv = [*project.lab.enter, sys.executable, "-c", ask]
        asked = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True)
        assert asked.stdout.strip() == "node2", asked.stderr
        await project.tk("forward", "--cancel", "8899")
    await server.close()
