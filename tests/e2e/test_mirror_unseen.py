"""Changes that make no file event: the barrier sends them all the same."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from tests.support.mirror_rig import Rig, needs_rsync, until
from tunnelkit.mirror import push_worker
from tunnelkit.mount_points import kind_of

pytestmark = needs_rsync

MANY_FILES = 2_500


@pytest.fixture(params=["few", "many"])
def files(request: pytest.FixtureRequest, live_rig: Rig) -> Rig:
    """With few files lstat looks for changes, with many find(1)."""
    for number in range(MANY_FILES if request.param == "many" else 3):
        live_rig.write(f"pkg{number % 40}/m{number}.py", "pass\n")
    return live_rig


async def test_a_file_saved_by_its_other_name(files: Rig, tmp_path: Path) -> None:
    mine = files.write("settings.py", "V = 1\n")
    other = tmp_path / "elsewhere.py"
    mirror = await files.started()
    await mirror.barrier(20)
    # Linked after the mirror looked at it: nothing says that it has two names now.
    os.link(mine, other)
    for value in (2, 3):
        with other.open("w") as stream:
            stream.write(f"V = {value}\n")
        await mirror.barrier(20)
        assert (files.far / "settings.py").read_text() == f"V = {value}\n"


async def test_a_file_written_by_mmap(files: Rig) -> None:
    if kind_of(str(files.local)) == "tmpfs":
        pytest.skip("tmpfs does not move a mapped file's times; the next test stands for it")
    mine = files.write("table.bin", "1" * 4096)
    mirror = await files.started()
    await mirror.barrier(20)
    with mine.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as memory:
        memory[:4] = b"2222"
        memory.flush()
        await mirror.barrier(20)
        assert (files.far / "table.bin").read_bytes()[:5] == b"22221"


async def test_a_mapped_page_written_twice_is_found_by_its_content(
    live_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_worker, "_RESCAN_S", 0.3)
    mine = live_rig.write("table.bin", "1" * 4096)
    mirror = await live_rig.started()
    far = live_rig.far / "table.bin"
    with mine.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as memory:
        memory[:4] = b"2222"
        await until(lambda: far.read_bytes()[:4] == b"2222", "the first write")
        memory[:4] = b"3333"  # the page is dirty: the kernel is not asked for leave again
        await until(lambda: far.read_bytes()[:4] == b"3333", "the second write")
    await mirror.barrier(20)


async def test_without_find(files: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """BusyBox's knows no -newerct: it fails, and says nothing of any file."""
    mine = files.write("settings.py", "V = 1\n")
    os.link(mine, tmp_path / "elsewhere.py")
    mirror = await files.started()
    await mirror.barrier(20)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "find").write_text("#!/bin/sh\nexit 1\n")
    (programs / "find").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    (tmp_path / "elsewhere.py").write_text("V = 2\n")
    await mirror.barrier(20)
    assert (files.far / "settings.py").read_text() == "V = 2\n"
