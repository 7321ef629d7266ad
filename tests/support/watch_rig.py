"""A watched directory, and a reader that does with it what the mirror does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tunnelkit.mirror import local
from tunnelkit.mirror.dirty import Dirty
from tunnelkit.mirror.ignore import IgnoreRules
from tunnelkit.mirror.scan import Scan, Scanner
from tunnelkit.mirror.watch import Watcher


class Watched:
    """Keeps `scan` in step with `root` by what the watcher tells. Each settled batch is in
    `batches`, with the content that the files had then."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.scanner = Scanner(str(root), IgnoreRules())
        self.scan: Scan | None = None
        self.woken = asyncio.Event()
        self.watcher = Watcher(str(root), self.woken.set, interesting=self._interesting)
        self.batches: list[Dirty] = []
        self.contents: list[dict[str, bytes | None]] = []

    def _interesting(self, path: str) -> bool:
        return local.interesting(str(self.root), self.scan, path)

    async def start(self) -> None:
        await self.watcher.start()
        self.scan = self.scanner.scan()

    async def batch(self, timeout_s: float = 30.0) -> Dirty:
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

    def apply(self, dirty: Dirty) -> None:
        if dirty.everything is not None or self.scan is None:
            self.scan = self.scanner.scan()
        else:
            self.scan, _ = self.scanner.update(self.scan, dirty.paths)

    async def exact(self) -> bool:
        """As a barrier does: flush, or scan where that fails. True: it was no scan."""
        flushed = await self.watcher.flush(5.0)
        dirty = self.watcher.take()
        if not flushed:
            dirty = Dirty(everything="not flushed")
        self.batches.append(dirty)
        self.apply(dirty)
        return dirty.everything is None

    async def until(self, condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
        """Take batches until it is true."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                await self.batch(timeout_s)

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


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    root = tmp_path / "root"
    root.mkdir()
    made = Watched(root)
    yield made
    await made.watcher.stop()
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".tk-cookie")]
