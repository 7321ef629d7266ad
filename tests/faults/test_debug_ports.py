"""The ports of a loop: never released, harmless to touch, one editor at a time."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import processes
from tests.support.tkrig import PROGRAM, Project, eventually, line_of
from tunnelkit.demo.dap_client import DapClient
from tunnelkit.errors import DebugError

STOP = line_of(PROGRAM, "total += step")


class Thief:
    """Tries to take ports, again and again, in every way that there is."""

    def __init__(self, ports: list[int]) -> None:
        self.tries = 0
        self.taken: list[tuple[int, str, str]] = []
        self._ports = ports
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._over.wait(0.002):
            for port in self._ports:
                for host in ("127.0.0.1", "0.0.0.0"):
                    for option in ("", "SO_REUSEADDR", "SO_REUSEPORT"):
                        self._try(port, host, option)
            self.tries += 1

    def _try(self, port: int, host: str, option: str) -> None:
        with socket.socket() as sock:
            if option:
                sock.setsockopt(socket.SOL_SOCKET, getattr(socket, option), 1)
            try:
                sock.bind((host, port))
                # With SO_REUSEADDR Linux may refuse as late as here.
                sock.listen()
            except OSError:
                return
            self.taken.append((port, host, option))

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join()


@pytest.fixture
async def looping(project: Project) -> Project:
    await project.up("node1", "--cpus", "2")
    await project.loop("python", "2.py")
    return project


def _dial_in(project: Project, agent_pid: int) -> int:
    """The port where the agent waits for debuggees to dial in."""
    ports = processes.listening_ports([agent_pid])
    assert len(ports) == 1, ports
    return next(iter(ports))


async def test_no_port_is_free_for_a_moment_across_restarts(looping: Project) -> None:
    """Who could bind P, or the editor's port, between two runs would be the debugger."""
    agent = (await looping.status())["agent"]["pid"]
    dial_in = _dial_in(looping, agent)
    thief = Thief([dial_in, looping.port])
    pids = set()
    with thief.at_work():
        for ending in ("continue", "disconnect", "drop", "restart", "continue"):
            editor, thread, frame = await looping.f5_to_stop(STOP)
            pids.add(await editor.evaluate("os.getpid()", frame))
            await _end(editor, thread, frame, ending)
        assert _dial_in(looping, agent) == dial_in
    assert len(pids) == 5
    assert thief.tries > 50 and thief.taken == []


async def _end(editor: DapClient, thread: int, frame: dict[str, Any], how: str) -> None:
    if how == "continue":
        await editor.request("setBreakpoints", source=frame["source"], breakpoints=[])
        await editor.finish(thread)
    elif how == "disconnect":
        await editor.request("disconnect")
    elif how == "restart":
        await editor.request("disconnect", restart=True)
    await editor.drop()


async def test_probes_of_the_dial_in_port_harm_nothing(looping: Project) -> None:
    """By a process of the same user, at every moment of a run: connect and close, or rubbish."""
    dial_in = _dial_in(looping, (await looping.status())["agent"]["pid"])
    await _probe(dial_in)
    for _ in range(3):
        editor, thread, frame = await looping.f5_to_stop(STOP)
        await _probe(dial_in)
        assert await editor.evaluate("step", frame) == "0"
        await editor.request("setBreakpoints", source=frame["source"], breakpoints=[])
        await editor.finish(thread)
        await _probe(dial_in)


SLOW = """\
#!/bin/sh
case "$*" in
  *2.py*)
    echo >>begun
    until [ -e go ]; do sleep 0.02; done
    rm go
    ;;
esac
exec python3 "$@"
"""


async def test_a_probe_that_comes_before_the_debuggee_is_no_debuggee(project: Project) -> None:
    Path(project.write("python", SLOW)).chmod(0o755)
    begun, go = project.remote("begun"), project.remote("go")
    await project.up("node1", "--cpus", "2")
    go.touch()
    await project.loop("--no-standby", "./python", "2.py")
    dial_in = _dial_in(project, (await project.status())["agent"]["pid"])
    editor, thread, frame = await project.f5_to_stop(STOP)
    for number in range(2, 5):
        await editor.request("setBreakpoints", source=frame["source"], breakpoints=[])
        await editor.finish(thread)
        await eventually(lambda count=number: begun.stat().st_size == count, "the next one")
        await _probe(dial_in)
        go.touch()
        editor, thread, frame = await project.f5_to_stop(STOP)
        assert await editor.evaluate("step", frame) == "0"


async def _probe(port: int) -> None:
    for said in (b"", b"GET / HTTP/1.0\r\n\r\n", b"Content-Length: 2\r\n\r\n{}"):
        with contextlib.suppress(ConnectionError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(said)
            await writer.drain()
            writer.close()
            await writer.wait_closed()


async def test_a_second_editor_is_told_who_is_there(looping: Project) -> None:
    first = await looping.editor()
    first.name = "Emacs of Ada"
    await first.attach(
        {str(looping.dir / "2.py"): [STOP]}, path_mappings=looping.path_mappings, timeout_s=60
    )
    thread, frame = await first.stopped()
    for _ in range(3):
        second = await looping.editor()
        second.name = "another"
        with pytest.raises(DebugError, match="Emacs of Ada is already debugging this process"):
            await second.attach({}, timeout_s=20)
    # A third comes and goes without waiting for his answer.
    await (await looping.editor()).drop()
    assert await first.evaluate("step", frame) == "0"
    await first.request("next", threadId=thread)
    thread, frame = await first.stopped()
    assert frame["line"] == STOP + 1
    assert (await looping.status())["loops"][0]["editor"] == "Emacs of Ada"
    # Once the first is gone the place is free.
    await first.close()
    later, _, frame = await looping.f5_to_stop(STOP)
    assert await later.evaluate("step", frame) == "0"
