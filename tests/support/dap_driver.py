"""An editor in another network: DapClient run as a process of its own, driven by lines of JSON.

Run as a script it reads {"do": name, ...} from stdin and answers each with one line:
{"answer": ...} or {"error": text}.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tunnelkit.demo.dap_client import DapClient, Message


class FarEditor:
    """The test's side. `enter` is the argv prefix that runs a program in the other network."""

    def __init__(self, enter: Sequence[str]) -> None:
        self._enter = enter
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> FarEditor:
        root = Path(__file__).parents[2]
        self._process = await asyncio.create_subprocess_exec(
            *(*self._enter, sys.executable, "-m", "tests.support.dap_driver"),
            cwd=root,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def do(self, what: str, timeout_s: float = 120.0, **params: Any) -> Any:
        """One step: f5, next, evaluate, finish."""
        assert self._process is not None
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": what, **params}).encode() + b"\n")
        async with asyncio.timeout(timeout_s):
            line = await self._process.stdout.readline()
        reply = json.loads(line)
        assert "error" not in reply, f"{what}: {reply['error']}"
        return reply["answer"]


class _Steps:
    """The far side: one editor, one stopped thread."""

    def __init__(self) -> None:
        self._client = DapClient("a far editor")
        self._thread = 0
        self._frame: Message = {}

    async def f5(self, port: int, path: str, line: int, mappings: list[dict[str, str]]) -> int:
        self._client = DapClient("a far editor")
        await self._client.connect(port)
        await self._client.attach({path: [line]}, path_mappings=mappings, timeout_s=90.0)
        return await self._stopped()

    async def next(self) -> int:
        await self._client.request("next", threadId=self._thread)
        return await self._stopped()

    async def evaluate(self, expression: str) -> str:
        return await self._client.evaluate(expression, self._frame)

    async def finish(self) -> None:
        await self._client.request("setBreakpoints", source=self._frame["source"], breakpoints=[])
        await self._client.finish(self._thread, 90.0)

    async def _stopped(self) -> int:
        self._thread, self._frame = await self._client.stopped(90.0)
        return int(self._frame["line"])


async def _main() -> None:
    steps = _Steps()
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        try:
            answer = await getattr(steps, order.pop("do"))(**order)
            reply: dict[str, Any] = {"answer": answer}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    asyncio.run(_main())
