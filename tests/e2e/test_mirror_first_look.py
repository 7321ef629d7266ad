"""A first copy is looked at and read before there is a connection; what changes meanwhile, and a
start that fails.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.test_mirror_live import grow_old, parts
from tests.support.mirror_rig import Rig, needs_rsync, until
from tunnelkit.errors import AllocationError
from tunnelkit.mirror.mirror import Mirror
from tunnelkit.mirror.passes import syncer

pytestmark = needs_rsync

FILES = 600


async def _at_once() -> None:
    """The rig's agent is there already."""


def big_tree(rig: Rig) -> None:
    for number in range(FILES):
        path = rig.write(f"d{number // 20:02}/f{number:03}.py", f"{number}\n")
    grow_old(path)


async def looked(rig: Rig) -> Mirror:
    """Looked at, and all of it read."""
    mirror = rig.mirror(agent_soon=_at_once)
    await mirror.look()
    look = mirror._look
    assert look is not None and await look.is_much() and look.reading is not None
    assert look.reading._task is not None
    await look.reading._task
    return mirror


async def test_it_is_read_while_there_is_no_connection(live_rig: Rig) -> None:
    rig = live_rig
    big_tree(rig)
    mirror = await looked(rig)
    assert mirror._look is not None and mirror._look.reading is not None
    pieces = mirror._look.reading._pieces
    assert pieces.qsize() > 0
    assert rig.remote.commands == 0 and not rig.far.exists()
    await mirror.start()
    assert pieces.qsize() == 0, "sent"
    assert rig.equal() and parts(rig.far) == []
    report = await mirror.barrier(20)
    assert report.sent == 0
    # Another start has something to go by, and reads nothing before it is asked to.
    await mirror.stop()
    await mirror.look()
    assert mirror._look is not None and await mirror._look.is_much()
    assert mirror._look.reading is None


def _edit(root: Path) -> None:
    (root / "d00/f001.py").write_text("edited\n")


def _delete(root: Path) -> None:
    (root / "d01/f021.py").unlink()
    shutil.rmtree(root / "d02")


def _create(root: Path) -> None:
    (root / "new").mkdir()
    (root / "new/one.py").write_text("new\n")
    (root / "d03/new.py").write_text("new\n")


def _change_kinds(root: Path) -> None:
    (root / "d04/f081.py").unlink()
    (root / "d04/f081.py").symlink_to("f082.py")
    (root / "d04/f083.py").unlink()
    (root / "d04/f083.py").mkdir()
    shutil.rmtree(root / "d05")
    (root / "d05").write_text("a file now\n")


def _change_modes(root: Path) -> None:
    (root / "d06/f121.py").chmod(0o755)
    (root / "d07").chmod(0o750)


def _ignore(root: Path) -> None:
    (root / ".tkignore").write_text("d08/\n")


@pytest.mark.parametrize("trusted", [True, False], ids=["lately", "long ago"])
@pytest.mark.parametrize("change", [_edit, _delete, _create, _change_kinds, _change_modes, _ignore])
async def test_what_changes_after_the_look_arrives(
    live_rig: Rig,
    change: Callable[[Path], None],
    trusted: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not trusted:
        monkeypatch.setattr(syncer, "_TRUSTED_NS", 0)
    rig = live_rig
    big_tree(rig)
    mirror = await looked(rig)
    change(rig.local)
    await mirror.start()
    await mirror.barrier(20)
    if change is _ignore:
        (rig.local / ".tkignore").unlink()
        assert trusted or not (rig.far / "d08").exists()
        await mirror.barrier(20)
    assert rig.equal()
    assert parts(rig.far) == []
    assert (await mirror.barrier(20)).sent == 0


async def test_without_a_connection_for_long_all_of_it_is_looked_at_again(live_rig: Rig) -> None:
    """Also without an event that says so, as on a laptop whose watches are used up."""
    rig = live_rig
    big_tree(rig)
    mirror = await looked(rig)
    _edit(rig.local)
    _create(rig.local)
    await mirror.start()
    await until(rig.equal, "what had changed before the watcher was there")


class Refused(AllocationError):
    def __init__(self) -> None:
        super().__init__("no Python there")


async def _refuse() -> None:
    raise Refused


async def test_a_start_that_fails_leaves_nothing_there(live_rig: Rig) -> None:
    rig = live_rig
    big_tree(rig)
    mirror = rig.mirror(agent_soon=_at_once, may_write=_refuse)
    for there in (False, True):
        if there:
            rig.write("results.txt", "mine\n", far=True)
        with pytest.raises(Refused):
            await mirror.start()
        left = [name for _, _, names in os.walk(rig.home) for name in names]
        assert left == (["results.txt"] if there else [])
        assert rig.far.exists() == there


async def test_nothing_is_written_before_it_may_be(live_rig: Rig) -> None:
    rig, may = live_rig, asyncio.Event()

    async def wait() -> None:
        asked.set()
        await may.wait()

    asked = asyncio.Event()
    big_tree(rig)
    mirror = rig.mirror(agent_soon=_at_once, may_write=wait)
    starting = asyncio.create_task(mirror.start())
    await asked.wait()
    assert [name for _, _, names in os.walk(rig.home) for name in names] == []
    may.set()
    await starting
    assert rig.equal()


async def test_a_start_that_is_given_up_leaves_nothing_there(live_rig: Rig) -> None:
    rig, asked = live_rig, asyncio.Event()

    async def for_ever() -> None:
        asked.set()
        await asyncio.Event().wait()

    rig.write("one.py")
    mirror = rig.mirror(may_write=for_ever)
    starting = asyncio.create_task(mirror.start())
    await asked.wait()
    assert rig.far.exists()
    starting.cancel()
    await asyncio.wait([starting])
    assert not rig.far.exists()
