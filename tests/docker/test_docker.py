"""The main job on a site of containers behind a bastion, and what can befall such a site.

All in one file, so that one worker has one site.
"""

from __future__ import annotations

import subprocess

import pytest

from tests.docker.site import Site, SiteProject
from tests.support.main_job import STOP, main_job
from tunnelkit.errors import ExitCode

# The first test waits for the image to be built, on a new machine for Debian itself.
pytestmark = [pytest.mark.slow, pytest.mark.docker, pytest.mark.timeout(600)]
_DIAL = "import socket, sys; socket.create_connection((sys.argv[1], 22), 3)"


def test_only_the_bastion_can_be_reached(site: Site) -> None:
    assert site.published() == {"bastion": f"127.0.0.1:{site.port}"}
    for network in ("campus", "cluster"):
        # Looked up, not dialled: on a machine without such a route that would go elsewhere.
        argv = ["ip", "-4", "route", "show", "to", "root", site.subnet(network)]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        assert not done.stdout, f"a way into {network}"
    with pytest.raises(AssertionError, match=r"timed out|unreachable|No route"):
        site.on("node1", "python3", "-c", _DIAL, site.address("bastion", "campus"))
    site.on("node1", "python3", "-c", _DIAL, site.address("login", "cluster"))


@pytest.mark.parametrize("link", ["openssh", "paramiko"])
async def test_the_main_job_behind_a_bastion(site_project: SiteProject, link: str) -> None:
    await main_job(site_project, "--link", link)


@pytest.mark.logins(2)
async def test_a_network_cut_in_the_middle_of_a_stop(site_project: SiteProject) -> None:
    async def at_stop() -> None:
        site_project.site.cut()
        try:
            await site_project.state("reconnecting")
        finally:
            site_project.site.mend()

    await main_job(site_project, at_stop=at_stop)


@pytest.mark.logins(2)
async def test_a_login_node_that_hangs_in_the_middle_of_a_stop(site_project: SiteProject) -> None:
    """Paused, it still acknowledges nothing and refuses nothing: a black hole."""

    async def at_stop() -> None:
        site_project.site.do("pause", "login")
        try:
            await site_project.state("reconnecting")
        finally:
            site_project.site.do("unpause", "login")

    await main_job(site_project, at_stop=at_stop)


@pytest.mark.logins(2)
async def test_a_bastion_that_restarts_in_the_middle_of_a_stop(site_project: SiteProject) -> None:
    async def at_stop() -> None:
        site_project.site.do("restart", "bastion")

    await main_job(site_project, at_stop=at_stop)


async def test_a_node_that_dies_ends_the_session_once_and_with_its_reason(
    site_project: SiteProject,
) -> None:
    project = site_project
    await project.up("node2", "--cpus", "2")
    terminal = await project.loop("python", "2.py")
    editor, _, _ = await project.f5_to_stop(STOP)
    project.site.do("kill", "node2")
    try:
        await terminal.line("the allocation is over.*NODE_FAIL.*tk up")
        await terminal.ended()
        await editor.drop()
        # Nothing goes on by itself: whoever asks is told, and no other job was submitted.
        assert (await project.status())["state"] == "ended"
        refused = await project.tk("ready", "--sync", code=ExitCode.NO_SESSION)
        assert "NODE_FAIL" in refused.err
        assert await project.jobs() == []
        await project.tk("down")
    finally:
        project.site.do("start", "node2")
        project.site.wait_idle("node2")
    await project.nothing_left()
