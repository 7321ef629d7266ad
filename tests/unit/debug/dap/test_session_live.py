"""The view between a real editor session and a real debugpy adapter, with real endings."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tunnelkit.debug.adapter.adapter import Adapter, Adapters
from tunnelkit.debug.dap import peek
from tunnelkit.debug.dap.output_limiter import OutputLimits
from tunnelkit.debug.dap.path_mappings import MappedRoots
from tunnelkit.debug.dap.session import DapSession
from tunnelkit.debug.dap.session_facts import Child
from tunnelkit.demo.dap_client import DapClient
from tunnelkit.mux.dap_framing import DapReader, frame
from tunnelkit.mux.tasks import cancel_all

PATIENCE_S = 30.0


@dataclass
class Rig:
    """editor -> view -> adapter <- debuggee; `process` is the debuggee."""

    view: DapSession
    client: DapClient
    process: asyncio.subprocess.Process
    script: Path
    #: Bodies as the adapter sent them.
    heard: list[bytes] = field(default_factory=list)
    to_editor: asyncio.StreamWriter | None = None

    def tell(self, bodies: list[bytes]) -> None:
        """Send to the editor what an input of the view returned."""
        assert self.to_editor is not None
        self.to_editor.write(b"".join(map(frame, bodies)))

    async def tell_end(self) -> int:
        """Tell the view how the process ended, as the agent would; return the status."""
        async with asyncio.timeout(PATIENCE_S):
            status = await self.process.wait()
        self.tell(self.view.ended(status) if status >= 0 else self.view.ended(None, -status))
        return status


async def _carry(rig: Rig, adapter: Adapter, reader: asyncio.StreamReader) -> None:
    """One editor's connection: both directions through the view."""
    up, writer = await asyncio.open_connection("127.0.0.1", adapter.client_port)

    async def from_editor() -> None:
        frames = DapReader()
        while data := await reader.read(65536):
            for body in frames.feed(data):
                to_adapter, to_editor = rig.view.from_editor(body)
                rig.tell(to_editor)
                writer.write(b"".join(map(frame, to_adapter)))

    async def from_adapter() -> None:
        frames = DapReader()
        while data := await up.read(65536):
            bodies = frames.feed(data)
            rig.heard += bodies
            rig.tell(rig.view.from_adapter(bodies, time.monotonic()))

    tasks = [asyncio.create_task(work) for work in (from_editor(), from_adapter())]
    try:
        await asyncio.gather(*tasks)
    finally:
        await cancel_all(*tasks)
        writer.close()


