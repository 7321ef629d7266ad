"""A console on ranks opens no door: not on the laptop, and not on the node."""

from __future__ import annotations

import asyncio
import json
import subprocess

import pytest

from tests.hostile.local_user import try_all
from tests.support import processes
from tests.support.console_rig import console_at_the_stop, looping, typed
from tests.support.other_user import OtherUser, why_no_other_user
from tests.support.tkrig import Project, project_on
from tunnelkit import lab as tk_lab
from tunnelkit.lab import LabInfo

pytestmark = pytest.mark.root
needs_another = pytest.mark.skipif(bool(why_no_other_user()), reason=str(why_no_other_user()))


@needs_another
async def test_another_user_reaches_neither_the_console_nor_a_rank(
    project: Project, other_user: OtherUser
) -> None:
    await looping(project, 2)
    before = processes.listening_ports({one.pid for one in project.cluster_processes()})
    async with console_at_the_stop(project, 2) as screen:
        ranks = (await project.tk("ranks", "--json")).json["ranks"]
        await typed(screen, "cast ranks(:) p total", r"0-1 +0$")
        near, far = project.laptop_processes(), project.cluster_processes()
        # srun's own ports are Slurm's, which asks munge who comes.
        pids = {one.pid for one in [*near, *far] if one.program != "srun"}
        of_ranks = {one["pid"] for one in ranks}
        assert screen.process.pid in pids and of_ranks < pids
        ports = processes.listening_ports(pids)
        assert not ({screen.process.pid} | of_ranks) & set(ports.values())
        assert processes.listening_ports({one.pid for one in far}) == before
        sockets = [str(path) for path in project.base.rglob("*") if path.is_socket()]
        assert any(path.endswith("control.sock") for path in sockets)
        files = [str(path) for path in (project.base / "s").rglob("*") if path.is_file()]
        assert any(path.endswith("console_history") for path in files)
        files += [f"/proc/{pid}/{name}" for pid in of_ranks for name in ("mem", "environ")]
        seen = await asyncio.to_thread(
            lambda: try_all(other_user, ports=sorted(ports), sockets=sockets, files=files)
        )
        assert seen["ports"] == {str(port): ["closed", ""] for port in ports}
        assert set(seen["sockets"].values()) == {"PermissionError"}, seen["sockets"]
        assert set(seen["files"].values()) == {"PermissionError"}, seen["files"]
        # Nothing of that has moved a rank.
        await typed(screen, "cast ranks(:) p total + 1", r"0-1 +1$")
        screen.type("q\r")
        assert await screen.ended() == 0


def node_listens(lab: LabInfo) -> list[str]:
    """Addresses on which anything listens in the node's network namespace."""
    argv = [*tk_lab.on("node1", lab.dir), "cat", "/proc/net/tcp", "/proc/net/tcp6"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return sorted(line.split()[1] for line in done.stdout.splitlines() if line.split()[3] == "0A")


async def test_ranks_and_console_open_no_port_on_the_node(netns_lab: LabInfo) -> None:
    if netns_lab.scheduler != "slurm":
        pytest.skip("Slurm is not installed")
    async with project_on(netns_lab) as project:
        await looping(project, 2)
        await project.tk("ready")
        before = node_listens(netns_lab)
        assert before, "sshd and the agent listen there"
        await project.tk("ranks", "--json")
        lines = ["c", "cast ranks(:) mark('a')", "cast ranks(0) n", "p total"]
        words = [word for line in lines for word in ("-c", line)]
        during = asyncio.create_task(project.tk("console", "--json", *words))
        seen = [before]
        while not during.done():
            seen.append(await asyncio.to_thread(node_listens, netns_lab))
        answers = json.loads((await during).out)
        assert answers[1]["answers"][0]["text"] == "'marked a'"
        seen.append(node_listens(netns_lab))
        assert len(seen) > 2 and all(one == before for one in seen)
