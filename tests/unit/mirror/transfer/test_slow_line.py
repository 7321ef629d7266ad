"""A push over a slow line: it may take as long as it makes progress."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tunnelkit.errors import ConnectionFailed
from tunnelkit.mirror.transfer import rsync, tar
from tunnelkit.mirror.transfer.rsync import Rsync
from tunnelkit.mirror.transfer.tar import TarTransfer
from tunnelkit.remote_script import RemoteHost

_LIMIT_S = 2.0
_PACE_S = 0.3
#: They take over twice the limit.
_STEPS = 16
_STEP_BYTES = 64 << 10


class Far(RemoteHost):
    """A login host on which this script runs, whatever was asked for."""

    def __init__(self, script: str = "") -> None:
        self._script = script

    def destination(self) -> str:
        return "far"

    def remote_shell(self) -> list[str]:
        return ["sh", "-c", self._script, "sh"]


def _rsync_that(directory: Path, script: str) -> str:
    """A program that answers as rsync, and then runs this script."""
    program = directory / "rsync"
    version = "echo 'rsync  version 3.2.7  protocol version 31'"
    program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec {version}\n{script}\n')
    program.chmod(0o755)
    return str(program)


def _slowly(step: str) -> str:
    """A script of as many steps as take longer than the limit."""
    return f"n=0; while [ $n -lt {_STEPS} ]; do {step}; sleep {_PACE_S}; n=$((n+1)); done"


async def _rsync(directory: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Rsync:
    monkeypatch.setattr(rsync, "_QUIET_S", _LIMIT_S)
    made = Rsync(Far(), str(directory), program=_rsync_that(directory, f"cat >/dev/null; {script}"))
    assert await made.defect() is None
    return made


async def test_an_rsync_that_goes_on_is_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[bytes] = []
    slow = await _rsync(tmp_path, monkeypatch, _slowly("printf ' 32768 1%% 0.1MB/s 0:01:00\\r'"))
    done = await slow.push(["a"], "/far", size_bytes=0, on_output=heard.append)
    assert done.exit_code == 0 and b"".join(heard).count(b"\r") == _STEPS
    # A push whose progress nobody shows has no other limit.
    assert (await slow.push(["a"], "/far", size_bytes=0)).exit_code == 0


async def test_an_rsync_that_stands_still_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    still = await _rsync(tmp_path, monkeypatch, "printf '1 1%%\\r'; exec sleep 60")
    begin = asyncio.get_running_loop().time()
    with pytest.raises(ConnectionFailed, match=r"took over \d+ s"):
        await still.push(["a"], "/far", size_bytes=0)
    assert asyncio.get_running_loop().time() - begin < 30


@pytest.mark.parametrize("goes_on", [True, False])
async def test_a_tar_stream_has_the_same_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    monkeypatch.setattr(tar, "_budget_s", lambda size_bytes, paths: _LIMIT_S)
    (tmp_path / "a").write_bytes(bytes(_STEPS * _STEP_BYTES))
    # What shows only that the far end is alive is no progress.
    reads = f"head -c {_STEP_BYTES} >/dev/null" if goes_on else "printf ."
    far = Far(f"{_slowly(reads)}; exec cat >/dev/null")
    transfer = TarTransfer(far, str(tmp_path), far_tar="tar (GNU tar) 1.34")
    pushing = transfer.push(["a"], "/far", size_bytes=0)
    if goes_on:
        assert (await pushing).exit_code == 0
    else:
        with pytest.raises(ConnectionFailed) as caught:
            await pushing
        assert "it took over" in caught.value.one_line()
