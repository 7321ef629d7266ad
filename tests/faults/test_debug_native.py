"""Pause while the program is in native code: nobody can stop it there, so say so and what helps."""

from __future__ import annotations

import asyncio
import platform
import time
from pathlib import Path

import pytest

from tests.support.editors import said
from tests.support.tkrig import PATIENCE_S, Project, eventually, line_of

#: How the program is kept: in a system call that lets other threads run, or in C code that
#: does not (the debugger's own threads among them).
BLOCKED = {
    "a system call": "os.read(read, 1)",
    "C that holds the GIL": "ctypes.PyDLL(None).read(read, ctypes.create_string_buffer(1), 1)",
}
SOURCE = """\
import ctypes, os
os.mkfifo("valve")
pid = os.getpid()
read = os.open("valve", os.O_RDWR)
print("here")
{blocked}
os.unlink("valve")
for step in range(10_000_000):
    total = step
"""


@pytest.mark.parametrize("how", BLOCKED)
async def test_a_pause_that_can_not_be_is_told_with_what_helps(project: Project, how: str) -> None:
    source = SOURCE.format(blocked=BLOCKED[how])
    project.write("native.py", source)
    await project.up("node1", "--cpus", "2")
    await project.loop("python", "native.py")
    stop = line_of(source, 'print("here")')
    editor, thread, frame = await project.f5_to_stop(stop, file="native.py")
    pid = int(await editor.evaluate("pid", frame))
    # Even the answer to this may wait until the GIL is free again.
    continuing = asyncio.create_task(editor.request("continue", threadId=thread))
    await _reads(pid)

    asked_s = time.monotonic()
    pausing = asyncio.create_task(editor.request("pause", threadId=thread))
    told = await editor.wait_event(
        "output", lambda body: "native code" in body["output"], timeout_s=PATIENCE_S
    )
    assert 2.5 < time.monotonic() - asked_s < 10
    assert told["category"] == "important"
    assert f"tk run py-spy dump --pid {pid}" in told["output"]
    assert not [one for one in editor.events if one["event"] == "stopped"]

    # Back in Python the pause is served, and nothing more is said.
    project.remote("valve").write_bytes(b"x")
    await editor.wait_event("stopped", timeout_s=PATIENCE_S)
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(continuing, pausing)
    assert "native code" not in said(editor)


async def test_a_pause_in_python_is_not_talked_about(project: Project) -> None:
    source = "import time\nprint('here')\nwhile True:\n    time.sleep(0.01)\n"
    project.write("busy.py", source)
    await project.up("node1", "--cpus", "2")
    await project.loop("python", "busy.py")
    editor, thread, _ = await project.f5_to_stop(2, file="busy.py")
    await editor.request("continue", threadId=thread)
    await editor.request("pause", threadId=thread)
    event = await editor.wait_event("stopped")
    assert event["reason"] == "pause"
    # Some clients ask once more though it stands: no cause for alarm either.
    await editor.request("pause", threadId=thread)
    with pytest.raises(TimeoutError):
        await editor.wait_event("output", lambda body: "native" in body["output"], timeout_s=4)


async def _reads(pid: int) -> None:
    """Return once the program's main thread is in its read."""
    number = {"x86_64": "0", "aarch64": "63"}[platform.machine()]

    def reads() -> bool:
        return Path(f"/proc/{pid}/task/{pid}/syscall").read_text().split()[0] == number

    await eventually(reads, "the program is in its read")
