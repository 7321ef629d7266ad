"""rsync compares nanoseconds only where the laptop's file system can hold them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tunnelkit.mirror.transfer.base import FetchRule
from tunnelkit.mirror.transfer.rsync import Rsync
from tunnelkit.remote_script import RemoteHost

OPTION = "--modify-window=-1"


class Far(RemoteHost):
    def destination(self) -> str:
        return "far"

    def remote_shell(self) -> list[str]:
        return ["false"]


async def options(tmp_path: Path) -> list[str]:
    """Returns the options of a fetch by an rsync 3.2."""
    program, said = tmp_path / "rsync", tmp_path / "said"
    program.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && exec echo "rsync  version 3.2.7  protocol version 31"\n'
        f"printf '%s\\n' \"$@\" > '{said}'\n"
    )
    program.chmod(0o755)
    local = tmp_path / "local"
    local.mkdir()
    rsync = Rsync(Far(), str(local), program=str(program))
    assert await rsync.defect() is None
    await rsync.fetch(["x"], "/far", rule=FetchRule(newer_stays=True), size_bytes=1)
    assert list(local.iterdir()) == []
    return said.read_text().splitlines()


async def test_where_nanoseconds_stay(tmp_path: Path) -> None:
    assert OPTION in await options(tmp_path)


@pytest.mark.parametrize("tick_ns", [100, 1_000_000_000, 2_000_000_000])
async def test_where_times_are_rounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tick_ns: int
) -> None:
    utime = os.utime

    def rounded(path: Any, *args: Any, ns: tuple[int, int], **more: Any) -> None:
        at_ns, mtime_ns = (value // tick_ns * tick_ns for value in ns)
        utime(path, *args, ns=(at_ns, mtime_ns), **more)

    monkeypatch.setattr(os, "utime", rounded)
    assert OPTION not in await options(tmp_path)