@asynccontextmanager
async def debugging(tmp_path: Path, code: str, view: DapSession) -> AsyncIterator[Rig]:
    script = tmp_path / "script.py"
    script.write_text(code)
    adapters = Adapters()
    adapter = await adapters.start()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "debugpy", "--connect", f"127.0.0.1:{adapter.server_port}"),
        *("--wait-for-client", str(script)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYDEVD_DISABLE_FILE_VALIDATION": "1"},
    )
    rig = Rig(view, DapClient(), process, script)
    carried: list[asyncio.Task[None]] = []

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        rig.to_editor = writer
        carried.append(asyncio.create_task(_carry(rig, adapter, reader)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        await rig.client.connect(server.sockets[0].getsockname()[1])
        yield rig
    finally:
        await rig.client.close()
        server.close()
        await cancel_all(*carried)
        if rig.to_editor is not None:
            rig.to_editor.close()
        adapter.close()
        await adapters.close()
        if process.returncode is None:
            process.kill()
        await process.wait()


def look_again(bodies: list[bytes]) -> None:
    """Every message of debugpy's adapter is understood by its head, and rightly."""
    for body in bodies:
        assert peek._HEAD.match(body), body
        assert peek.peek(body) == peek._slow(body)


@pytest.mark.parametrize(
    ("last_line", "code", "told"),
    [
        ("pass", 0, None),
        ("os._exit(7)", 7, None),
        ("os.kill(os.getpid(), signal.SIGSEGV)", 139, "killed by SIGSEGV\n"),
    ],
)
async def test_the_end_is_told(tmp_path: Path, last_line: str, code: int, told: str | None) -> None:
    lines = f"import os, signal\nx = 1\n{last_line}\n"
    async with debugging(tmp_path, lines, DapSession()) as rig:
        await rig.client.attach({str(rig.script): [2]})
        thread, _ = await rig.client.stopped()
        await rig.client.request("continue", threadId=thread)
        await rig.tell_end()
        exited = await rig.client.wait_event("exited")
        await rig.client.wait_event("terminated")
        assert exited == {"exitCode": code}
        texts = [
            event["body"]["output"]
            for event in rig.client.events
            if event["event"] == "output" and event["body"].get("category") == "important"
        ]
        assert texts == ([told] if told else [])
        look_again(rig.heard)


async def test_a_flood_is_capped_and_its_end_is_there_at_the_stop(tmp_path: Path) -> None:
    code = "for i in range(1_000): print('x' * 1000, i)\nx = 2\n"
    # A debuggee on a busy machine writes slowly: a rate that it still exceeds.
    limits = OutputLimits(rate_bytes_s=16 * 1024)
    async with debugging(tmp_path, code, DapSession(limits=limits)) as rig:
        started_s = time.monotonic()
        await rig.client.attach({str(rig.script): [2]}, redirectOutput=True)
        await rig.client.wait_event("stopped", timeout_s=120.0)
        took_s = time.monotonic() - started_s
        shown = [event["body"] for event in rig.client.events if event["event"] == "output"]
        text = "".join(one["output"] for one in shown if one["category"] == "stdout")
        assert text.startswith(f"{'x' * 1000} 0\n{'x' * 1000} 1\n")
        assert text.endswith(f"{'x' * 1000} 998\n{'x' * 1000} 999\n")
        assert text.count("\n") + rig.view.output.left_out_lines == 1_000
        assert rig.view.output.left_out_lines > 100
        given = sum(len(json.dumps(event)) for event in rig.client.events)
        assert given < 64 * 1024 + (took_s + 1) * 16 * 1024 + 64 * 1024
        look_again(rig.heard)
        rig.tell(rig.view.give_up())


async def test_a_breakpoint_in_a_file_that_differs(tmp_path: Path) -> None:
    view = DapSession(MappedRoots(str(tmp_path), str(tmp_path)))
    async with debugging(tmp_path, "x = 1\ny = 2\n", view) as rig:
        attaching = asyncio.create_task(rig.client.attach({str(rig.script): [2]}))
        async with asyncio.timeout(PATIENCE_S):
            while not (checks := view.take_checks()):
                await asyncio.sleep(0.01)
            assert [check.path for check in checks] == [str(rig.script)]
            rig.tell(view.same(checks[0].seq))
            await attaching
        thread, frame_ = await rig.client.stopped()
        assert frame_["line"] == 2
        asking = asyncio.create_task(
            rig.client.request(
                "setBreakpoints",
                source={"path": str(rig.script)},
                breakpoints=[{"line": 1}, {"line": 2}],
            )
        )
        # The response is held, and nothing else is.
        assert await rig.client.evaluate("x", frame_) == "1"
        assert not asking.done()
        (check,) = view.take_checks()
        rig.tell(view.differs(check.seq, "script.py differs on the node"))
        answer = await asyncio.wait_for(asking, PATIENCE_S)
        assert [(one["verified"], one["message"]) for one in answer["breakpoints"]] == [
            (False, "script.py differs on the node")
        ] * 2
        await rig.client.request("continue", threadId=thread)
        await rig.tell_end()
        await rig.client.wait_event("terminated")


async def test_the_mirror_knows_where_the_files_are(tmp_path: Path) -> None:
    """A wrong mapping of the editor, and the breakpoint is hit all the same."""
    local = tmp_path / "laptop"
    view = DapSession(MappedRoots(str(local), str(tmp_path)))
    async with debugging(tmp_path, "x = 1\ny = 2\n", view) as rig:
        wrong: list[dict[str, Any]] = [{"localRoot": str(local), "remoteRoot": "/nowhere"}]
        attaching = asyncio.create_task(
            rig.client.attach({str(local / "script.py"): [2]}, path_mappings=wrong)
        )
        async with asyncio.timeout(PATIENCE_S):
            while not (checks := view.take_checks()):
                await asyncio.sleep(0.01)
            rig.tell(view.overdue(checks[0].seq))
            await attaching
        thread, frame_ = await rig.client.stopped()
        assert (frame_["line"], frame_["source"]["path"]) == (2, str(local / "script.py"))
        told = await rig.client.wait_event("output", lambda body: body["category"] == "console")
        assert f"{local} -> {tmp_path}" in told["output"]
        await rig.client.request("continue", threadId=thread)
        await rig.tell_end()
        await rig.client.wait_event("terminated")


async def test_child_sessions_look_as_debugpy_makes_them(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)\n"
        "child.communicate(b'\\n')\n"
    )
    async with debugging(tmp_path, code, DapSession(MappedRoots("/here", "/there"))) as rig:
        await rig.client.attach({}, name="tk: attach", preLaunchTask="tk: ready")
        theirs = await rig.client.wait_event("debugpyAttach")
        (child,) = rig.view.facts.children
        assert child == Child(theirs["subProcessId"], theirs["name"])
        # It waits for a session of its own, which here never comes.
        os.kill(child.pid, signal.SIGKILL)
        configuration = rig.view.child_configuration(child.name, subProcessId=child.pid)
        rig.tell([rig.view.start_child(configuration)])
        assert await rig.client.wait_event("debugpyAttach") == theirs
        assert theirs["pathMappings"] == [{"localRoot": "/here", "remoteRoot": "/there"}]
        rig.tell(rig.view.give_up())
