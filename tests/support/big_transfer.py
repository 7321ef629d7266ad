"""A mirror with a big file on its way: by rsync, or over the wire to the agent."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.support.far_path import far_path
from tests.support.mirror_rig import Rig, tree, until
from tests.support.mirror_sshd import Sshd
from tunnelkit.mirror.agent.channel import MirrorChannel
from tunnelkit.mirror.api import MirrorState, PassRecord
from tunnelkit.mirror.mirror import Mirror
from tunnelkit.mirror.transfer.base import TransferResult
from tunnelkit.mirror.transfer.rsync import Rsync

SIZE_BYTES = 16 << 20
_BIG_PIECE_BYTES = 256 << 10


class BigTransfer:
    """The transfer of a big file, which `began`; it goes on once `may_end` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.may_end = asyncio.Event(), asyncio.Event()
        write, push = MirrorChannel.write, Rsync.push

        async def held_write(live: MirrorChannel, data: bytes, **more: float) -> None:
            if len(data) > _BIG_PIECE_BYTES:
                await self._held()
            await write(live, data, **more)

        async def held_push(rsync: Rsync, *words: object, **more: object) -> TransferResult:
            await self._held()
            return await push(rsync, *words, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(MirrorChannel, "write", held_write)
        monkeypatch.setattr(Rsync, "push", held_push)

    async def _held(self) -> None:
        self.began.set()
        await self.may_end.wait()


@pytest.fixture(name="rig", params=["rsync", "wire"])
async def big_rig(
    request: pytest.FixtureRequest, live_rig: Rig, sshd: Sshd, tmp_path: Path
) -> AsyncIterator[Rig]:
    without = () if request.param == "rsync" else ("rsync",)
    with far_path(sshd, tmp_path / "bin", without=without):
        yield live_rig


def random_file(path: Path, seed: int = 1) -> None:
    path.write_bytes(random.Random(seed).randbytes(SIZE_BYTES))


async def settled(rig: Rig, **more: Callable[[PassRecord], None]) -> Mirror:
    """A mirror of some files, with nothing left to do."""
    for name in ("a.py", "old.py", "sub/b.py"):
        rig.write(name, "1\n")
    mirror = await rig.started(**more)
    await mirror.barrier(60)
    return mirror


async def under_way(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, **more: Callable[[PassRecord], None]
) -> tuple[Mirror, BigTransfer]:
    """A mirror of some files, with a big one on its way."""
    mirror = await settled(rig, **more)
    big = BigTransfer(monkeypatch)
    random_file(rig.local / "model.bin")
    await asyncio.wait_for(big.began.wait(), 60)
    return mirror, big


async def comes(rig: Rig, path: str, text: str) -> None:
    there = rig.far / path
    await until(lambda: there.exists() and there.read_text() == text, f"{path} comes")


async def ends(rig: Rig, mirror: Mirror, big: BigTransfer) -> None:
    """Let the big file come: then all is equal."""
    assert not (rig.far / "model.bin").exists()
    big.may_end.set()
    await mirror.barrier(60)
    assert mirror.status().state is MirrorState.IN_SYNC
    assert tree(rig.far) == {  # git's own files are never mirrored
        name: found for name, found in tree(rig.local).items() if not name.startswith(b".git")
    }
