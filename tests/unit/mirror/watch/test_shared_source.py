"""Several watchers of one root have one source of events, and each learns all that it must."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.watch_rig import Watched, watchers
from tunnelkit.mirror.watch.shared_source import SharedWatches

Pair = tuple[Watched, Watched]


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    """Two that watch `tmp_path`, each as a mirror of its own."""
    (tmp_path / "src").mkdir()
    (tmp_path / ".gitignore").write_text("out/\n")
    (tmp_path / "out").mkdir()
    shared, before = SharedWatches(), len(watchers())
    made = Watched(tmp_path, shared.watch), Watched(tmp_path, shared.watch)
    for one in made:
        await one.start()
    assert len(watchers()) == before + 1
    yield made
    for one in made:
        await one.watcher.stop()
    assert len(watchers()) == before


async def test_each_takes_all_events_whatever_the_other_has_taken(pair: Pair) -> None:
    first, second = pair
    (first.root / "src" / "a.py").write_text("a")
    assert "src/a.py" in (await first.batch()).paths
    (first.root / "b.py").write_text("b")
    assert await second.watcher.flush()
    assert {"src/a.py", "b.py"} <= second.watcher.take().paths
    assert await first.watcher.flush()
    assert "b.py" in first.watcher.take().paths


async def test_the_others_go_on_when_one_ends_and_one_that_comes_back_sees_all(pair: Pair) -> None:
    first, second = pair
    await first.watcher.stop()
    assert not first.watcher.alive() and second.watcher.alive()
    (first.root / "a.py").write_text("a")
    assert "a.py" in (await second.batch()).paths
    third = Watched(first.root, second.watch)
    await third.start()
    (first.root / "c.py").write_text("c")
    assert "c.py" in (await third.batch()).paths
    await third.watcher.stop()
    assert second.watcher.alive()


async def test_a_directory_that_one_widens_is_scanned_by_the_other(pair: Pair) -> None:
    """The other may have scanned it before the watch was there."""
    first, second = pair
    for one in pair:
        one.watcher.take()
    (first.root / "out" / "late.txt").write_text("no event")
    first.watcher.widen(["out/"])
    assert "out" in {path.rstrip("/") for path in first.watcher.take().paths}
    assert second.watcher.take().everything is not None
    second.watcher.widen(["out/"])
    assert first.watcher.take().everything is None, "it was watched already"


async def test_a_source_that_one_begins_anew_has_all_scan_everything(pair: Pair) -> None:
    first, second = pair
    for one in pair:
        one.watcher.take()
    await first.watcher._begin_anew()
    assert first.watcher.take().everything is not None
    assert second.watcher.take().everything is not None
    (first.root / "a.py").write_text("a")
    for one in pair:
        assert await one.watcher.flush()
        assert "a.py" in one.watcher.take().paths
