"""Faults of files: what happens to them while they are looked at, sent, or have arrived.

The table of all faults of the mirror is in test_mirror_table.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.mirror_rig import Rig, needs_rsync, until
from tunnelkit.errors import MirrorError, TimeoutExpired
from tunnelkit.mirror.api import MirrorState, PassRecord
from tunnelkit.mirror.passes.syncer import Syncer
from tunnelkit.mirror.watch.coalescer import EventCoalescer

pytestmark = needs_rsync

_NESTED = """\
import os, sys
top = sys.argv[1]
for tree in range(6):
    base = os.path.join(top, f"t{tree}", "a", "b", "c", "d")
    os.makedirs(base)
    for number in range(40):
        for directory in (base, os.path.dirname(base), os.path.join(top, f"t{tree}")):
            with open(os.path.join(directory, f"{number}.py"), "w") as stream:
                stream.write(f"{tree} {number}")
"""
_READER = """\
import os, sys, time
file, prefix = sys.argv[1:]
print("looking", flush=True)
seen = []
while os.path.exists(prefix + ".look"):
    try:
        with open(file) as stream:
            text = stream.read()
    except FileNotFoundError:
        text = "missing"
    if not seen or seen[-1] != text:
        seen.append(text)
        print(repr(text[:20]) + " " + str(len(text)), flush=True)
    time.sleep(0.0005)
