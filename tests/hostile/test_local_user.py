"""Another user of the laptop tries every port and socket that a session has there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.hostile.local_user import try_all
from tests.support import processes
from tests.support.other_user import OtherUser, why_no_other_user
from tests.support.ports import free_port
from tests.support.tkrig import PROGRAM, Project, line_of

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(why_no_other_user()), reason=str(why_no_other_user())),
]
STOP = line_of(PROGRAM, "total += step")
#: On the node: tells each connection a secret.
_TELL = """\
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("up", flush=True)
while True:
    with listener.accept()[0] as peer:
        peer.sendall(b"secret")
"""


async def _heard(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(30):
        data = await reader.read()
    writer.close()
    return data


@pytest.mark.parametrize("link", ["openssh", "paramiko"])
async def test_he_gets_nothing_from_any_port_or_socket(
    link: str, project: Project, other_user: OtherUser
) -> None:
    there, by_file, by_ssh, by_wire, shared = (free_port() for _ in range(5))
    path = project.dir / "tunnelkit.toml"
    text = f'forwards = ["{by_file}:{there}"]\n' + path.read_text() + '[cluster]\nlink = "LINK"\n'
    path.write_text(text.replace("LINK", link))
    project.write("tell.py", _TELL)
    await project.up("node1", "--cpus", "2")
    server = await project.terminal("run", "python", "tell.py", str(there))
    await server.line("^up$")
    await project.tk("forward", f"{by_ssh}:{there}")
    await project.tk("forward", "--wire", f"{by_wire}:{there}")
    await project.tk("forward", "--shared", f"{shared}:{there}")
    routes = {
        int(one["forward"].partition(":")[0]): one["route"]
        for one in (await project.status())["forwards"]
    }
    assert {routes.pop(by_wire)} == {"wire"} and set(routes.values()) == {"node"}
    await project.loop("python", "2.py")
    editor, thread, _ = await project.f5_to_stop(STOP)

    ports = set(processes.listening_ports({one.pid for one in project.laptop_processes()}))
    assert {project.port, by_file, by_ssh, by_wire, shared} < ports
    assert len(ports) >= 7, "an adapter has two of its own"
    sockets = [str(one) for one in project.base.rglob("*") if one.is_socket()]
    names = {Path(one).name.partition("-")[0] for one in sockets}
    assert {"control.sock"} | ({"m", "n", "f"} if link == "openssh" else set()) <= names

    for port in (by_file, by_ssh, by_wire, shared):
        assert await _heard(port) == b"secret"
    order = {"ports": sorted(ports), "sockets": sockets, "files": []}
    seen = await asyncio.to_thread(lambda: try_all(other_user, **order))
    assert seen["ports"].pop(str(shared)) == ["closed", "secret"]
    assert seen["ports"] == {str(port): ["closed", ""] for port in ports - {shared}}
    assert set(seen["sockets"].values()) == {"PermissionError"}
    # None of that harmed the person's own.
    for port in (by_file, by_ssh, by_wire, shared):
        assert await _heard(port) == b"secret"
    await editor.request("next", threadId=thread)
    await editor.stopped()


async def test_he_gets_no_pdb(project: Project, other_user: OtherUser) -> None:
    port = free_port()
    await project.up("node1")
    terminal = await project.terminal("pdb", "--port", str(port), "python", "2.py")
    await terminal.line(f"nc 127.0.0.1 {port}")
    order = {"ports": [port], "sockets": [], "files": []}
    seen = await asyncio.to_thread(lambda: try_all(other_user, **order))
    assert seen["ports"] == {str(port): ["closed", ""]}
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(60):
        assert (await reader.readuntil(b"(Pdb) ")).endswith(b"(1)<module>()\n-> import os\n(Pdb) ")
    writer.write(b"q\n")
    assert await terminal.ended() == 0
    writer.close()


async def test_a_forward_is_opened_to_others_only_by_a_new_one(project: Project) -> None:
    port = free_port()
    await project.up("node1")
    await project.tk("forward", str(port))
    done = await project.tk("forward", "--shared", str(port), code=2)
    assert "open already, for you" in done.err
    await project.tk("forward", "--cancel", str(port))
    told = (await project.tk("forward", "--shared", str(port), "--json")).json
    assert told["shared"] is True
    assert not [one for one in project.base.rglob("f-*") if one.is_socket()]


async def test_a_projects_file_opens_no_port_to_others_unasked(project: Project) -> None:
    path = project.dir / "tunnelkit.toml"
    path.write_text(f'shared_forwards = ["{free_port()}:80"]\n' + path.read_text())
    done = await project.tk("up", "node1", code=3)
    assert "tk trust" in done.err
