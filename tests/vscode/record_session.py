"""Records a session of VS Code: `python -m tests.vscode.record_session FILE`, beside scripts/setup.

FILE has a line of JSON for each message: `from` (editor or adapter) and `message`. The project's
directory and the node's are written as $LOCAL and $REMOTE. tests/e2e/test_recorded_vscode.py
replays tests/support/data/vscode-session.jsonl, which was made so.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab_fixtures import running_lab
from tests.support.recorded_session import PROGRAM, STOP
from tests.support.tkrig import Project, eventually, project_on
from tests.vscode.server import find_parts, serving
from tests.vscode.window import Window, window
from tunnelkit.mux.dap_framing import DapReader
from tunnelkit.mux.tasks import cancel_all


@dataclass
class Recorder:
    """Stands between VS Code and the session's port."""

    messages: list[tuple[str, dict[str, object]]] = field(default_factory=list)

    @asynccontextmanager
    async def listening(self, port: int) -> AsyncIterator[int]:
        """Carry connections to a port; the port to connect to."""
        carried: set[asyncio.Task[None]] = set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
            for task in (
                asyncio.create_task(self._carry("editor", reader, up_writer)),
                asyncio.create_task(self._carry("adapter", up_reader, writer)),
            ):
                carried.add(task)

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            await cancel_all(*carried)

    async def _carry(
        self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        frames = DapReader()
        try:
            while data := await reader.read(65536):
                # Written down before the other side can answer it.
                self.messages += [(name, json.loads(body)) for body in frames.feed(data)]
                writer.write(data)
        finally:
            writer.close()

    def has(self, name: str, command: str, count: int = 1) -> bool:
        """True if so many of these requests, or events, have come."""
        found = [
            one
            for who, one in self.messages
            if who == name and command in (one.get("command"), one.get("event"))
        ]
        return len(found) >= count

    def lines(self, project: Project) -> str:
        """The file."""
        text = "".join(
            json.dumps({"from": name, "message": message}, ensure_ascii=False) + "\n"
            for name, message in self.messages
        )
        # The node's directory ends with the project's name, and so does the laptop's.
        text = text.replace(str(project.remote()).rstrip("/"), "$REMOTE")
        return text.replace(str(project.dir), "$LOCAL").replace(project.dir.name, "$NAME")


async def _session(shown: Window, recorder: Recorder) -> None:
    """Debug by hand: two stops, a step, a line in the debug console, Stop."""
    await shown.open_file("main.py")
    await shown.click_breakpoint(STOP)
    await shown.f5()
    assert await shown.stopped_line() == STOP
    await shown.shows_variable("number", "0")
    await shown.page.keyboard.press("Control+Shift+Y")
    await shown.page.locator(".repl .repl-input-wrapper .monaco-editor").click()
    await shown.page.keyboard.type("number + 40")
    await shown.page.keyboard.press("Enter")
    await eventually(lambda: recorder.has("adapter", "evaluate"), "the answer")
    await shown.step_over()
    await eventually(lambda: recorder.has("adapter", "stopped", 2), "the step")
    await shown.shows_variable("doubled", "0")
    await shown.f5()
    await eventually(lambda: recorder.has("adapter", "stopped", 3), "the second stop")
    await shown.shows_variable("number", "1")
    await shown.shift_f5()
    await shown.session_over()


async def _record(project: Project, file: Path) -> None:
    parts = find_parts()
    if isinstance(parts, str):
        sys.exit(parts)
    recorder = Recorder()
    project.write("main.py", PROGRAM)
    await project.up("node1")
    await project.tk("vscode")
    await project.loop("python", "main.py")
    async with recorder.listening(project.port) as port:
        launch = project.dir / ".vscode" / "launch.json"
        launch.write_text(launch.read_text().replace(str(project.port), str(port)))
        with tempfile.TemporaryDirectory() as pictures:
            async with (
                serving(parts, project.env) as server,
                window(parts, server, project.dir, Path(pictures)) as shown,
            ):
                await _session(shown, recorder)
        file.write_text(recorder.lines(project).replace(f'"port": {port}', '"port": 0'))


async def _main(file: Path) -> None:
    with running_lab() as lab:
        async with project_on(lab) as project:
            await _record(project, file)


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
