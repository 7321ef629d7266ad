"""A model of cuts: at every step of a pass the link is cut, and what was under way is lost, is done
without an answer, or is done late. In each case nobody but tk has written on the cluster, so there
is no conflict and nothing to set aside, and after a barrier both ends are equal.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.support.cut_model import CutRig
from tests.support.cut_shell import LATE, LOST, UNANSWERED
from tests.support.mirror_rig import tree, until
from tunnelkit.mirror import push_worker
from tunnelkit.mirror.agent import channel as live_module
from tunnelkit.mirror.api import MirrorState
from tunnelkit.mirror.mirror import Mirror
from tunnelkit.mux.tasks import cancel_all

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("rsync"), reason="rsync is needed: apt install rsync"),
    pytest.mark.timeout(600),
]
#: Passes take fewer steps than this; a case beyond the last step ends the search.
_MOST_STEPS = 60

Edit = Callable[[CutRig, int], None]


def _name(function: Callable[..., object]) -> str:
    return function.__name__.strip("_")


def _save(rig: CutRig, number: int) -> None:
    rig.write("saved/f1.txt", f"{number} " + "x" * number + "\n")


def _save_same_size(rig: CutRig, number: int) -> None:
    rig.write("saved/f1.txt", f"{number}\n")


def _new_and_gone(rig: CutRig, number: int) -> None:
    for old in (rig.local / "saved").glob("new*"):
        old.unlink()
    if number % 2:
        rig.write("saved/new.txt", f"{number}\n")


def _rename(rig: CutRig, number: int) -> None:
    (old,) = (rig.local / "saved").glob("named*")
    old.rename(old.with_name(f"named{number}"))


def _kinds(rig: CutRig, number: int) -> None:
    """A file, a symlink and a directory take turns."""
    path = rig.local / "saved/kind"
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    match number % 3:
        case 0:
            path.write_text(f"{number}\n")
        case 1:
            path.symlink_to(f"to{number}")
        case 2:
            path.mkdir()
            (path / "inside").write_text(f"{number}\n")


def _many(rig: CutRig, number: int) -> None:
    for name in range(12):
        rig.write(f"saved/m{name}.txt", f"{number}\n")


EDITS = [_save, _save_same_size, _new_and_gone, _rename, _kinds, _many]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_worker, "_BACKOFF_S", (0.02,))
    monkeypatch.setattr(live_module, "_LINK_CHECK_S", 0.01)


@contextlib.asynccontextmanager
async def _made(directory: Path, *, live: bool) -> AsyncIterator[tuple[CutRig, Mirror]]:
    directory.mkdir()
    rig = CutRig(directory, live=live)
    try:
        if rig.node is not None:
            await rig.node.start()
        rig.write("saved/f1.txt", "0\n")
        rig.write("saved/named0", "0\n")
        yield rig, await rig.started()
    finally:
        rig.cut.heal()
        await rig.cut.release()
        for mirror in rig.mirrors:
            await mirror.stop()
        if rig.node is not None:
            await rig.node.stop()
        rig.cut.end()


async def _settled(rig: CutRig, mirror: Mirror) -> None:
    """A barrier passes, as the person's F5 would, and what it promises is so."""
    await mirror.barrier(20)
    assert not mirror.status().conflicts
    assert _far(rig) == tree(rig.local)


def _far(rig: CutRig) -> dict[bytes, tuple[object, ...]]:
    """Without what an agent that can't be reached has staged."""
    found = tree(rig.far)
    kept = [path for path in found if path.startswith(b".tk-replaced/")]
    assert not kept, f"tk took its own for another's: {kept}"
    return {path: what for path, what in found.items() if b".tk-" not in path}


def _staged(rig: CutRig) -> list[str]:
    return [str(path) for path in rig.far.rglob(".tk-part-*")]


async def _rests(rig: CutRig, mirror: Mirror) -> None:
    """Until all is there, by itself."""
    while mirror.status().state is not MirrorState.IN_SYNC or _far(rig) != tree(rig.local):
        await asyncio.sleep(0.01)


async def _goes_on(rig: CutRig, mirror: Mirror) -> Mirror:
    rig.cut.heal()
    return mirror


async def _login_first(rig: CutRig, mirror: Mirror) -> Mirror:
    """The files go by rsync for a while."""
    rig.cut.heal(node=False)
    async with asyncio.timeout(20):
        await _rests(rig, mirror)
    rig.cut.heal()
    return mirror


async def _new_session(rig: CutRig, mirror: Mirror) -> Mirror:
    """The laptop was switched off in the middle."""
    await mirror.stop()
    rig.cut.heal()
    if rig.cut_node is not None:
        await rig.cut_node.renew()
    return await rig.started()


Then = Callable[[CutRig, Mirror], Awaitable[Mirror]]


async def _case(directory: Path, edit: Edit, how: str, then: Then, at: int, *, live: bool) -> bool:
    """Whether there was a step `at`."""
    async with _made(directory, live=live) as (rig, mirror):
        await mirror.barrier(20)
        rig.cut.arm(how, at)
        edit(rig, 1)
        ends = [asyncio.create_task(work) for work in (rig.cut.fired.wait(), _rests(rig, mirror))]
        await asyncio.wait(ends, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        await cancel_all(*ends)
        if not rig.cut.fired.is_set():
            rig.cut.heal()
            await _settled(rig, mirror)
            return False
        edit(rig, 2)
        mirror = await then(rig, mirror)
        await _settled(rig, mirror)
        if at % 2:
            await rig.cut.release()
            await _settled(rig, mirror)
        edit(rig, 3)
        await _settled(rig, mirror)
        await rig.cut.release()
        await _settled(rig, mirror)
        edit(rig, 4)
        await _settled(rig, mirror)
        await until(lambda: not _staged(rig), "the end of what was staged")
        return True


def _cases() -> list[object]:
    """All with TK_HUNT; without it those in which most was found."""
    every = itertools.product([True, False], EDITS, [_goes_on, _login_first, _new_session])
    few = {(True, _rename), (True, _many), (False, _kinds)}
    return [
        pytest.param(
            live,
            edit,
            then,
            how,
            id=f"{'live' if live else 'rsync'}-{_name(edit)}-{_name(then)}-{how}",
        )
        for live, edit, then in every
        for how in (LOST, UNANSWERED, LATE)
        if os.environ.get("TK_HUNT") or (live, edit) in few
    ]


@pytest.mark.parametrize(("live", "edit", "then", "how"), _cases())
async def test_a_cut_at_every_step(
    tmp_path: Path, quick: None, live: bool, edit: Edit, then: Then, how: str
) -> None:
    for at in range(_MOST_STEPS):
        try:
            if not await _case(tmp_path / str(at), edit, how, then, at, live=live):
                break
        except BaseException as error:
            error.add_note(f"the link was cut at step {at}")
            raise
    assert 1 <= at < _MOST_STEPS - 1
