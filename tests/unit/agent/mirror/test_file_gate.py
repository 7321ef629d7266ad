"""The gate: no run begins while a batch is being published."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.unit.agent.loop_rig import loop_rig
from tests.unit.agent.relay_rig import process_table
from tests.unit.mux.rig import soon, until
from tunnelkit.agent.debug.restart_loop import RestartLoop
from tunnelkit.agent.mirror.file_thread import FileGate


async def test_waiting_at_the_gate() -> None:
    gate = FileGate()
    await soon(gate.wait_open())
    with gate:
        with gate:
            waiting = [asyncio.create_task(gate.wait_open()) for _ in range(3)]
            waiting[0].cancel()
        await asyncio.wait(waiting[:1])
        assert not any(one.done() for one in waiting[1:])
    await soon(asyncio.gather(*waiting[1:]))
    assert gate.is_open


@asynccontextmanager
async def running(
    directory: Path, gate: FileGate
) -> AsyncIterator[tuple[RestartLoop, asyncio.Task[None]]]:
    spec = {"argv": [sys.executable, "main.py"], "cwd": str(directory), "grace_s": 1.0}
    async with process_table() as table:
        loop = RestartLoop(1, spec, table, lambda *told: None, None, gate)
        task = asyncio.create_task(loop.run())
        try:
            yield loop, task
        finally:
            loop.stop()
            await soon(task)


async def test_no_run_begins_while_the_gate_is_closed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    program = (
        f"import time; print({{!r}}, file=open({str(out)!r}, 'a'), flush=True); time.sleep(99)"
    )
    gate = FileGate()
    gate.__enter__()
    (tmp_path / "main.py").write_text(program.format("half"))
    async with running(tmp_path, gate) as (loop, _):
        await until(lambda: bool(gate._waiting))
        assert loop.state == "new"
        (tmp_path / "main.py").write_text(program.format("whole"))
        gate.__exit__()
        await until(lambda: out.exists() and out.read_text().endswith("\n"))
    assert out.read_text() == "whole\n"


async def test_a_loop_that_waits_at_the_gate_can_be_stopped(tmp_path: Path) -> None:
    gate = FileGate()
    with gate:
        async with running(tmp_path, gate) as (loop, task):
            await until(lambda: bool(gate._waiting))
            loop.stop()
            await soon(task)
            assert loop.state == "stopped"
        assert not gate._waiting


async def test_a_run_that_stood_by_gets_no_go_while_the_gate_is_closed(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("x = 1\n")
    gate = FileGate()
    async with loop_rig(tmp_path) as rig:
        rig.loop._gate = gate
        stop = await rig.f5(1)
        await rig.event("standby")
        with gate:
            await stop.finish()
            await until(lambda: bool(gate._waiting))
            (tmp_path / "main.py").write_text("x = 2\n")
        stop = await rig.f5(2)
        await stop.finish()
