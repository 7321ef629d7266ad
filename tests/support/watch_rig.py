"""A watched directory, and a reader that does with it what the mirror does."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from watchdog.events import FileSystemEvent
from watchdog.observers.api import BaseObserver

from tunnelkit.mirror.passes import local_changes
from tunnelkit.mirror.tree.ignore import IgnoreRules
from tunnelkit.mirror.tree.scanner import Scan, Scanner
from tunnelkit.mirror.watch import event_source
from tunnelkit.mirror.watch.coalescer import DirtyPaths
from tunnelkit.mirror.watch.shared_source import MakeWatch
from tunnelkit.mirror.watch.watcher import Watcher


def watchers() -> list[str]:
    """What of watchers there is in this process: watchdog's threads, the kernel's queues."""
    found = [thread.name for thread in threading.enumerate() if isinstance(thread, BaseObserver)]
    if sys.platform == "linux":
        fds = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        found += [fd for fd in fds if os.path.lexists(fd) and "inotify" in os.readlink(fd)]
    return found


class Watched:
    """Keeps `scan` in step with `root` by what the watcher tells. Each settled batch is in
    `batches`, with the content that the files had then."""

    def __init__(self, root: Path, watch: MakeWatch = Watcher) -> None:
        self.root, self.watch = root, watch
        self.scanner = Scanner(str(root), IgnoreRules())
        self.scan: Scan | None = None
        self.woken = asyncio.Event()
        self.watcher = watch(
            str(root),
            self.woken.set,
            interesting=self._interesting,
            wanted=self.wanted,
            known=lambda path: False,
        )
        self.batches: list[DirtyPaths] = []
        self.contents: list[dict[str, bytes | None]] = []
        self._heard_at: list[float] = []

        def listen(event: FileSystemEvent) -> None:
            self._heard_at.append(time.monotonic())
            Watcher.on_any_event(self.watcher, event)  # whatever a test has made of it

        self.watcher.on_any_event = listen  # type: ignore[method-assign]

    def _interesting(self, path: str) -> bool:
        return local_changes.interesting(str(self.root), self.scan, path)

    def wanted(self, path: str) -> bool:
        return local_changes.interesting(str(self.root), self.scan, path, is_dir=True)

    async def start(self) -> None:
        self.scan = self.scanner.scan()
        await self.watcher.start()
        self.apply(DirtyPaths(everything="begin"))

    async def batch(self, timeout_s: float = 30.0) -> DirtyPaths:
        """The next settled batch that is not empty, applied to `scan`."""
        async with asyncio.timeout(timeout_s):
            while True:
                await self.woken.wait()
                self.woken.clear()
                await self.watcher.settle()
                dirty = self.watcher.take()
                if dirty:
                    self.contents.append({path: self._read(path) for path in dirty.paths})
                    self.batches.append(dirty)
                    self.apply(dirty)
                    return dirty

    def apply(self, dirty: DirtyPaths) -> None:
        if dirty.everything is not None or self.scan is None:
            before, self.scan = None, self.scanner.scan()
        else:
            before = self.scan
            self.scan, _ = self.scanner.update(self.scan, dirty.paths)
        if self.scan is not before:
            self.watcher.widen(self.scan.rules)

    async def exact(self) -> bool:
        """As a barrier does: flush, or scan where that fails. True: it was no scan."""
        flushed = await self.watcher.flush(5.0)
        dirty = self.watcher.take()
        if not flushed:
            dirty = DirtyPaths(everything="not flushed")
        self.batches.append(dirty)
        self.apply(dirty)
        return dirty.everything is None

    async def until(self, condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
        """Take batches until it is true."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                await self.batch(timeout_s)

    def forget(self) -> None:
        """Begin to count batches and pauses."""
        self.batches.clear()
        self.contents.clear()
        self._heard_at.clear()

    def longest_pause_s(self) -> float:
        """Between two events since `forget`: of who saves, and of the threads that tell."""
        return max((b - a for a, b in itertools.pairwise(self._heard_at)), default=0.0)

    def complete(self) -> bool:
        """Whether what was told makes up the whole truth."""
        return self.scan is not None and self.scan.entries == self._fresh()

    def _fresh(self) -> dict[str, object]:
        return {**Scanner(str(self.root), IgnoreRules()).scan().entries}

    def _read(self, path: str) -> bytes | None:
        try:
            return (self.root / path).read_bytes()
        except OSError:
            return None


INOTIFY, WATCHDOG = "inotify", "watchdog"


@pytest.fixture(params=[INOTIFY, WATCHDOG] if sys.platform == "linux" else [WATCHDOG])
def source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who tells of file events in this test."""
    wanted = str(request.param)
    monkeypatch.setattr(event_source, "is_local", lambda root: wanted == INOTIFY)
    return wanted


@pytest.fixture
async def watched(tmp_path: Path, source: str) -> AsyncIterator[Watched]:
    root = tmp_path / "root"
    root.mkdir()
    made = Watched(root)
    yield made
    await made.watcher.stop()
    assert not watchers()
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".tk-cookie")]
