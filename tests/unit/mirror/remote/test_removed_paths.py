"""A path counts as removed only if that is known, asked by the real scripts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support.shell_host import ShellHost, failing_stat
from tunnelkit.mirror.remote.scripts import RootGone, removed_paths

NAMES = ("here", "-n", "odd\n: No such file or directory", "dir/x", os.fsdecode(b"\xff"))


def make(root: Path) -> None:
    (root / "dir").mkdir(parents=True)
    for name in NAMES:
        (root / name).write_text("x")
    (root / "dangling").symlink_to("nowhere")


async def test_what_is_not_there_is_named_exactly(tmp_path: Path) -> None:
    make(tmp_path / "root")
    missing = {"a", "-x", "lost\nname\n", "here/below", "dir/y", "out/1", "out/2", "out/sub/3"}
    missing |= {os.fsdecode(b"\xfe"), "dangling/x"}
    asked = [*NAMES, "dangling", *missing]
    assert await removed_paths(ShellHost(), str(tmp_path / "root"), asked) == missing
    assert await removed_paths(ShellHost(), str(tmp_path / "root"), NAMES) == set()


async def test_an_error_of_stat_proves_nothing(tmp_path: Path) -> None:
    make(tmp_path / "root")
    host = ShellHost(failing_stat(tmp_path / "bin", "sick"))
    asked = ["sick", "sick/below", "lost", "lost/below"]
    assert await removed_paths(host, str(tmp_path / "root"), asked) == {"lost", "lost/below"}


async def test_no_stat_is_there(tmp_path: Path) -> None:
    """A shell may say of the program itself that there is no such file."""
    make(tmp_path / "root")
    programs = tmp_path / "bin"
    programs.mkdir()
    said = "sh: line 1: /usr/bin/stat: No such file or directory"
    (programs / "stat").write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 127\n")
    (programs / "stat").chmod(0o755)
    asked = ["here", "lost"]
    assert await removed_paths(ShellHost(programs), str(tmp_path / "root"), asked) == set()


async def test_a_root_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(RootGone):
        await removed_paths(ShellHost(), str(tmp_path / "root"), ["x"])


@pytest.mark.skipif(shutil.which("busybox") is None, reason="busybox is needed")
async def test_by_the_words_of_busybox(tmp_path: Path) -> None:
    make(tmp_path / "root")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "stat").symlink_to(str(shutil.which("busybox")))
    assert "lost" in await removed_paths(ShellHost(programs), str(tmp_path / "root"), ["lost"])
