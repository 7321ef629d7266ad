"""A restart loop without its agent and session: the loop itself, and an editor for each of its
debuggees."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import processes
from tests.unit.agent.relay_rig import process_table
from tunnelkit.agent.debug.rank_support import DialedProcess
from tunnelkit.agent.debug.restart_loop import RestartLoop
from tunnelkit.agent.processes.peer_process import PeerProcess
from tunnelkit.agent.processes.table import ProcessTable
from tunnelkit.debug.adapter.adapter import Adapter, Adapters
from tunnelkit.debug.loop_command import loop_spec, understand
from tunnelkit.demo.dap_client import DapClient, Message
from tunnelkit.mux.loop_records import EVENT, STDERR, STDOUT, LoopRecord
from tunnelkit.mux.tasks import cancel_all

DEADLINE_S = 60.0
Event = dict[str, Any]


@dataclass
class Stop:
    """An editor at a breakpoint of a debuggee."""

    editor: DapClient
    thread: int
    frame: Message
    identity: PeerProcess

    async def evaluate(self, expression: str) -> str:
        return await self.editor.evaluate(expression, self.frame)

    async def finish(self) -> None:
        """Let the program run to its end."""
        await self.editor.request("continue", threadId=self.thread)
        await self.editor.wait_event("terminated", timeout_s=DEADLINE_S)
        await self.editor.drop()


@dataclass
class LoopRig:
    """Use `loop_rig()`. events, out: all that the loop has told and its programs have written."""

    loop: RestartLoop
    table: ProcessTable
    directory: Path
    events: list[Event] = field(default_factory=list)
    out: bytes = b""
    come: dict[int, tuple[socket.socket, PeerProcess]] = field(default_factory=dict)
    _attached: set[int] = field(default_factory=set)
    _running: asyncio.Task[None] | None = None
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _adapters: list[Adapter] = field(default_factory=list)
    _makes: Adapters = field(default_factory=Adapters)
    _editors: list[DapClient] = field(default_factory=list)

    def begin(self) -> None:
        """Run the loop."""
        self._running = asyncio.create_task(self.loop.run())
        self._tasks.append(asyncio.create_task(self._read()))

    async def _read(self) -> None:
        async for record in self.loop.log.read(0):
            await self._take(record)

    async def _take(self, record: LoopRecord) -> None:
        if record.kind == EVENT:
            self.events.append(record.event())
        elif record.kind in (STDOUT, STDERR):
            self.out += record.payload
        await self._wake()

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def dialled(
        self, loop: RestartLoop, number: int, sock: socket.socket, who: DialedProcess
    ) -> None:
        self.come[number] = (sock, who.identity)
        self._tasks.append(asyncio.create_task(self._wake()))

    def attached(self, number: int) -> bool:
        """True once an editor has said its hello to that generation's debuggee."""
        return number in self._attached

    def told(self, name: str, **fields: Any) -> list[Event]:
        """The events of that name and with these fields, so far."""
        return [
            event
            for event in self.events
            if event["event"] == name and all(event.get(key) == fields[key] for key in fields)
        ]

    async def event(self, name: str, **fields: Any) -> Event:
        """The first event of that name and with these fields, as soon as there is one."""
        await self.until(lambda: self.told(name, **fields), f"{name} {fields}")
        return self.told(name, **fields)[0]

    async def output(self, text: str) -> None:
        """Wait until that has been written."""
        await self.until(lambda: text.encode() in self.out, f"output {text!r}")

    async def until(self, condition: Any, what: str) -> None:
        try:
            async with asyncio.timeout(DEADLINE_S), self._changed:
                await self._changed.wait_for(condition)
        except TimeoutError:
            raise AssertionError(f"no {what}:\n{self.events}\n{self.out.decode()}") from None

    async def f5(self, number: int, line: int = 1, file: str = "main.py") -> Stop:
        """An editor on that generation's debuggee, stopped at a line; it need not be its turn
        yet."""
        editor = await self.go(number, {str(self.directory / file): [line]})
        thread, frame = await editor.stopped(DEADLINE_S)
        return Stop(editor, thread, frame, self.come[number][1])

    async def go(self, number: int, breakpoints: dict[str, list[int]] | None = None) -> DapClient:
        """An editor on that generation's debuggee, which runs."""
        await self.until(lambda: number in self.come, f"debuggee {number}")
        sock, _ = self.come[number]
        adapter = await self._makes.start()
        self._adapters.append(adapter)
        debuggee = await asyncio.open_connection(sock=sock)
        server = await asyncio.open_connection("127.0.0.1", adapter.server_port)
        for ends in ((debuggee[0], server[1]), (server[0], debuggee[1])):
            self._tasks.append(asyncio.create_task(_pump(*ends)))
        editor = DapClient()
        self._editors.append(editor)
        await editor.connect(adapter.client_port)
        attaching = asyncio.create_task(editor.attach(breakpoints or {}, timeout_s=DEADLINE_S))
        self.loop.attached(number, "a test")
        self._attached.add(number)
        await attaching
        return editor

    async def run_through(self, number: int) -> None:
        """F5 and go on to the end."""
        stop = await self.f5(number)
        await stop.finish()
        await self.event("ended", generation=number)

    async def stop(self) -> None:
        """End the loop; nothing of it is left."""
        self.loop.stop()
        assert self._running is not None
        async with asyncio.timeout(DEADLINE_S):
            await self._running

    def processes(self) -> list[int]:
        """Live processes of this loop's table, fork servers included."""
        tags = f"TK_PROCESS={os.getpid()}."
        return [
            one.pid
            for one in processes.look().values()
            if any(word.startswith(tags) for word in one.environ)
        ]

    async def close(self) -> None:
        if self._running is not None:
            await self.stop()
        for editor in self._editors:
            await editor.drop()
        await cancel_all(*self._tasks)
        for adapter in self._adapters:
            adapter.close()
        await self._makes.close()
        for sock, _ in self.come.values():
            with contextlib.suppress(OSError):
                sock.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


_ids = itertools.count(1)


@asynccontextmanager
async def loop_rig(
    directory: Path,
    *target: str,
    python: Sequence[str] = (sys.executable,),
    env: dict[str, str] | None = None,
    together: bool = False,
    **options: Any,
) -> AsyncIterator[LoopRig]:
    """`tk loop [--preload ...] PYTHON TARGET` in a directory, running.

    together: it has a part on another node."""
    words = [*python, *(target or ("main.py",))]
    if not Path(words[0]).name.startswith("python"):
        raise ValueError(words[0])
    command = understand(words)
    spec = loop_spec(command, cwd=str(directory), editor_port=0, **options)
    spec["env"] = {**spec["env"], "OMP_NUM_THREADS": "1", **(env or {})}
    spec["grace_s"] = 1.0
    if together:
        spec["together"] = {"name": "both", "nodes": 2}
    async with process_table() as table:
        rigs: list[LoopRig] = []
        loop = RestartLoop(next(_ids), spec, table, lambda *told: rigs[0].dialled(*told))
        rig = LoopRig(loop, table, directory)
        rigs.append(rig)
        rig.begin()
        try:
            yield rig
        finally:
            await rig.close()
