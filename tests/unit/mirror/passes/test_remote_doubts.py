"""A pulled file that the job has removed: asked of the login host, on which no pass depends."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.shell_host import ShellHost, failing_stat
from tunnelkit.mirror.context import SyncContext
from tunnelkit.mirror.passes.remote_doubts import RemoteDoubts
from tunnelkit.mirror.record.manifest import Manifest
from tunnelkit.mirror.tree.scanner import Entry, Scan, lstat


class Ground:
    """Two roots with one pulled file in each, which is in conflict."""

    def __init__(self, tmp_path: Path, programs: Path | None = None) -> None:
        self.here, self.there = tmp_path / "here", tmp_path / "there"
        for root in (self.here, self.there):
            root.mkdir()
            (root / "log").write_text("epoch 1\n")
        self.host = ShellHost(programs)
        self.manifest = Manifest(tmp_path / "m.sqlite")
        self.manifest.open()
        self.context = SyncContext(self.host, str(self.here), str(self.there), self.manifest)
        self.context.conflicts = frozenset({"log"})
        found = lstat(str(self.here), "log")
        assert found is not None
        self.entry: Entry = found
        self.manifest.mark_pulled(["log"])
        self.manifest.pulled.note({"log": (found.size, found.mtime_ns)}, new_since_ns=1 << 62)
        self.doubts = RemoteDoubts(self.context, lambda: None)

    async def left(self) -> set[str]:
        """Returns the paths that a pass would still send."""
        changed = {"log": self.entry}
        scan = Scan(0, {"log": self.entry})
        await self.doubts.leave_removed(scan, changed, frozenset())
        return set(changed)


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(tmp_path)
    yield made
    made.manifest.close()


async def test_what_the_job_has_removed_is_not_sent(ground: Ground) -> None:
    assert await ground.left() == {"log"}
    (ground.there / "log").unlink()
    assert await ground.left() == set()
    assert ground.context.conflicts == frozenset()


async def test_a_root_that_the_login_host_can_not_enter_stops_no_pass(ground: Ground) -> None:
    shutil.rmtree(ground.there)
    assert await ground.left() == {"log"}
    assert ground.context.conflicts == {"log"}


async def test_what_can_not_be_looked_at_is_not_taken_for_removed(tmp_path: Path) -> None:
    ground = Ground(tmp_path, failing_stat(tmp_path / "bin", "log"))
    assert await ground.left() == {"log"}
    ground.manifest.close()


async def test_a_login_host_that_hangs_delays_few_passes_and_not_for_long(ground: Ground) -> None:
    ground.host.answers = False
    begin = time.monotonic()
    for _ in range(5):
        assert await ground.left() == {"log"}
    assert time.monotonic() - begin < 5
    assert ground.host.commands == 1
    ground.host.answers = True
    (ground.there / "log").unlink()
    ground.doubts = RemoteDoubts(ground.context, lambda: None)
    assert await ground.left() == set()
