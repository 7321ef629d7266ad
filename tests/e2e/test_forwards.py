"""`tk forward`: bytes arrive whole both ways, by OpenSSH and over the wire."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
from collections.abc import AsyncIterator

import pytest

from tests.support import processes
from tests.support.ports import free_port
from tests.support.tkrig import Project, Terminal
from tunnelkit import lab as tk_lab
from tunnelkit.errors import ExitCode

ROUTES = [pytest.param([], id="ssh"), pytest.param(["--wire"], id="wire")]
_ECHO = """\
import socket, sys, threading

def echo(peer):
    with peer:
        while data := peer.recv(1 << 16):
            peer.sendall(data)

listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("up", flush=True)
while True:
    threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()
"""


class EchoHost:
    """A project with a session on node1, and echo servers on that node."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.servers: list[Terminal] = []

    async def serve(self, port: int) -> None:
        server = await self.project.terminal("run", "python", "echo.py", str(port))
        await server.line("^up$")
        self.servers.append(server)


@pytest.fixture
async def node(project: Project) -> AsyncIterator[EchoHost]:
    project.write("echo.py", _ECHO)
    await project.up("node1", "--cpus", "2")
    host = EchoHost(project)
    yield host
    for server in host.servers:
        await server.close()


async def _echoed(port: int, data: bytes) -> bytes:
    """Send all, half-close, read to the end: what the far side got back to us."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    reading = asyncio.create_task(reader.read())
    writer.write(data)
    await writer.drain()
    try:
        writer.write_eof()
    except OSError as error:  # it was reset already, and Python has no name of its own for that
        raise ConnectionResetError(str(error)) from error
    async with asyncio.timeout(90):
        answer = await reading
    writer.close()
    return answer


def _refused(port: int) -> bool:
    with contextlib.closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.parametrize("words", ROUTES)
async def test_20_mb_come_back_as_they_went(node: EchoHost, words: list[str]) -> None:
    here, there = free_port(), free_port()
    await node.serve(there)
    answer = (await node.project.tk("forward", f"{here}:{there}", "--json", *words)).json
    assert answer["ready"] is True
    assert (answer["route"] == "wire") == bool(words)
    data = os.urandom(20_000_000)
    echoed = await _echoed(here, data)
    assert hashlib.sha256(echoed).digest() == hashlib.sha256(data).digest()


@pytest.mark.parametrize("words", ROUTES)
async def test_many_connections_at_once_do_not_mix(node: EchoHost, words: list[str]) -> None:
    here, there = free_port(), free_port()
    await node.serve(there)
    await node.project.tk("forward", f"{here}:127.0.0.1:{there}", *words)
    sent = [os.urandom(10_000 + number) for number in range(40)]
    assert await asyncio.gather(*(_echoed(here, data) for data in sent)) == sent


@pytest.mark.parametrize("words", ROUTES)
async def test_nobody_listens_yet_then_somebody_does(node: EchoHost, words: list[str]) -> None:
    here, there = free_port(), free_port()
    told = await node.project.tk("forward", f"{here}:{there}", *words)
    assert "nobody listens there yet" in told.out
    with contextlib.suppress(ConnectionError):
        assert await _echoed(here, b"") == b"", "hung up on, not kept waiting"
    await node.serve(there)
    again = (await node.project.tk("forward", f"{here}:{there}", "--json", *words)).json
    assert again["ready"] is True
    assert await _echoed(here, b"now") == b"now"


@pytest.mark.parametrize("words", ROUTES)
async def test_a_port_in_use_is_told_and_a_cancelled_one_is_free(
    node: EchoHost, words: list[str]
) -> None:
    here, there = free_port(), free_port()
    await node.serve(there)
    with socket.create_server(("127.0.0.1", here)):
        done = await node.project.tk("forward", f"{here}:{there}", *words, code=None)
    assert done.code in (ExitCode.USAGE, ExitCode.CONNECTION)
    assert done.err.count("\n") == 1 and str(here) in done.err
    await node.project.tk("forward", f"{here}:{there}", *words)
    assert await _echoed(here, b"data") == b"data"
    status = await node.project.status()
    assert [one["forward"] for one in status["forwards"]] == [f"{here}:127.0.0.1:{there}"]
    closed = await node.project.tk("forward", "--cancel", str(here))
    assert "closed" in closed.out
    assert _refused(here)
    assert (await node.project.status())["forwards"] == []
    unknown = await node.project.tk("forward", "--cancel", str(here), code=int(ExitCode.USAGE))
    assert "no forward" in unknown.err


@pytest.mark.parametrize("words", ROUTES)
async def test_where_node_and_laptop_are_one_machine_a_forward_does_not_lead_to_itself(
    node: EchoHost, words: list[str]
) -> None:
    """Each connection opened another: 3,900 descriptors in 8 s, and "ready" with nobody there."""
    if node.project.lab.flavour != "loopback":
        pytest.skip("this lab's node has a network of its own")
    there = free_port()
    told = await node.project.tk("forward", str(there), *words)
    assert "nobody listens there yet" in told.out and "this machine" in told.out
    assert _refused(there), "the node's own program can have the port"
    await node.serve(there)
    again = (await node.project.tk("forward", str(there), "--json", *words)).json
    assert again["ready"] is True and again["route"] == "none"
    assert await _echoed(there, b"now") == b"now"
    listed = await node.project.tk("forward")
    assert f"{there}:127.0.0.1:{there}" in listed.out
    await node.project.tk("forward", "--cancel", str(there))
    assert "no forwards" in (await node.project.tk("forward")).out


async def test_forwards_of_the_config_are_there_after_up_and_end_with_down(
    project: Project,
) -> None:
    here, there = free_port(), free_port()
    path = project.dir / "tunnelkit.toml"
    path.write_text(f'forwards = ["{here}:{there}"]\n' + path.read_text())
    project.write("echo.py", _ECHO)
    status = await project.up("node1", "--cpus", "2")
    assert [one["forward"] for one in status["forwards"]] == [f"{here}:127.0.0.1:{there}"]
    host = EchoHost(project)
    await host.serve(there)
    assert await _echoed(here, b"hello") == b"hello"
    await project.tk("down")
    assert _refused(here)
    await host.servers[0].ended()


@pytest.mark.parametrize("words", ROUTES)
async def test_forwards_come_back_after_ssh_was_killed(node: EchoHost, words: list[str]) -> None:
    here, there = free_port(), free_port()
    await node.serve(there)
    await node.project.tk("forward", f"{here}:{there}", *words)
    processes.kill(node.project.ssh_processes())
    await _is_back(here)


async def _is_back(port: int) -> None:
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(OSError):
                if await _echoed(port, b"again") == b"again":
                    return
            await asyncio.sleep(0.05)


async def test_a_forward_comes_back_once_its_node_takes_connections_again(node: EchoHost) -> None:
    """Its first return fails at once, and nothing but time calls for the next one."""
    here, there = free_port(), free_port()
    await node.serve(there)
    await node.project.tk("forward", f"{here}:{there}")
    lab = node.project.lab.dir
    (listener,) = [one.pid for one in tk_lab.status(lab).daemons if one.name == "sshd-node1"]
    serving = [one for one in processes.descendants([listener]) if one.program.startswith("ssh")]
    tk_lab.stop_daemon("sshd-node1", lab)
    try:
        processes.kill(serving)
        async with asyncio.timeout(60):
            while (await node.project.status())["forwards"][0]["route"] != "lost":
                await asyncio.sleep(0.05)
        assert "not in place" in (await node.project.tk("forward")).out
    finally:
        tk_lab.start_daemon("sshd-node1", lab)
    await _is_back(here)
    assert (await node.project.status())["forwards"][0]["route"] in ("node", "chain")
