"""Where ssh writes its own words: it reads them, and no ssh waits for one that was killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tunnelkit import child_process
from tunnelkit.child_process import LogPipe, own_fds

_NOBODY = ["-v", "-F", "none", "-o", "BatchMode=yes", "-p", "1", "--", "127.0.0.1", "true"]
_ENTER = """\
import asyncio, sys
from pathlib import Path
from tunnelkit.child_process import LogPipe
async def main():
    with LogPipe(Path(sys.argv[1])) as log:
        print(log.path, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.mark.parametrize("named", [True, False])
async def test_what_ssh_says_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    if named and own_fds() is None:
        pytest.skip("there is no /proc here")
    if not named:
        monkeypatch.setattr(child_process, "own_fds", lambda: None)
    with LogPipe(tmp_path) as log:
        argv = ["ssh", "-E", str(log.path), *_NOBODY]
        ssh = await asyncio.create_subprocess_exec(*argv, stdin=subprocess.DEVNULL)
        async with asyncio.timeout(20):
            await log.lines.wait_for("port 1")
            assert await ssh.wait() == 255
    assert "Connecting to 127.0.0.1" in log.lines.text()
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(own_fds() is None, reason="there is no /proc here")
def test_an_ssh_that_comes_after_a_kill_ends_at_once(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", _ENTER, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as session:
        assert session.stdout is not None
        path = session.stdout.readline().strip()
        session.kill()
    late = subprocess.run(
        ["ssh", "-E", path, *_NOBODY], stdin=subprocess.DEVNULL, timeout=20, check=False
    )
    assert late.returncode
