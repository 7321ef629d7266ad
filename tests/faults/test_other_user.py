"""What another user of the same machine can reach of us: nothing."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.local_user import try_all
from tests.support import processes
from tests.support.other_user import OtherUser, why_no_other_user
from tests.support.tkrig import PROGRAM, Project, line_of
from tunnelkit import agent_zip, probe_zip

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(why_no_other_user()), reason=str(why_no_other_user())),
]
STOP = line_of(PROGRAM, "total += step")

#: Runs as the other user: takes ports in every way there is, until its stdin ends.
_THIEF = r"""
import json, os, select, socket, sys
order = json.loads(sys.stdin.readline())
assert os.getuid() == order["uid"]
ways = [(host, option) for host in ("127.0.0.1", "0.0.0.0")
        for option in (None, socket.SO_REUSEADDR, socket.SO_REUSEPORT)]
tries, taken, answered = 0, [], []
print("at work", flush=True)
while not select.select([sys.stdin], [], [], 0.002)[0]:
    tries += 1
    for port in order["ports"]:
        for host, option in ways:
            with socket.socket() as sock:
                try:
                    if option is not None:
                        sock.setsockopt(socket.SOL_SOCKET, option, 1)
                    sock.bind((host, port))
                    sock.listen()
                    taken.append([port, host, option])
                except OSError:
                    pass
        with socket.socket() as sock:
            sock.settimeout(5)
            try:
                sock.connect(("127.0.0.1", port))
                if sock.recv(1):
                    answered.append(port)
            except OSError:
                pass
json.dump({"tries": tries, "taken": taken, "answered": answered}, sys.stdout)
"""


def _probe(other: OtherUser, order: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return try_all(other, **order)


async def test_no_port_no_socket_and_no_file_serves_another_user(
    project: Project, other_user: OtherUser
) -> None:
    status = await project.up("node1", "--cpus", "2")
    await project.loop("python", "2.py")
    editor, thread, frame = await project.f5_to_stop(STOP)
    assert (await project.status())["loops"][0]["state"] == "attached"

    ours = [*project.laptop_processes(), *project.cluster_processes()]
    pids = {one.pid for one in ours}
    debuggee = int(await editor.evaluate("os.getpid()", frame))
    assert {status["pid"], status["agent"]["pid"], debuggee} <= pids
    ports = processes.listening_ports(pids)
    assert project.port in ports
    # The debuggee dials out: it has no port of its own.
    assert debuggee not in ports.values()
    # The session's editor port, the agent's dial-in, an adapter's two and its spare's two.
    assert len(ports) >= 4

    sockets = [str(path) for path in project.base.rglob("*") if path.is_socket()]
    agents = list(Path(f"/tmp/tunnelkit-{os.getuid()}").glob(f"tk-{project.dir.name}-*.sock"))
    assert len(agents) == 1 and sockets
    files = [path for path in (project.base / "s").rglob("*") if path.is_file()]
    files += list(project.lab.home.glob(".cache/tunnelkit/**/*.zip"))
    assert any(path.name == "launch.json" for path in files)
    order = {
        "ports": sorted(ports),
        "sockets": [*sockets, *map(str, agents)],
        "files": [str(path) for path in files],
    }
    seen = _probe(other_user, order)
    assert seen["ports"] == {str(port): ["closed", ""] for port in ports}
    assert set(seen["sockets"].values()) == {"PermissionError"}, seen["sockets"]
    assert set(seen["files"].values()) == {"PermissionError"}, seen["files"]

    # All of that left the debug session unharmed.
    await editor.request("next", threadId=thread)
    thread, frame = await editor.stopped()
    assert frame["line"] == STOP + 1
    await editor.close()
    editor, *_ = await project.f5_to_stop(STOP)


async def test_a_loop_with_its_next_run_standing_by_is_closed_to_others(
    project: Project, other_user: OtherUser
) -> None:
    """One stopped in its editor, the next dialled in, the fork server of both."""
    await project.up("node1", "--cpus", "2")
    await project.loop("python", "2.py")
    editor, thread, frame = await project.f5_to_stop(STOP)
    loop = await _standing_by(project)
    debuggee = int(await editor.evaluate("os.getpid()", frame))

    far = project.cluster_processes()
    pids = {one.pid for one in far}
    servers = [one.pid for one in far if any("debuggee.fork_server" in word for word in one.argv)]
    assert servers and {debuggee, loop["standby"]["pid"]} <= pids
    ports = processes.listening_ports(pids | {one.pid for one in project.laptop_processes()})
    # Neither those that run nor those that wait have a port of their own.
    assert not {debuggee, loop["standby"]["pid"], *servers} & set(ports.values())
    files = [f"/proc/{pid}/{name}" for pid in pids for name in ("environ", "mem", "maps")]
    seen = _probe(other_user, {"ports": sorted(ports), "sockets": [], "files": files})
    assert seen["ports"] == {str(port): ["closed", ""] for port in ports}
    gone = {path for path in files if not Path(path).exists()}
    assert {seen["files"][path] for path in set(files) - gone} == {"PermissionError"}
    # What all may read of a process names no secret.
    words = [word for one in project.cluster_processes() for word in one.argv]
    assert not [word for word in words if re.search("token|secret|cookie", word, re.I)]

    assert await editor.evaluate("step", frame) == "0"
    await editor.request("setBreakpoints", source=frame["source"], breakpoints=[])
    await editor.finish(thread)
    editor, _, frame = await project.f5_to_stop(STOP)
    assert int(await editor.evaluate("os.getpid()", frame)) == loop["standby"]["pid"]


async def _standing_by(project: Project) -> dict[str, Any]:
    """The loop's status, once its next run has dialled in."""
    deadline = time.monotonic() + 30
    while not (loop := (await project.status())["loops"][0])["standby"]:
        assert time.monotonic() < deadline, loop
        await asyncio.sleep(0.05)
    found: dict[str, Any] = loop
    return found