"""


async def test_10_nested_directories_filled_at_once_all_arrive(rig: Rig) -> None:
    rig.write("main.py")
    mirror = await rig.started()
    done = await asyncio.create_subprocess_exec(sys.executable, "-c", _NESTED, str(rig.local))
    assert await done.wait() == 0
    every = 6 * 40 * 3 + 1
    await until(lambda: mirror.status().files == every, "every file, by events alone", 60)
    assert rig.equal()


# -- 11: save styles ---------------------------------------------------------------------------


def _vim(file: Path, text: str) -> None:
    backup = file.with_name(file.name + "~")
    file.rename(backup)
    file.write_text(text)
    backup.unlink()


def _over(file: Path, text: str) -> None:
    temporary = file.with_name(f".{file.name}.tmp")
    temporary.write_text(text)
    temporary.replace(file)


def _synced(file: Path, text: str) -> None:
    temporary = file.with_name(f"{file.name}.{random.randint(0, 10**6)}")
    with temporary.open("w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(file)


def _emacs(file: Path, text: str) -> None:
    lock = file.with_name(f".#{file.name}")
    lock.symlink_to("me@laptop.1234:1")
    shutil.copy2(file, file.with_name(file.name + "~"))
    file.write_text(text)
    lock.unlink()


def _in_place(file: Path, text: str) -> None:
    file.write_text(text)


_WHOLE = (_vim, _over, _synced)


@asynccontextmanager
async def _reader(file: Path, prefix: Path) -> AsyncIterator[list[str]]:
    """What a process on the cluster that reads the file all the time has seen: after the end."""
    look = prefix.with_name(prefix.name + ".look")
    look.touch()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _READER, str(file), str(prefix), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"looking\n"
    seen: list[str] = []
    try:
        yield seen
    finally:
        look.unlink()
        out, _ = await process.communicate()
        seen += out.decode().splitlines()


@pytest.mark.parametrize("save", [*_WHOLE, _emacs, _in_place], ids=lambda save: save.__name__[1:])
async def test_11_every_save_style_arrives_and_is_never_missing(
    rig: Rig, save: Callable[[Path, str], None]
) -> None:
    versions = [f"{number}" * 9000 for number in range(8)]
    file = rig.write("main.py", versions[0])
    await rig.started()
    async with _reader(rig.far / "main.py", rig.home / "reader") as seen:
        for text in versions[1:]:
            save(file, text)
            await until(lambda text=text: (rig.far / "main.py").read_text() == text, "the save")
    assert not [line for line in seen if "missing" in line], seen
    lengths = {line.rpartition(" ")[2] for line in seen}
    # An editor that writes in place shows an empty file here, too.
    assert lengths <= {"9000"} | (set() if save in _WHOLE else {"0"}), seen


# -- 12, 13 ------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", ["vanishes", "grows", "shrinks", "becomes a directory"])
async def test_12_a_file_that_changes_while_it_is_sent(rig: Rig, act: str) -> None:
    rig.write("main.py")
    mirror = await rig.started()
    big = rig.local / "big.bin"
    big.write_bytes(os.urandom(1 << 20) * 32)
    rig.write("other.py", "in the same batch\n")
    await until(lambda: mirror.status().state is MirrorState.PENDING, "the transfer")
    if act == "vanishes":
        big.unlink()
    elif act == "grows":
        with big.open("ab") as stream:
            for _ in range(50):
                stream.write(b"more" * 1000)
                await asyncio.sleep(0.002)
    elif act == "shrinks":
        os.truncate(big, 1000)
    else:
        big.unlink()
        rig.write("big.bin/inside.py")
    await mirror.barrier(90)
    assert rig.equal()
    assert mirror.status().state is MirrorState.IN_SYNC


async def test_12_others_go_on_while_one_is_never_at_rest(rig: Rig) -> None:
    rig.write("noisy.bin", "")
    mirror = await rig.started()
    stop = False

    async def scribble() -> None:
        with (rig.local / "noisy.bin").open("ab", buffering=0) as stream:
            while not stop:
                stream.write(b"x")
                await asyncio.sleep(0.001)

    scribbling = asyncio.create_task(scribble())
    rig.write("calm.py", "calm\n")
    try:
        await until(lambda: (rig.far / "calm.py").exists(), "the file that rests", 60)
    finally:
        stop = True
        await scribbling
    await mirror.barrier(60)
    assert rig.equal()


async def test_13_names_that_change_places(rig: Rig) -> None:
    rig.write("a", "file a\n")
    rig.write("b/in/b.py", "in b\n")
    rig.write("c.py", "c\n")
    rig.write("d.py", "d\n")
    rig.write("x/x.py", "x\n")
    rig.write("y/y.py", "y\n")
    mirror = await rig.started()
    for one, other in (("a", "b"), ("c.py", "d.py"), ("x", "y")):
        for was, will in ((one, "tmp"), (other, one), ("tmp", other)):
            (rig.local / was).rename(rig.local / will)
    await mirror.barrier(60)
    assert rig.equal()
    (rig.local / "b").rename(rig.local / "tmp")
    (rig.local / "a").rename(rig.local / "b")
    shutil.rmtree(rig.local / "b" / "in")
    (rig.local / "b" / "in").symlink_to("../tmp")
    await mirror.barrier(60)
    assert rig.equal()


# -- 16, 21 ------------------------------------------------------------------------------------


@pytest.mark.parametrize("skew_s", [3600, -3600])
async def test_16_an_hour_between_the_clocks(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, skew_s: int
) -> None:
    """The laptop's clock, by which the mirror goes, is off; the disks' clocks are right."""
    right, right_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: right() + skew_s)
    monkeypatch.setattr(time, "time_ns", lambda: right_ns() + skew_s * 10**9)
    source = rig.write("main.py", "0\n")
    mirror = await rig.started()
    for number in range(1, 8):
        source.write_text(f"{number}\n")  # same size, often in the same tick
        at_ns = right_ns() + (skew_s if number % 2 else -skew_s) * 10**9
        os.utime(source, ns=(at_ns, at_ns))
        await mirror.barrier(60)
        assert (rig.far / "main.py").read_text() == f"{number}\n"
        assert rig.equal()
    for number in range(8):
        source.write_text(f"{number}\n")
        await mirror.barrier(60)
        assert rig.equal()
    # Edited there by a clock of its own, then here: told, not overwritten.
    there = rig.write("main.py", "there\n", far=True)
    os.utime(there, ns=(right_ns() - skew_s * 10**9,) * 2)
    source.write_text("here\n")
    with pytest.raises(MirrorError, match=r"main\.py"):
        await mirror.barrier(60)
    assert there.read_text() == "there\n"


def _git(root: Path, *words: str) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "gc.auto=0")
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(
        ["git", *who, *words], cwd=root, check=True, env=environ, stdin=subprocess.DEVNULL
    )


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
@pytest.mark.timeout(400)
async def test_21_a_checkout_of_5000_files_is_one_generation(rig: Rig) -> None:
    _git(rig.local, "init", "-q", "-b", "one")
    for branch in ("one", "two"):
        for number in range(5000):
            rig.write(f"d{number % 100}/{number}.py", f"{branch} {number}\n")
        _git(rig.local, "add", ".")
        _git(rig.local, "commit", "-q", "-m", branch)
        if branch == "one":
            _git(rig.local, "checkout", "-q", "-b", "two")
    batches: list[PassRecord] = []
    mirror = await rig.started(on_batch=batches.append)
    await mirror.barrier(120)
    batches.clear()
    checkout = await asyncio.create_subprocess_exec("git", "checkout", "-q", "one", cwd=rig.local)
    assert await checkout.wait() == 0
    await until(lambda: (rig.far / "d99/4999.py").read_text() == "one 4999\n", "the last file", 60)
    await mirror.barrier(120)
    assert [batch.files for batch in batches] == [5000]
    far = {path.read_text()[:3] for path in rig.far.glob("d*/*.py")}
    assert far == {"one"}


async def test_21_a_checkout_that_begins_under_a_look_is_one_generation(
    live_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, lock = live_rig, live_rig.local / ".git/index.lock"
    lock.parent.mkdir()
    for number in range(40):
        rig.write(f"{number}.py", "one\n")
    batches: list[PassRecord] = []
    mirror = await rig.started(on_batch=batches.append)
    await mirror.barrier(60)
    batches.clear()
    look, waits = Syncer._look, EventCoalescer.put_off
    began = threading.Event()

    def git_begins(*words: Any) -> Any:
        if not began.is_set():
            began.set()
            lock.touch()
            for number in range(20):
                rig.write(f"{number}.py", "two\n")
        return look(*words)

    def git_ends(self: EventCoalescer, now: float) -> None:
        """Once somebody waits for it."""
        if lock.exists():
            for number in range(20, 40):
                rig.write(f"{number}.py", "two\n")
            lock.unlink()
        waits(self, now)

    monkeypatch.setattr(Syncer, "_look", git_begins)
    monkeypatch.setattr(EventCoalescer, "put_off", git_ends)
    for number in range(20):
        rig.write(f"{number}.py", "saved\n")
    await mirror.barrier(60)
    monkeypatch.undo()
    await mirror.barrier(60)
    assert [batch.files for batch in batches] == [40]
    assert {path.read_text() for path in rig.far.glob("*.py")} == {"two\n"}


async def test_15_same_size_and_mtime_on_the_cluster_is_found_by_content(rig: Rig) -> None:
    source = rig.write("main.py", "old\n")
    mirror = await rig.started()
    there = rig.far / "main.py"
    before = there.stat()
    there.write_text("her\n")
    os.utime(there, ns=(before.st_atime_ns, before.st_mtime_ns))
    await mirror.stop()
    # Neither end's stat tells; the next full look at content does.
    source.write_text("new\n")
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    again = await rig.started()
    with contextlib.suppress(MirrorError, TimeoutExpired):
        await again.barrier(60)
    assert there.read_text() in ("new\n", "her\n")
    if there.read_text() == "her\n":
        assert again.status().conflicts == ("main.py",)
