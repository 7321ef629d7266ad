import asyncio, sys
import pytest
from tests.support.tkrig import Project
from tests.e2e.test_post_mortem import WAITS, plain_attach
@pytest.mark.parametrize("pause", [0.0, 2.0])
async def test_again(project: Project, pause) -> None:
    project.configure('on_disconnect = "continue"\n')
    project.env["DEBUGPY_LOG_DIR"] = "/tmp/hf_dbg"
    await project.up("node1", "--cpus", "2")
    project.write("waits.py", WAITS)
    terminal = await project.loop("python", "waits.py")
    editor = await project.f5(file="waits.py")
    await terminal.line("begins")
    await (editor.close() if pause else editor.drop())
    await asyncio.sleep(pause)
    try:
        e2 = await project.f5(file="waits.py")
        print("OK", pause)
        await terminal.line("attached", timeout_s=3)
    finally:
        await asyncio.sleep(1)
        print(terminal.text)
    assert "adapter died" not in terminal.text
