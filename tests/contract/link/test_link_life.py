"""Opening, losing, taking over and closing."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from link_rig import OPENSSH, PARAMIKO, cut, leftovers, wait_for

from tests.support.ports import free_port
from tunnelkit import local_ports
from tunnelkit.errors import ConnectionFailed
from tunnelkit.link.openssh import control_master
from tunnelkit.model import Hop, LocalForward


async def test_close_leaves_nothing(connect, cluster, home) -> None:
    link = await connect()
    await link.run(["true"], node="node1")
    stream = await link.open_stream(["cat"], node="node1")
    await link.forward(LocalForward(free_port(), "127.0.0.1", 9), node="node2")
    control = home / "ctl"
    for path in control.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) in (0o600, 0o700), path
    await link.close()
    assert stream.ended
    assert not cluster.processes_in(str(control))
    assert sorted(path.name for path in control.iterdir()) == []
    await link.close()


async def test_open_is_idempotent_and_works_after_close(connect, cluster) -> None:
    link = await connect()
    await asyncio.gather(link.open(), link.open())
    assert cluster["login"].authentications() == 1
    await link.close()
    await link.open()
    assert (await link.run(["echo", "again"])).text == "again\n"


@pytest.mark.parametrize("jumps", [["bastion"], ["bastion", "login"], ["node2", "bastion"]])
async def test_jumps(connect, cluster, jumps) -> None:
    link = await connect(login=Hop("node1"), jumps=tuple(Hop(jump) for jump in jumps))
    done = await link.run(["sh", "-c", "echo $SSH_CONNECTION"])
    assert str(cluster["node1"].port) in done.text
    counts = {name: sshd.authentications() for name, sshd in cluster.sshds.items()}
    # node2 has a ProxyJump of its own in ssh_config, by login.
    first = {"login": 1} if jumps[0] == "node2" else {}
    expected = dict.fromkeys(cluster.sshds, 0) | first | dict.fromkeys([*jumps, "node1"], 1)
    assert counts == expected


async def test_a_port_in_the_destination(connect, cluster) -> None:
    config = cluster.write_ssh_config("plain")
    port = cluster["login"].port
    link = await connect(login=Hop(f"{cluster.user}@127.0.0.1:{port}"), ssh_config=config)
    assert (await link.run(["echo", "hi"])).text == "hi\n"
    assert link.destination() == f"{cluster.user}@127.0.0.1"


_PREDECESSOR = """
import asyncio, os, sys
from pathlib import Path
from tunnelkit.link.base import LinkSetup
from tunnelkit.link.factory import make_link
from tunnelkit.link.options import LinkOptions
from tunnelkit.model import Hop, LocalForward

async def main():
    backend, config, control, port, node_port = sys.argv[1:]
    options = LinkOptions(
        login=Hop("login"), ssh_config=Path(config), node_routes=("chain", "node")
    )
    link = make_link(backend, options, LinkSetup(Path(control)))
    await link.open()
    await link.run(["true"], node="node1")
    await link.forward(LocalForward(int(port), "127.0.0.1", int(port)))
    await link.forward(LocalForward(int(node_port), "127.0.0.1", int(port)), node="node1")
    print(Path(link._forwards._chains._chains["node1"].control_socket).parent, flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


def killed_predecessor(cluster, port: int, backend: str = "openssh") -> Path:
    """A process that used the same control directory, with forwards, and was killed.

    Returns the directory that its chain had on the login host.
    """
    words = [backend, str(cluster.ssh_config), str(cluster.home / "ctl")]
    words += [str(port), str(free_port())]
    with subprocess.Popen(
        [sys.executable, "-c", _PREDECESSOR, *words], stdout=subprocess.PIPE
    ) as predecessor:
        assert predecessor.stdout is not None
        line = predecessor.stdout.readline()
        predecessor.kill()
    assert line
    return Path(os.fsdecode(line.strip()))


async def test_a_chain_ends_with_a_killed_owner(connect, cluster, request) -> None:
    backend = request.node.callspec.params["connect"]
    directory = killed_predecessor(cluster, free_port(), backend)
    wait_for(lambda: not directory.exists(), what="removal of the chain's directory")
    wait_for(lambda: not cluster.processes_in(str(directory)), what="end of the chain's ssh")
    await connect()  # whose end takes the masters along


@OPENSSH
async def test_take_over_from_a_killed_predecessor(connect, cluster, home) -> None:
    """No authentication, no clash with the listeners it left, and a clean end."""
    port = free_port()
    killed_predecessor(cluster, port)
    link = await connect()
    assert link._login.connection.adopted
    assert (await link.run(["echo", "hi"], node="node1")).text == "hi\n"
    forward = LocalForward(port, "127.0.0.1", cluster["node1"].port)
    await link.forward(forward)
    with socket.create_connection(("127.0.0.1", port)) as sock:
        assert await asyncio.to_thread(sock.recv, 4) == b"SSH-"
    assert cluster["login"].authentications() == 1
    assert cluster["node1"].authentications() == 2  # the link's own, and the chain's

    lost = asyncio.create_task(link.wait_lost())
    await asyncio.sleep(0)
    os.kill(link._login.connection.pid, signal.SIGKILL)
    assert "login" in await asyncio.wait_for(lost, 5)
    await link.open()
    assert (await link.run(["echo", "hi"], node="node1")).text == "hi\n"
    await link.close()
    assert local_ports.is_free(port)
    wait_for(lambda: not cluster.processes_in(str(home / "ctl")), what="end of all ssh")


@PARAMIKO
async def test_a_killed_predecessor_leaves_nothing_and_costs_one_login(connect, cluster) -> None:
    port = free_port()
    killed_predecessor(cluster, port, "paramiko")
    assert local_ports.is_free(port)
    said: list[str] = []
    link = await connect(notice=said.append)
    assert cluster["login"].authentications() == 2
    assert len(said) == 1 and "logged in again" in said[0], said
    await link.forward(LocalForward(port, "127.0.0.1", cluster["node1"].port))
    await link.close()
    await link.open()
    assert len(said) == 1, "after an end of its own there is nothing to tell"


@OPENSSH
async def test_close_ends_adopted_masters(connect, cluster, home) -> None:
    killed_predecessor(cluster, free_port())
    link = await connect()
    await link.open_node("node1")
    await link.close()
    assert not cluster.processes_in(str(home / "ctl"))
    assert list((home / "ctl").iterdir()) == []


@OPENSSH
async def test_a_stale_socket_is_replaced(connect, cluster, home) -> None:
    link = await connect(opened=False)
    (home / "ctl").mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(link._login.connection.control_path))
    await link.open()
    assert (await link.run(["echo", "hi"])).text == "hi\n"


