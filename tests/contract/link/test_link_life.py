"""Opening, losing, taking over and closing; refusals told to people."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from link_rig import OPENSSH, PARAMIKO, cut, fingerprint, keygen, leftovers, wait_for

from tests.support.tkrig import free_port
from tunnelkit import local_ports
from tunnelkit.errors import AuthenticationFailed, ConfigError, ConnectionFailed, HostKeyError
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


# -- refusals


async def refused(connect, kind, **changes):
    link = await connect(opened=False, **changes)
    with pytest.raises(kind) as caught:
        await link.open()
    assert not await link.is_alive()
    error = caught.value
    assert error.hint and "\n" not in error.one_line()
    return error


async def test_unknown_host(connect, cluster) -> None:
    error = await refused(connect, ConnectionFailed, login=Hop("no-such-host.invalid"))
    assert "no host called no-such-host.invalid" in error.message


async def test_refused_port(connect, cluster) -> None:
    cluster["login"].stop()
    error = await refused(connect, ConnectionFailed)
    assert "login refused the connection" in error.message
    assert error.transient


async def test_refused_behind_a_jump(connect, cluster) -> None:
    cluster["login"].stop()
    error = await refused(connect, ConnectionFailed, jumps=(Hop("bastion"),))
    assert "login" in error.message and "refused" in (error.cause or "")


async def test_refused_node(connect, cluster) -> None:
    cluster["node1"].stop()
    link = await connect()
    with pytest.raises(ConnectionFailed, match="node1") as caught:
        await link.run(["true"], node="node1")
    assert "refused" in (caught.value.cause or "")
    assert (await link.run(["echo", "login lives"])).text == "login lives\n"


async def test_unknown_node(connect) -> None:
    link = await connect()
    with pytest.raises(ConnectionFailed, match="no-such-node"):
        await link.run(["true"], node="no-such-node.invalid")


async def test_a_black_hole_is_bounded(connect, cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hole:
        config = cluster.write_ssh_config(
            "hole", extra=f"Host login\n  Port {hole.getsockname()[1]}"
        )
        started = time.monotonic()
        error = await refused(connect, ConnectionFailed, ssh_config=config, connect_timeout_s=1)
        assert "does not answer" in error.message
        assert time.monotonic() - started < 5


async def test_wrong_key(connect, cluster, home) -> None:
    config = cluster.write_ssh_config("wrong", key=keygen(home / "other_key"))
    error = await refused(connect, ConnectionFailed, ssh_config=config)
    assert "login" in error.message and "did not let us in" in error.message
    assert "publickey" in (error.cause or "")


@pytest.mark.parametrize("strict", ["yes", "ask", "no"])
async def test_changed_host_key_is_a_hard_stop(connect, cluster, strict) -> None:
    login = cluster["login"]
    known = fingerprint(login.host_key.with_suffix(".pub"))
    login.stop()
    offered = fingerprint(keygen(login.host_key).with_suffix(".pub"))
    login.start()
    config = cluster.write_ssh_config("strict", strict=strict)
    error = await refused(connect, HostKeyError, ssh_config=config)
    assert known in error.message and offered in error.message
    assert "ssh-keygen -R" in error.hint and str(cluster.known_hosts) in error.hint


async def test_changed_node_key_is_a_hard_stop(connect, cluster) -> None:
    cluster.write_known_hosts(without=("node1",))
    config = cluster.write_ssh_config("ask", strict="ask")
    first = await connect(ssh_config=config)
    await first.run(["true"], node="node1")
    known = fingerprint(cluster["node1"].host_key.with_suffix(".pub"))
    own = cluster.home / "ctl" / "known_hosts"
    assert "node1.via.login" in own.read_text()
    assert stat.S_IMODE(own.stat().st_mode) == 0o600
    await first.close()
    cluster["node1"].stop()
    offered = fingerprint(keygen(cluster["node1"].host_key).with_suffix(".pub"))
    cluster["node1"].start()
    second = await connect(ssh_config=config)
    with pytest.raises(HostKeyError) as caught:
        await second.run(["true"], node="node1")
    assert known in caught.value.message and offered in caught.value.message


@pytest.mark.parametrize("strict", ["yes", "ask"])
async def test_unknown_login_key_is_refused(connect, cluster, strict) -> None:
    cluster.write_known_hosts(without=("login",))
    config = cluster.write_ssh_config("strict", strict=strict)
    error = await refused(connect, HostKeyError, ssh_config=config)
    assert "is not known" in error.message


async def test_a_strict_config_holds_for_nodes(connect, cluster) -> None:
    cluster.write_known_hosts(without=("node1",))
    link = await connect()
    with pytest.raises(HostKeyError, match="node1"):
        await link.run(["true"], node="node1")


async def test_bad_config(connect, cluster) -> None:
    config = cluster.write_ssh_config("bad", extra="NoSuchOption yes")
    error = await refused(connect, ConfigError, ssh_config=config)
    assert "nosuchoption" in (error.cause or "").lower()


async def test_control_dir_rules(connect, cluster, home) -> None:
    error = await refused(connect, ConfigError, control="x" * 80)
    assert "too long" in error.message
    (home / "open").mkdir(mode=0o755)
    error = await refused(connect, ConfigError, control="open")
    assert "open to other users" in error.message


# -- questions


def locked_config(cluster) -> Path:
    key = keygen(cluster.home / "locked_key", "sesame")
    with (cluster.home / "authorized_keys").open("a") as file:
        file.write(key.with_suffix(".pub").read_text())
    return cluster.write_ssh_config("locked", key=key)


async def test_passphrase_is_asked_once_per_host(connect, cluster) -> None:
    asked = []

    async def prompter(question: str, echo: bool) -> str:
        asked.append((question, echo))
        return "sesame"

    link = await connect(ssh_config=locked_config(cluster), prompter=prompter)
    assert len(asked) == 1
    assert "locked_key" in asked[0][0] and asked[0][1] is False
    await asyncio.gather(*(link.run(["true"]) for _ in range(5)))
    assert len(asked) == 1
    await link.close()
    assert list((cluster.home / "ctl").iterdir()) == []


async def test_new_host_key_is_asked(connect, cluster) -> None:
    cluster.write_known_hosts(without=("login",))
    asked = []

    async def prompter(question: str, echo: bool) -> str:
        asked.append((question, echo))
        return "yes"

    config = cluster.write_ssh_config("ask", strict="ask")
    link = await connect(ssh_config=config, prompter=prompter)
    assert (await link.run(["echo", "hi"])).text == "hi\n"
    ((question, echo),) = asked
    assert fingerprint(cluster["login"].host_key.with_suffix(".pub")) in question
    assert echo is True


async def test_nobody_answers(connect, cluster) -> None:
    async def prompter(question: str, echo: bool) -> None:
        return None

    error = await refused(
        connect, ConnectionFailed, ssh_config=locked_config(cluster), prompter=prompter
    )
    assert "nobody answered" in error.message and "locked_key" in (error.cause or "")


async def test_a_broken_prompter_is_no_answer(connect, cluster) -> None:
    async def prompter(question: str, echo: bool) -> str:
        raise RuntimeError("the terminal is gone")

    error = await refused(
        connect, ConnectionFailed, ssh_config=locked_config(cluster), prompter=prompter
    )
    assert "nobody answered" in error.message


async def test_batch_never_asks(connect, cluster) -> None:
    error = await refused(connect, ConnectionFailed, ssh_config=locked_config(cluster))
    assert "did not let us in" in error.message


async def test_a_wrong_answer_is_asked_once(connect, cluster) -> None:
    asked = []

    async def prompter(question: str, echo: bool) -> str:
        asked.append(question)
        return "wrong"

    await refused(connect, ConnectionFailed, ssh_config=locked_config(cluster), prompter=prompter)
    assert len(asked) == 1


async def test_without_a_person_nothing_is_asked(connect, cluster) -> None:
    """A reconnect by itself: who would have to be asked is waited for, by the error's kind."""
    asked, present = [], [True]

    async def prompter(question: str, echo: bool) -> str:
        asked.append(question)
        return "sesame"

    link = await connect(
        ssh_config=locked_config(cluster), prompter=prompter, attended=lambda: present[0]
    )
    assert len(asked) == 1
    present[0] = False
    cut(link)
    await link.wait_lost()
    with pytest.raises(AuthenticationFailed) as caught:
        await link.open()
    assert "terminal" in (caught.value.hint or "")
    assert len(asked) == 1
    present[0] = True
    await link.open()
    assert len(asked) == 2
