"""Whatever the kernel, watchdog or the system's limits drop: it is noticed, and nothing is
missing in the end."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import random
import sys
import threading
from pathlib import Path

import pytest
from watchdog.events import FileSystemEvent

from tests.support.mirror_rig import until
from tests.support.watch_rig import INOTIFY, WATCHDOG, Watched
from tunnelkit.mirror.watch import inotify_limits, watcher
from tunnelkit.mirror.watch.coalescer import DirtyPaths
from tunnelkit.mirror.watch.event_source import Watchdog
from tunnelkit.mirror.watch.inotify_tree import InotifyTree
from tunnelkit.mirror.watch.watcher import Watcher

REPO = Path(__file__).resolve().parents[4]
linux = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


def exchange(one: Path, other: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    here = -100  # AT_FDCWD
    if libc.renameat2(here, os.fsencode(one), here, os.fsencode(other), 2):
        raise OSError(ctypes.get_errno(), "renameat2")


def fill(root: Path, count: int) -> None:
    for number in range(count):
        if number % 200 == 0:
            (root / f"d{number}").mkdir()
        (root / f"d{number // 200 * 200}/f{number}").touch()


class _Stand:
    """Lets watchdog's thread, or the reading of the kernel's queue, stand still."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lock = lock = threading.Lock()
        handle, ready = Watcher.on_any_event, InotifyTree._ready

        def slow(self: Watcher, event: FileSystemEvent) -> None:
            with lock:
                handle(self, event)

        def idle(self: InotifyTree) -> None:
            if not lock.locked():
                ready(self)

        monkeypatch.setattr(InotifyTree, "_ready", idle)
        monkeypatch.setattr(Watcher, "on_any_event", slow)


