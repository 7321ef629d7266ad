"""The watcher's end, also in the middle of its start."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from watchdog.observers.api import BaseObserver

from tests.support.watch_rig import INOTIFY, WATCHDOG, watchers
from tunnelkit.mirror.watch.event_source import Watchdog
from tunnelkit.mirror.watch.inotify import InotifyQueue
from tunnelkit.mirror.watch.inotify_tree import InotifyTree
from tunnelkit.mirror.watch.watcher import Watcher


def _watcher(root: Path, wake: asyncio.Event) -> Watcher:
    return Watcher(str(root), wake.set, interesting=lambda path: True)


async def test_it_wakes_and_ends(tmp_path: Path, source: str) -> None:
    wake = asyncio.Event()
    watcher = _watcher(tmp_path, wake)
    await watcher.start()
    assert watcher.alive(), watcher.problem
    (tmp_path / "new").write_text("x")
    async with asyncio.timeout(20):
        await wake.wait()
    await watcher.stop()
    await watcher.stop()
    assert not watcher.alive()
    assert not watchers()


async def test_a_root_that_is_gone_is_a_problem_and_no_error(tmp_path: Path, source: str) -> None:
    watcher = _watcher(tmp_path / "gone", asyncio.Event())
    await watcher.start()
    assert watcher.problem is not None
    assert not watcher.alive()
    await watcher.stop()
    assert not watchers()


@pytest.mark.parametrize("moment", ["before", "within"])
async def test_stopped_in_the_middle_of_its_start(
    tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A cancelled start leaves its thread running; that must not leave a watch behind."""
    watcher = _watcher(tmp_path, asyncio.Event())
    inside, go_on = threading.Event(), threading.Event()
    wheres: dict[tuple[str, str], tuple[type, str]] = {
        (INOTIFY, "before"): (InotifyTree, "_open"),
        (INOTIFY, "within"): (InotifyQueue, "watch"),
        (WATCHDOG, "before"): (Watchdog, "_begin"),
        (WATCHDOG, "within"): (BaseObserver, "schedule"),
    }
    owner, name = wheres[source, moment]
    work = getattr(owner, name)

    def late(self: object, *args: object, **more: object) -> object:
        inside.set()
        assert go_on.wait(20)
        return work(self, *args, **more)

    monkeypatch.setattr(owner, name, late)
    start = asyncio.create_task(watcher.start())
    assert await asyncio.to_thread(inside.wait, 20)
    start.cancel()
    await asyncio.wait([start])
    stop = asyncio.create_task(watcher.stop())
    await asyncio.sleep(0)
    go_on.set()
    async with asyncio.timeout(20):
        await stop
        # Where the stop came first, its thread may have yet to see that it isn't wanted.
        while watchers():
            await asyncio.sleep(0.01)
    assert not watcher.alive()


async def test_widened_in_the_middle_of_its_start(
    tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass may end while the watcher begins again."""
    (tmp_path / "sub").mkdir()
    wake = asyncio.Event()
    watcher = _watcher(tmp_path, wake)
    inside, go_on = threading.Event(), threading.Event()
    owner, name = (InotifyTree, "_open") if source == INOTIFY else (Watchdog, "_begin")
    work = getattr(owner, name)

    def late(self: object, *args: object) -> object:
        inside.set()
        assert go_on.wait(20)
        return work(self, *args)

    monkeypatch.setattr(owner, name, late)
    start = asyncio.create_task(watcher.start())
    assert await asyncio.to_thread(inside.wait, 20)
    watcher.widen(["sub/"])
    go_on.set()
    await start
    wake.clear()
    watcher.take()
    (tmp_path / "sub" / "new").write_text("x")
    async with asyncio.timeout(20):
        await wake.wait()
    await watcher.stop()
