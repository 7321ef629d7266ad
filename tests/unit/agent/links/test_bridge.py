"""`attach --wait`: for an agent that is just starting."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import pytest

from tunnelkit.agent.links import bridge, socket_dir
from tunnelkit.session.agent.routes import REACHED

_ATTACH = "import sys; from tunnelkit.agent.main import main; sys.exit(main(sys.argv[1:]))"


def test_both_sides_mean_the_same_words() -> None:
    assert bridge.REACHED == REACHED


async def test_an_agent_that_comes_late_is_reached_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    directory = Path(socket_dir.make_directory())
    name = f"tk-test-{os.getpid()}"
    words = ("-c", _ATTACH, "attach", name, "--wait")
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(sys.executable, *words, stdin=pipe, stdout=pipe)
    assert child.stdout is not None
    path = directory / f"{name}.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        try:
            listener.listen()
            listener.setblocking(False)
            loop = asyncio.get_running_loop()
            peer, _ = await asyncio.wait_for(loop.sock_accept(listener), 20)
            peer.setblocking(False)
            assert await asyncio.wait_for(child.stdout.readline(), 10) == REACHED
            assert await loop.sock_recv(peer, 1) == b"L"
            peer.close()
            assert await asyncio.wait_for(child.wait(), 10) == 0
        finally:
            path.unlink()


def test_one_that_never_comes_is_not_waited_for_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bridge, "_WAIT_S", 0.05)
    assert bridge.attach("tk-test-none", wait=True) == bridge.NO_AGENT
    assert "no agent tk-test-none" in capsys.readouterr().err
