"""A tree that appears is on its way while it is looked at, and seen when all of it is there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import cast

from tests.e2e.test_mirror_live import grow_old, parts
from tests.support.mirror_rig import Rig, needs_rsync, until
from tunnelkit.mirror.api import MirrorHalted
from tunnelkit.mirror.mirror import Mirror
from tunnelkit.mirror.tree.scanner import Entry

pytestmark = needs_rsync

FILES = 1_200


async def settled(rig: Rig) -> Mirror:
    """Up, with nothing left to do."""
    rig.write("one.py")
    mirror = await rig.started()
    await mirror.barrier(20)
    return mirror


def new_tree(rig: Rig) -> Path:
    """Beside the project, of files that nobody writes any more."""
    top = rig.local.parent / "new tree"
    for number in range(FILES):
        path = top / f"d{number // 20:02}" / f"f{number:04}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n")
    (top / "link.py").symlink_to("d00/f0000.py")
    grow_old(path)
    return top


def at_the_end_of_a_look(mirror: Mirror, work: Callable[[dict[str, Entry]], None]) -> None:
    """Have that done once, in the thread that looks, when all is found."""
    assert mirror._syncer is not None
    scanner = mirror._syncer._scanner
    before = scanner._on_look

    def on_look(root: str, entries: Mapping[str, Entry], looked: Collection[str] | None) -> None:
        if "new" in entries:
            scanner._on_look = before
            work(cast(dict[str, Entry], entries))
        before(root, entries, looked)

    scanner._on_look = on_look


async def test_it_is_sent_before_all_is_found(live_rig: Rig) -> None:
    rig, seen = live_rig, []
    mirror = await settled(rig)

    def wait(entries: dict[str, Entry]) -> None:
        deadline = time.monotonic() + 10.0
        while len(parts(rig.far)) == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        seen.append((len(parts(rig.far)), (rig.far / "new").exists()))

    at_the_end_of_a_look(mirror, wait)
    new_tree(rig).rename(rig.local / "new")
    await mirror.barrier(20)
    assert seen == [(1, False)], "staged as a whole, and not to be seen"
    assert rig.equal()
    assert (await mirror.barrier(20)).proven == 0
    assert parts(rig.far) == []


async def test_what_is_taken_out_at_the_end_of_the_look_is_not_published(live_rig: Rig) -> None:
    rig = live_rig
    mirror = await settled(rig)
    taken: list[str] = []

    def take_out(entries: dict[str, Entry]) -> None:
        assert mirror._syncer is not None
        staged = mirror._syncer._ahead._staged
        assert staged is not None
        deadline = time.monotonic() + 10.0
        while not taken and time.monotonic() < deadline:
            # At one stroke: the loop adds to it.
            sent = list(staged._batch.sends)
            taken[:] = [path for path in sent if path.endswith(".py")][:1]
            time.sleep(0.01)
        for path in taken:
            (rig.local / path).unlink()
            del entries[path]

    at_the_end_of_a_look(mirror, take_out)
    new_tree(rig).rename(rig.local / "new")
    await until(lambda: (rig.far / "new").exists(), "the tree")
    assert not (rig.far / taken[0]).exists()
    assert len(list((rig.far / "new").rglob("f*.py"))) == FILES - 1
    assert parts(rig.far) == []


async def test_a_look_that_fails_publishes_nothing(live_rig: Rig) -> None:
    rig = live_rig
    mirror = await settled(rig)
    failed = []

    def fail(entries: dict[str, Entry]) -> None:
        failed.append((rig.far / "new").exists())
        raise MirrorHalted("the disk is gone")

    at_the_end_of_a_look(mirror, fail)
    new_tree(rig).rename(rig.local / "new")
    await until(lambda: bool(failed), "the failure")
    await mirror.barrier(30)
    assert failed == [False]
    assert rig.equal()
    assert parts(rig.far) == []


async def test_a_file_that_changes_under_the_look_arrives_as_it_is_then(live_rig: Rig) -> None:
    rig = live_rig
    mirror = await settled(rig)

    def edit(entries: dict[str, Entry]) -> None:
        (rig.local / "new/d00/f0001.py").write_text("edited\n")
        os.unlink(rig.local / "new/d01/f0021.py")

    at_the_end_of_a_look(mirror, edit)
    new_tree(rig).rename(rig.local / "new")
    await mirror.barrier(20)
    # The edit came after that barrier's call: where the file was read before, the next pass has it.
    await mirror.barrier(20)
    assert rig.equal()
    assert (rig.far / "new/d00/f0001.py").read_text() == "edited\n"
    assert parts(rig.far) == []
