"""The demo's editor: what VS Code does at F5, by the Debug Adapter Protocol."""

from __future__ import annotations

import ast
import asyncio
from dataclasses import dataclass
from pathlib import Path

from tunnelkit.demo.dap_client import DapClient, Message
from tunnelkit.errors import DebugError

_STOP_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Stop:
    """The place where the program stands; `path` is the laptop's, `text` the source line there."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path.name}:{self.line}"


class DemoEditor:
    """One debug session of a file. `attach`, then look and step, then `close`."""

    def __init__(self, program: Path, remote_root: str, port: int) -> None:
        self._program = program
        self._remote_root = remote_root
        self._port = port
        self._client = DapClient("the demo's editor")
        self._thread = 0
        self._frame: Message = {}

    async def attach(self, line: int) -> Stop:
        """F5 with a breakpoint; returns once the program stopped there. Raises DebugError."""
        try:
            await self._client.connect(self._port)
        except OSError as error:
            raise DebugError(
                f"F5 was refused at 127.0.0.1:{self._port}", cause=error.strerror
            ) from None
        mapping = {"localRoot": str(self._program.parent), "remoteRoot": self._remote_root}
        await self._client.attach({str(self._program): [line]}, path_mappings=[mapping])
        return await self._stopped()

    async def next(self) -> Stop:
        """Step over (F10)."""
        async with asyncio.timeout(_STOP_TIMEOUT_S):
            await self._client.request("next", threadId=self._thread)
        return await self._stopped()

    async def run_to_end(self) -> None:
        """Take the breakpoint away and continue (F5) until the program has ended."""
        async with asyncio.timeout(_STOP_TIMEOUT_S):
            await self._client.request(
                "setBreakpoints", source={"path": str(self._program)}, breakpoints=[]
            )
        await self._client.finish(self._thread)

    async def text(self, expression: str) -> str:
        """An expression's value where the program stands, as str() shows it there."""
        async with asyncio.timeout(_STOP_TIMEOUT_S):
            shown = await self._client.evaluate(f"str({expression})", self._frame)
        try:
            return str(ast.literal_eval(shown))
        except (SyntaxError, ValueError):
            raise DebugError(f"{expression} can't be evaluated there", cause=shown) from None

    async def variable(self, name: str) -> str | None:
        """An environment variable of the program; None if it has none of that name."""
        return await self.text(f"os.environ.get({name!r}, '')") or None

    async def close(self) -> None:
        """Stop debugging (Shift+F5)."""
        await self._client.close()

    async def _stopped(self) -> Stop:
        self._thread, self._frame = await self._client.stopped(_STOP_TIMEOUT_S)
        path, line = Path(self._frame["source"]["path"]), int(self._frame["line"])
        if path != self._program:
            raise DebugError(
                f"the program stopped in {path}, not in {self._program}",
                hint="path mappings are wrong",
            )
        return Stop(path, line, line_of(path, line))


def line_of(path: Path, number: int) -> str:
    """A line of a file, without the space around it."""
    return path.read_text().splitlines()[number - 1].strip()


def find_line(path: Path, text: str) -> int:
    """The number of the first line that holds `text`."""
    lines = path.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)
