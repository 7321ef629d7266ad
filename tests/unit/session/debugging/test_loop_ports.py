"""The port of a loop, and the loop of an editor at the session's port."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.ports import free_port
from tunnelkit.debug.dap.editor_port import Editor, EditorPort
from tunnelkit.mux.dap_framing import frame
from tunnelkit.session.debugging.loops import Loops
from tunnelkit.session.debugging.port_fallback import LoopPorts, session_ports

_DEADLINE_S = 30.0


async def handler(editor: Editor) -> None:
    """A loop that serves editors."""


@pytest.fixture
async def port() -> AsyncIterator[EditorPort]:
    made = EditorPort(free_port())
    made.open()
    yield made
    await made.close()


def left(number: int, **more: object) -> Any:
    return {"id": 1, "debug": True, "editor_port": number, "generation": 1, **more}


async def test_the_end_of_one_loop_leaves_the_port_to_another(port: EditorPort) -> None:
    async def other(editor: Editor) -> None:
        pass

    port.serve(handler)
    port.release(other)
    assert port.busy
    port.release(handler)
    assert not port.busy


async def test_a_killed_sessions_loop_comes_to_this_sessions_port(
    port: EditorPort, tmp_path: Path
) -> None:
    """Its session had to take another port, or this one has to."""
    file = tmp_path / "ports"
    assert session_ports(file, 1001) == frozenset()
    assert session_ports(file, 1002) == {1001}
    ports = LoopPorts(port, 1000)
    ports.before = session_ports(file, port.port)
    assert ports.before == {1001, 1002}
    for number in (1001, 1002, port.port):
        assert ports.again(left(number)) == (port, None)
    assert ports.again(left(0, debug=False)) == (port, None)


async def test_a_killed_sessions_loop_gets_the_next_port_if_its_own_is_taken(
    port: EditorPort,
) -> None:
    port.serve(handler)
    again, moved = LoopPorts(port, 1000).again(left(port.port))
    assert again.port != port.port
    assert moved == f"port {port.port} is in use: this loop is on port {again.port} now"
    await again.close()


async def test_the_settings_port_in_a_command_means_the_sessions(port: EditorPort) -> None:
    ports = LoopPorts(port, 40056)
    assert ports.wanted(None, 40056, once=False) == port.port
    assert ports.wanted(None, 5678, once=False) == 5678
    assert ports.wanted(40056, None, once=False) == 40056
    port.serve(handler)
    assert ports.wanted(None, None, once=True) == 0


async def test_an_editor_without_a_loop_hears_where_one_is(port: EditorPort) -> None:
    said = await _ask(port.port)
    assert said == "No debug loop is running. Start one: tk loop python FILE"
    port.others = lambda: [5679, 5678]
    said = await _ask(port.port)
    assert said.startswith(f"The debug loop is on port 5678 and 5679, and this is {port.port}")


async def _ask(number: int) -> str:
    request = {"seq": 1, "type": "request", "command": "initialize", "arguments": {}}
    reader, writer = await asyncio.open_connection("127.0.0.1", number)
    writer.write(frame(json.dumps(request).encode()))
    async with asyncio.timeout(_DEADLINE_S):
        answer = await reader.read()
    writer.close()
    body = json.loads(answer.partition(b"\r\n\r\n")[2])
    return str(body["message"])


class _Loop:
    """A loop as far as the choice for an editor looks at it."""

    def __init__(self, number: int, port: EditorPort, debugs: bool) -> None:
        self.loop, self.port, self.own_port = self, port, False
        self.id, self.debugs = number, debugs


async def test_f5_is_about_the_loop_on_the_sessions_port(port: EditorPort) -> None:
    loops = object.__new__(Loops)
    loops._port = port
    here, served = _Loop(1, port, True), EditorPort(0)
    flask, elsewhere = _Loop(2, port, False), _Loop(3, served, True)
    made: Any = {1: here, 2: flask, 3: elsewhere}
    loops._loops = made
    port.serve(handler)
    assert loops.for_editor() is here
    assert loops.for_editor(2) is flask
    del made[1]
    port.release(handler)
    assert loops.for_editor() is elsewhere
    del made[3]
    assert loops.for_editor() is flask


@pytest.mark.parametrize(
    ("state", "editor", "restarts"),
    [
        ("armed", False, False),
        ("attached", True, True),
        # Begun by `c` of a console, or left by its editor while it runs on.
        ("attached", False, True),
        # For its user to look at.
        ("kept", False, False),
        ("kept", True, True),
    ],
)
async def test_a_change_restarts_a_program_that_has_begun(
    state: str, editor: bool, restarts: bool
) -> None:
    spawned: list[Any] = []
    debugger = SimpleNamespace(state=state, has_editor=editor, debugs=True, restart=lambda *_: None)
    loops: Any = SimpleNamespace(
        all=lambda: [SimpleNamespace(reload=True, loop=debugger)],
        _spawn=lambda work: (work.close(), spawned.append(work)),
    )
    Loops.files_changed(loops, ["a.py"])
    assert len(spawned) == restarts
