"""LocalForwards: the three routes, their loss and their return."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from link_rig import cut, wait_for

from tests.support.ports import free_port
from tunnelkit import local_ports
from tunnelkit.errors import ConnectionFailed, UsageError
from tunnelkit.link.options import LinkOptions
from tunnelkit.link.shared import forward_table
from tunnelkit.model import Hop, LocalForward


class EchoServer:
    """Sends back what it gets, until closed."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._echo, args=(sock,), daemon=True).start()

    def _echo(self, sock: socket.socket) -> None:
        with sock:
            try:
                while data := sock.recv(65536):
                    sock.sendall(data)
            except OSError:
                pass

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def echo() -> Iterator[EchoServer]:
    server = EchoServer()
    yield server
    server.close()


async def echoes(port: int) -> bool:
    """Whether an echo comes back through a local port."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    try:
        writer.write(b"ping\n")
        return await asyncio.wait_for(reader.readline(), 5) == b"ping\n"
    except OSError:
        return False
    finally:
        writer.close()


async def test_the_chain(connect, echo) -> None:
    await _add_and_cancel(await connect(), echo, "node1", "chain")


@pytest.mark.parametrize(("node", "route"), [(None, "login"), ("node1", "node")])
async def test_add_and_cancel(connect, echo, node, route) -> None:
    await _add_and_cancel(await connect(node_routes=("node",)), echo, node, route)


async def _add_and_cancel(link, echo, node, route) -> None:
    forward = LocalForward(free_port(), "127.0.0.1", echo.port)
    await link.forward(forward, node=node)
    assert link.forward_route(forward, node=node) == route
    assert await echoes(forward.bind_port)
    await link.forward(forward, node=node)  # again: nothing happens
    assert await echoes(forward.bind_port)
    await link.cancel_forward(forward, node=node)
    assert link.forward_route(forward, node=node) is None
    assert local_ports.is_free(forward.bind_port)
    await link.forward(forward, node=node)
    assert await echoes(forward.bind_port)


async def test_the_node_route_where_login_can_not_ssh(connect, cluster, echo) -> None:
    cluster.break_chain()
    link = await connect()
    forward = LocalForward(free_port(), "127.0.0.1", echo.port)
    await link.forward(forward, node="node1")
    assert link.forward_route(forward, node="node1") == "node"
    assert await echoes(forward.bind_port)
    await link.cancel_forward(forward, node="node1")
    assert local_ports.is_free(forward.bind_port)


async def test_the_chain_where_only_the_login_host_may_ssh_to_nodes(connect, cluster, echo) -> None:
    """The node is tried once, by the laptop's own way, and refuses the laptop's key."""
    node = cluster["node1"]
    node.stop()
    node.options.append(f"Match all\n  AuthorizedKeysFile {cluster.login_key}.pub")
    node.start()
    link = await connect(node_routes=LinkOptions(Hop("login")).node_routes)
    forward = LocalForward(free_port(), "127.0.0.1", echo.port)
    await link.forward(forward, node="node1")
    assert link.forward_route(forward, node="node1") == "chain"
    assert await echoes(forward.bind_port)
    cut(link)
    await link.wait_lost()
    await link.open()
    assert link.forward_route(forward, node="node1") == "chain"
    assert await echoes(forward.bind_port)
    assert (cluster["login"].authentications(), node.authentications()) == (2, 2)


async def test_the_laptops_own_way_comes_first(connect, cluster, echo) -> None:
    link = await connect(node_routes=LinkOptions(Hop("login")).node_routes)
    forward = LocalForward(free_port(), "127.0.0.1", echo.port)
    await link.forward(forward, node="node1")
    assert link.forward_route(forward, node="node1") == "node"
    assert await echoes(forward.bind_port)
    assert not link._forwards._chains._chains


@pytest.mark.parametrize("sshd_options", [{"login": ["AllowStreamLocalForwarding no"]}])
async def test_the_node_route_where_login_forbids_unix_sockets(connect, echo) -> None:
    link = await connect()
    forward = LocalForward(free_port(), "127.0.0.1", echo.port)
    await link.forward(forward, node="node1")
    assert link.forward_route(forward, node="node1") == "node"
    assert await echoes(forward.bind_port)


@pytest.mark.parametrize("sshd_options", [{"node1": ["AllowTcpForwarding no"]}])
async def test_an_honest_error_where_the_node_forbids_forwarding(connect, echo) -> None:
    link = await connect(node_routes=("node", "chain"))
    forward = LocalForward(free_port(), "127.0.0.1", echo.port)
    with pytest.raises(ConnectionFailed, match="node1 forbids TCP forwarding"):
        await link.forward(forward, node="node1")
    assert link.forward_route(forward, node="node1") is None
    assert local_ports.is_free(forward.bind_port)
    assert (await link.run(["echo", "hi"], node="node1")).text == "hi\n"


@pytest.mark.parametrize("sshd_options", [{"login": ["AllowTcpForwarding no"]}])
async def test_an_honest_error_where_login_forbids_forwarding(connect, echo) -> None:
    link = await connect()
    with pytest.raises(ConnectionFailed, match="login forbids TCP forwarding"):
        await link.forward(LocalForward(free_port(), "127.0.0.1", echo.port))


async def test_nobody_else_can_reach_the_chain(connect, cluster, echo) -> None:
    """On the login host only a socket in a private directory, and no TCP listener."""
    link = await connect()
    forward = LocalForward(free_port(), "127.0.0.1", echo.port)
    await link.forward(forward, node="node1")
    directory = Path(link._forwards._chains._chains["node1"].control_socket).parent
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / str(forward.bind_port)).stat().st_mode) == 0o600
    for pid in cluster.processes_in(str(directory)):
        assert not _tcp_listeners(pid)
    await link.close()
    wait_for(lambda: not directory.exists(), what="removal of the chain's directory")
    assert not cluster.processes_in(str(directory))


async def test_a_taken_port_names_its_owner(connect, echo) -> None:
    link = await connect()
    with pytest.raises(UsageError) as caught:
        await link.forward(LocalForward(echo.port, "127.0.0.1", 80))
    assert str(echo.port) in caught.value.message
    assert f"pid {os.getpid()}" in (caught.value.cause or "")


@pytest.mark.parametrize("broken", [False, True])
async def test_forwards_come_back_after_a_killed_master(connect, cluster, echo, broken) -> None:
    if broken:
        cluster.break_chain()
    link = await connect()
    to_login = LocalForward(free_port(), "127.0.0.1", echo.port)
    to_node = LocalForward(free_port(), "127.0.0.1", echo.port)
    await link.forward(to_login)
    await link.forward(to_node, node="node1")
    lost = asyncio.create_task(link.wait_lost())
    cut(link)
    assert "login" in await asyncio.wait_for(lost, 5)
    assert not await link.is_alive()
    await link.open()
    assert await link.is_alive()
    assert await echoes(to_login.bind_port)
    assert await echoes(to_node.bind_port)
    assert not link.failed_forwards()
    assert cluster["login"].authentications() == 2


@pytest.mark.parametrize("broken", [False, True])
async def test_a_lost_node_is_told_and_mended(connect, cluster, echo, broken) -> None:
    if broken:
        cluster.break_chain()
    link = await connect()
    forward = LocalForward(free_port(), "127.0.0.1", echo.port)
    waiting = asyncio.create_task(link.wait_lost())
    await asyncio.sleep(0)  # waits before the forward is there
    await link.forward(forward, node="node1")
    cluster["node1"].stop(connections=True)
    assert "node1" in await asyncio.wait_for(waiting, 10)
    await link.open()
    ((key, error),) = link.failed_forwards().items()
    assert key == (forward, "node1")
    assert isinstance(error, ConnectionFailed)
    assert link.forward_route(forward, node="node1") is None
    cluster["node1"].start()
    # As a session does: nothing else calls for another attempt.
    while link.failed_forwards():
        await asyncio.wait_for(link.wait_lost(), 20)
        await link.open()
    assert await echoes(forward.bind_port)
    assert cluster["login"].authentications() == 1


async def test_a_lost_forward_is_back_with_the_next_connection_to_its_node(
    connect, cluster, echo, monkeypatch
) -> None:
    """It is not refused by a login of its own again, which could lock an account."""
    monkeypatch.setattr(forward_table, "_PAUSES_S", (600.0, 600.0))
    link = await connect(node_routes=("node",))
    forward = LocalForward(free_port(), "127.0.0.1", echo.port)
    await link.forward(forward, node="node1")
    cluster["node1"].stop(connections=True)
    await asyncio.wait_for(link.wait_lost(), 10)
    await link.open()
    assert link.failed_forwards()
    waiting = asyncio.create_task(link.wait_lost())
    cluster["node1"].start()
    assert (await link.run(["echo", "hi"], node="node1")).text == "hi\n"
    assert "not in place" in await asyncio.wait_for(waiting, 10)
    await link.open()
    assert not link.failed_forwards()
    assert await echoes(forward.bind_port)
    assert cluster["login"].authentications() == 1


async def test_users_own_forwards_do_not_clash(connect, cluster, echo) -> None:
    """LocalForward lines of ssh_config, whose port is even taken, are none of ours."""
    config = cluster.write_ssh_config(
        "mine", extra=f"Host *\n  LocalForward {echo.port} 127.0.0.1:1\n  ExitOnForwardFailure yes"
    )
    link = await connect(ssh_config=config)
    forward = LocalForward(free_port(), "127.0.0.1", echo.port)
    await link.forward(forward)
    assert (await link.run(["echo", "hi"], node="node1")).text == "hi\n"
    assert await echoes(forward.bind_port)


def _tcp_listeners(pid: int) -> list[str]:
    try:
        fds = [os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return []
    listening = [
        row.split()[9]
        for row in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if row.split()[3] == "0A"
    ]
    return [fd for fd in fds if fd.removeprefix("socket:[").rstrip("]") in listening]