async def test_a_closed_connection_is_told(connect, cluster) -> None:
    link = await connect()
    lost = asyncio.create_task(link.wait_lost())
    cluster["login"].stop(connections=True)
    assert "login" in await asyncio.wait_for(lost, 5)
    with pytest.raises(ConnectionFailed, match="not connected") as caught:
        await link.run(["true"])
    assert caught.value.transient


async def test_a_command_cut_in_the_middle_is_no_exit_code(connect, cluster) -> None:
    link = await connect()
    with leftovers(cluster, "1000.25"):
        running = asyncio.create_task(link.run(["sleep", "1000.25"]))
        stream = await link.open_stream(["cat"])
        cut(link)
        with pytest.raises(ConnectionFailed):
            await running
    assert await stream.wait() == 255


async def test_a_silent_connection_is_noticed(connect, cluster) -> None:
    """By questions of our own: nothing that was under way would have told."""
    link = await connect(alive_interval_s=1, alive_count_max=2)
    lost = asyncio.create_task(link.wait_lost())
    await asyncio.sleep(0)
    cluster["login"].freeze()
    assert "login" in await asyncio.wait_for(lost, 15)
    assert not await link.is_alive()
    cluster["login"].stop(connections=True)
    cluster["login"].start()
    await link.open()
    assert (await link.run(["echo", "hi"])).text == "hi\n"


@OPENSSH
async def test_who_doubts_a_link_of_long_patience_ends_it_if_it_is_dead(
    connect, cluster, monkeypatch
) -> None:
    """ssh itself, which waited for a push on a phone, would notice it two minutes later."""
    (cluster.home / "patient").write_text("login\n")

    async def prompter(question: str, echo: bool) -> None:
        return None

    link = await connect(prompter=prompter, patient_logins=cluster.home / "patient")
    await link.doubt()
    assert (await link.run(["echo", "hi"])).text == "hi\n"
    lost = asyncio.create_task(link.wait_lost())
    await asyncio.sleep(0)
    monkeypatch.setattr(control_master, "_PROOF_S", 1.0)
    cluster["login"].freeze()
    await asyncio.gather(link.doubt(), link.doubt())
    assert "login" in await asyncio.wait_for(lost, 5)
    assert not await link.is_alive()


@OPENSSH
async def test_a_first_login_without_a_wait_is_the_last_that_may_have_one(
    connect, cluster, tmp_path
) -> None:
    async def prompter(question: str, echo: bool) -> None:
        return None

    link = await connect(prompter=prompter, patient_logins=tmp_path / "patient-logins")
    await link.open_node("node1")
    assert link._login.connection._notices_late
    assert (tmp_path / "quick-logins").read_text().splitlines() == [link.destination()]
    await link.close()
    link = await connect(prompter=prompter, patient_logins=tmp_path / "patient-logins")
    assert not link._login.connection._notices_late


@OPENSSH
async def test_a_master_that_hangs_is_replaced(connect, cluster) -> None:
    link = await connect()
    hung = link._login.connection.pid
    os.kill(hung, signal.SIGSTOP)
    await link.open()
    assert link._login.connection.pid != hung
    assert (await link.run(["echo", "hi"])).text == "hi\n"
    assert not Path(f"/proc/{hung}").exists()


async def test_rsync_rides_along(connect, cluster, home) -> None:
    link = await connect()
    await link.open_node("node1")
    (home / "a file").write_text("text")
    shell = " ".join(link.remote_shell(node="node1"))
    target = f"{link.destination('node1')}:{home}/copy"
    words = ["rsync", "-s", "-e", shell, str(home / "a file"), target]
    # Beside the loop, where the link may have a part in it.
    done = await asyncio.to_thread(subprocess.run, words, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (home / "copy").read_text() == "text"
    assert cluster["node1"].authentications() == 1
