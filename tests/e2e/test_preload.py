"""`tk loop --preload`: modules imported once for all runs, and what is told of it."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator

import pytest

from tests.support.tkrig import Project, line_of
from tunnelkit.errors import DebugError

HEAVY = "import os\nvalue = 'old'\nimported_by = os.getpid()\n"
MAIN = "import heavy\nprint(heavy.value)\n"
SLOW = "import time\ntime.sleep(2.2)\n"
TRAIN = """\
import os
import torch
weights = torch.nn.Linear(64, 64)
for step in range(3):
    loss = weights(torch.randn(256, 64)).square().mean()
    loss.backward()
total = float(loss)
print("loss is fine", total > 0, flush=True)
"""

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="no torch here: scripts/setup --torch"
)


@pytest.fixture
async def up(project: Project) -> AsyncIterator[Project]:
    project.write("heavy.py", HEAVY)
    project.write("2.py", MAIN)
    await project.up("node1", "--cpus", "2")
    yield project


async def test_a_preloaded_module_that_is_edited_is_fresh_at_the_next_f5(up: Project) -> None:
    terminal = await up.loop("--preload", "heavy", "python", "2.py", armed=False)
    await terminal.line("reading heavy once for all runs")
    await terminal.line(r"read heavy 0\.\d s \(\d+ MiB\): each F5 starts there")
    importers = set()
    for _ in range(2):
        await up.ready()
        editor, thread, frame = await up.f5_to_stop(2)
        importers.add(await editor.evaluate("heavy.imported_by", frame))
        assert await editor.evaluate("heavy.value", frame) == "'old'"
        await editor.finish(thread)
    assert len(importers) == 1
    up.write("heavy.py", HEAVY.replace("old", "new"))
    await up.ready()
    await terminal.line(r"heavy\.py has changed since it was imported: reading it again")
    await terminal.line("reading heavy once for all runs")
    editor, _, frame = await up.f5_to_stop(2)
    assert await editor.evaluate("heavy.value", frame) == "'new'"
    assert await editor.evaluate("heavy.imported_by", frame) not in importers
    # While that one runs, too: it is left alone.
    up.write("heavy.py", HEAVY.replace("old", "newer"))
    await up.ready()
    assert await editor.evaluate("heavy.value", frame) == "'new'"
    await editor.close()
    editor, _, frame = await up.f5_to_stop(2)
    assert await editor.evaluate("heavy.value", frame) == "'newer'"


async def test_a_program_that_is_kept_is_still_f5s_after_a_preloaded_file_has_changed(
    up: Project,
) -> None:
    """It is not restarted: F5 is on it again, and waits for nothing."""
    up.write("2.py", "import heavy\nword = heavy.value\n1 / 0\n")
    await up.tk("sync")
    loop = ("--post-mortem", "--preload", "heavy", "python", "2.py")
    terminal = await up.loop(*loop, armed=False)
    await terminal.line("armed")
    editor, *_ = await up.f5_to_stop(2)
    await editor.close()
    await terminal.line("kept at ZeroDivisionError")
    up.write("heavy.py", HEAVY.replace("old", "new"))
    assert (await up.ready())["generation"] == 1
    editor = await up.f5()
    _, frame = await editor.stopped()
    assert await editor.evaluate("word", frame) == "'old'"
    await editor.close()


async def test_a_module_that_is_not_there_is_named_in_one_line(up: Project) -> None:
    terminal = await up.loop("--preload", "heavy,not_there", "python", "2.py", armed=False)
    what = "--preload not_there: ModuleNotFoundError: No module named 'not_there'"
    await terminal.line(f"run 1 · ended: {what}")
    await terminal.line("next try in")
    failed = await up.tk("ready", "--sync", code=int(DebugError.exit_code))
    # It may have waited for long enough to say so.
    lines = [line for line in failed.err.splitlines() if not line.startswith("waiting for")]
    assert len(lines) == 1 and what in lines[0]
    editor = await up.editor()
    with pytest.raises(DebugError, match=what):
        await editor.attach({})
    up.write("not_there.py", "")
    await up.ready()
    editor, *_ = await up.f5_to_stop(2)
    await editor.close()


async def test_one_that_starts_threads_is_told_and_f5_works_without(up: Project) -> None:
    up.write(
        "heavy.py",
        HEAVY + "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(1000,), name='pump', daemon=True).start()\n",
    )
    await up.tk("sync")
    terminal = await up.loop("--preload", "heavy", "python", "2.py", armed=False)
    await terminal.line(
        r"no run stands by: an import has started a thread \(pump\); each run imports for itself"
    )
    await terminal.line("armed")
    for _ in range(2):
        editor, _, frame = await up.f5_to_stop(2)
        own = await editor.evaluate("heavy.os.getpid()", frame)
        assert await editor.evaluate("heavy.imported_by", frame) == own
        await editor.close()


async def test_slow_imports_lead_to_advice_once(up: Project) -> None:
    """The slow one is a library's; the project's own modules are none to be preloaded."""
    up.write("site-packages/slow.py", SLOW)
    up.write("2.py", "import ours\nprint('through')\n")
    up.write("ours.py", "import sys\nsys.path.append('site-packages')\nimport slow\n")
    await up.tk("sync")
    terminal = await up.loop("python", "2.py")
    for number in (1, 2):
        editor, thread, _ = await up.f5_to_stop(2)
        await editor.finish(thread)
        await terminal.line(rf"run {number} · ended")
    advice = [line for line in terminal.lines if "imports took" in line]
    assert len(advice) == 1
    assert "s (slow 2." in advice[0] and "tk loop --preload slow makes" in advice[0]


@needs_torch
async def test_torch_works_in_what_is_forked(up: Project) -> None:
    up.write("2.py", TRAIN)
    await up.tk("sync")
    terminal = await up.loop("--preload", "torch", "python", "2.py", armed=False)
    await terminal.line(r"read torch \d+\.\d s \(\d+ MiB\)")
    for _ in range(3):
        editor, thread, _ = await up.f5_to_stop(line_of(TRAIN, "total ="))
        await editor.finish(thread)
        await terminal.line("loss is fine True")
    assert not any("no run stands by" in line for line in terminal.lines)