async def test_20_000_files_while_its_thread_stands_still(
    watched: Watched, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand = _Stand(monkeypatch)
    await watched.start()
    with stand.lock:
        await asyncio.to_thread(fill, watched.root, 20_000)
        assert not await watched.watcher.flush(0.2)
        assert not watched.complete()
        told = {watched.watcher.take().everything}
        watched.apply(DirtyPaths(everything="not flushed"))
        assert watched.complete()
        (watched.root / "d0/f0").write_text("later")
    await watched.until(watched.complete, 60.0)
    told |= {found.everything for found in watched.batches}
    # Inotify may also name the new directories, each with everything in it, in small batches.
    if source == WATCHDOG:
        assert "many" in told
    else:
        named = any(found.paths for found in watched.batches)
        assert named or told & {"many", "overflow", "restart"}
    # Once it has caught up, a flush is enough again.
    async with asyncio.timeout(60):
        while not await watched.exact():
            pass
    assert watched.complete()


async def test_watchdogs_own_complaint_is_heard(watched: Watched) -> None:
    await watched.start()
    said = logging.getLogger("watchdog.observers.inotify_c")
    said.error("InotifyEmitter.queue_events() called when the thread is inactive")
    assert not watched.watcher.take()
    said.warning("Inotify queue overflowed")
    assert (await watched.batch()).everything == "overflow"
    await watched.watcher.stop()
    assert not logging.getLogger("watchdog.observers").handlers


async def test_the_root_is_moved_away_and_another_comes(watched: Watched, tmp_path: Path) -> None:
    (watched.root / "a").write_text("1")
    await watched.start()
    watched.root.rename(tmp_path / "away")
    watched.root.mkdir()
    (watched.root / "b").write_text("2")
    assert watched.watcher.take().everything == "root"
    watched.apply(type(watched.watcher.take())(everything="root"))
    assert (await watched.batch()).everything in {"root", "restart"}
    await watched.until(watched.complete)
    (watched.root / "c").write_text("3")
    await watched.until(watched.complete)
    assert watched.watcher.alive()


async def test_a_dead_observer_is_begun_anew_but_only_once(watched: Watched) -> None:
    await watched.start()

    def kill() -> None:
        listening = watched.watcher._observation._source
        if isinstance(listening, InotifyTree):
            listening._event = None  # type: ignore[assignment, method-assign]
            (watched.root / "heard by nobody").touch()
        elif isinstance(listening, Watchdog) and listening._observer is not None:
            for emitter in list(listening._observer.emitters):
                emitter.stop()

    kill()
    assert (await watched.batch()).everything == "restart"
    assert watched.watcher.alive()
    (watched.root / "a").write_text("1")
    await watched.until(watched.complete)
    kill()
    assert (await watched.batch()).everything == "unwatched"
    assert not watched.watcher.alive()
    assert "stopped" in str(watched.watcher.problem)
    assert watched.watcher.take().everything == "unwatched"


@linux
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_directory_that_left_and_was_replaced_goes_there(
    watched: Watched, tmp_path: Path
) -> None:
    """watchdog 7.1's reader ends at the third step (a KeyError), and says so to nobody."""
    (watched.root / "d").mkdir()
    await watched.start()
    (watched.root / "d").rename(tmp_path / "d")
    (watched.root / "d").mkdir()
    await watched.until(watched.complete)
    (watched.root / "d").rmdir()
    await watched.until(watched.complete)
    (tmp_path / "d").rmdir()
    # No barrier asks: that something is heard again is all that shows it.
    for number in range(3):
        (watched.root / f"f{number}").write_text("1")
        await watched.until(watched.complete, 10.0)
    assert watched.watcher.alive()
    assert await watched.exact()


async def test_a_deaf_observer_is_begun_anew(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    await watched.start()
    monkeypatch.setattr(watcher, "_DEAF_S", 0.5)
    with monkeypatch.context() as patch:
        patch.setattr(Watcher, "on_any_event", lambda self, event: None)
        for _ in range(3):
            assert not await watched.watcher.flush(0.05)
        assert (await watched.batch()).everything == "restart"
    assert await watched.watcher.flush(10.0)


async def test_after_a_sleep_everything_is_looked_at(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher.SuspendDetector, "noticed", lambda self: True)
    await watched.start()
    assert (await watched.batch()).everything == "sleep"


@linux
async def test_unwatched_directories_are_found(watched: Watched, source: str) -> None:
    for name in ("a/b", "c", "node_modules/x"):
        (watched.root / name).mkdir(parents=True)
    await watched.start()
    inodes = inotify_limits.watched_inodes()
    assert inodes is not None
    root = str(watched.root)
    ignored = [f"{root}/node_modules", f"{root}/node_modules/x"]
    found = inotify_limits.unwatched(root, inodes, lambda path: True)
    assert sorted(found) == (ignored if source == INOTIFY else [])
    inodes -= {(watched.root / name).stat().st_ino for name in ("a/b", "node_modules/x")}
    assert inotify_limits.unwatched(root, inodes, watched.wanted) == [f"{root}/a/b"]


async def test_what_is_ignored_no_more_is_watched(watched: Watched, tmp_path: Path) -> None:
    (watched.root / "data/in").mkdir(parents=True)
    (watched.root / "data/in/a").write_text("1")
    (watched.root / ".gitignore").write_text("data/\n")
    env = watched.root / "env"
    env.mkdir()
    (env / "pyvenv.cfg").touch()
    await watched.start()
    assert watched.scan is not None and "data" not in watched.scan.entries
    (watched.root / ".gitignore").unlink()
    await watched.until(lambda: watched.scan is not None and "data/in/a" in watched.scan.entries)
    (watched.root / "data/in/a").write_text("22")
    await watched.until(watched.complete)
    (env / "pyvenv.cfg").unlink()
    (env / "later").write_text("x")
    await watched.until(watched.complete)
    # From outside, with all that is in it; then two directories that change places.
    (tmp_path / "outside/deep").mkdir(parents=True)
    (tmp_path / "outside").rename(watched.root / "inside")
    (watched.root / "inside/deep/b").write_text("x")
    (watched.root / "data").rename(watched.root / "was")
    (watched.root / "was/in/c").write_text("x")
    await watched.until(watched.complete)
    while not await watched.exact():
        pass
    assert watched.complete()


@linux
@pytest.mark.parametrize("source", [INOTIFY], indirect=True)  # watchdog 7.1 stumbles over it
async def test_two_directories_that_are_exchanged(watched: Watched) -> None:
    for name in ("a/x", "b/y"):
        (watched.root / name).mkdir(parents=True)
    await watched.start()
    await asyncio.to_thread(exchange, watched.root / "a", watched.root / "b")
    await watched.until(watched.complete)
    for name in ("a/y/one", "b/x/two"):
        (watched.root / name).write_text("1")
        await watched.until(watched.complete)


async def test_an_explanation_of_another_error() -> None:
    text = inotify_limits.explain(PermissionError(13, "Permission denied"))
    assert text == "file events don't work: Permission denied"


EDITS = """
import os, random, shutil, sys
from contextlib import suppress
dice = random.Random(int(sys.argv[1]))
names = ["a", "b", "c", "d.py", "e.py"]
def path(): return "/".join(dice.choices(names, k=dice.randint(1, 3)))
for _ in range(400):
    one, other = path(), path()
    with suppress(OSError, shutil.Error):
        match dice.randrange(7):
            case 0: os.makedirs(one)
            case 1 | 2: open(one, "w").write("x" * dice.randrange(99))
            case 3: os.rename(one, other)
            case 4: shutil.rmtree(one) if os.path.isdir(one) else os.unlink(one)
            case 5: os.chmod(one, dice.choice([0o755, 0o700]))
            case 6: os.symlink("a", one)
"""


# watchdog 7.1's reader ends of a KeyError now and then; a new one begins.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_random_edits_by_another_process(watched: Watched) -> None:
    """Each flush makes it exact, also in the middle of things."""
    await watched.start()
    dice = random.Random(4)
    flushed = 0
    for _ in range(6):
        editor = await asyncio.create_subprocess_exec(
            sys.executable, "-c", EDITS, str(dice.random()).lstrip("0."), cwd=watched.root
        )
        waiting = asyncio.create_task(editor.wait())
        while not waiting.done():
            flushed += await watched.exact()
            await asyncio.sleep(0)
        await waiting
        flushed += await watched.exact()
        assert watched.complete()
    assert flushed, "this was a test of scans only"


async def test_it_wakes_again_after_each_take(watched: Watched) -> None:
    await watched.start()
    for number in range(20):
        (watched.root / f"f{number}").write_text("x")
        await until(watched.woken.is_set, "an event")
        watched.woken.clear()
        watched.apply(watched.watcher.take())  # without settling, as a barrier does
    assert await watched.exact()
    assert watched.complete()
