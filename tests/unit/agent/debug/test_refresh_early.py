"""`tk ready` while the fork server still imports."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tests.unit.agent.loop_rig import DEADLINE_S, loop_rig


async def test_asking_while_modules_are_imported_neither_waits_nor_takes_an_answer(
    tmp_path: Path,
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    (tmp_path / "slow.py").write_text(f"open({str(gate)!r}).read()\nvalue = 1\n")
    (tmp_path / "main.py").write_text("import slow\nprint('value', slow.value)\n")
    async with loop_rig(tmp_path, preload=["slow"]) as rig, asyncio.timeout(DEADLINE_S):
        # Opens once the import reads at the other end.
        with await asyncio.to_thread(gate.open, "w"):
            assert await rig.loop.refresh() == []
        await rig.event("fork-server")
        stop = await rig.f5(1, 2)
        assert await stop.evaluate("slow.value") == "1"
        await stop.finish()