async def test_no_port_can_be_taken_by_another_user_across_runs(
    project: Project, other_user: OtherUser
) -> None:
    """Whoever held the dial-in port between two runs would be the next one's debugger."""
    status = await project.up("node1", "--cpus", "2")
    await project.loop("python", "2.py")
    agent = status["agent"]["pid"]
    dial_in = processes.listening_ports([agent])
    assert len(dial_in) == 1
    thief = await asyncio.create_subprocess_exec(
        *other_user.script(_THIEF),
        cwd="/",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert thief.stdin is not None and thief.stdout is not None
        order = {"uid": other_user.uid, "ports": [*dial_in, project.port]}
        thief.stdin.write(json.dumps(order).encode() + b"\n")
        assert await thief.stdout.readline() == b"at work\n"
        for number in range(6):
            editor, thread, frame = await project.f5_to_stop(STOP)
            if number % 2:
                await editor.request("disconnect")
                await editor.drop()
            else:
                await editor.request("setBreakpoints", source=frame["source"], breakpoints=[])
                await editor.finish(thread)
        assert processes.listening_ports([agent]) == dial_in
        thief.stdin.close()
        async with asyncio.timeout(30):
            told = json.loads(await thief.stdout.read())
    finally:
        if thief.returncode is None:
            thief.kill()
        await thief.wait()
    assert told["tries"] > 20
    assert (told["taken"], told["answered"]) == ([], [])


async def test_no_command_line_holds_a_secret(project: Project) -> None:
    await project.up("node1", "--cpus", "2")
    await project.loop("python", "2.py")
    await project.f5_to_stop(STOP)
    ours = [*project.laptop_processes(), *project.cluster_processes()]
    assert len(ours) >= 6
    words = [word for one in ours for word in one.argv]
    assert not [word for word in words if re.search("token|secret|password=|cookie", word, re.I)]
    # The long numbers are the digests of the agent's and the probe's zips, no secrets: in the zips'
    # names, and in a command that is just starting an agent.
    public = "|".join([agent_zip.build().digest, probe_zip.build().digest])
    zips = rf"(?:agent|probe)-[0-9a-f]+[-a-z0-9]*\.zip|{public}"
    bare = [re.sub(zips, "", word) for word in words]
    assert not [word for word in bare if re.search(r"[0-9A-Za-z+_]{32}", word)]


async def test_a_loop_without_a_session_is_closed_to_others_too(
    project: Project, other_user: OtherUser
) -> None:
    """`tk loop` typed on a node: its agent, adapter and port are on this very machine."""
    loop = await project.terminal("loop", "--local", sys.executable, "2.py")
    await loop.line("armed")
    pids = {one.pid for one in project.laptop_processes()}
    ports = processes.listening_ports(pids)
    assert project.port in ports and len(ports) >= 4
    seen = _probe(other_user, {"ports": sorted(ports), "sockets": [], "files": []})
    assert seen["ports"] == {str(port): ["closed", ""] for port in ports}
    editor = await project.editor()
    await editor.attach({str(project.dir / "2.py"): [STOP]})
    await editor.stopped()
    await editor.close()
    assert await loop.quit() == 0
