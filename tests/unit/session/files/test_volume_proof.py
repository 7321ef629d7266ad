"""A pod proves what another pod's mirror has written to a volume of both."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import pytest

from tunnelkit.errors import MirrorError, TimeoutExpired
from tunnelkit.mirror.record.manifest import ManifestEntry
from tunnelkit.mirror.tree.scanner import DIR, FILE, Entry
from tunnelkit.session.files import volume_proof
from tunnelkit.session.files.volume_proof import VolumeProof


def row(digest: str, *, stamp: str = "1:1:1:1", ctime: int = 1, sent: bool = True) -> ManifestEntry:
    return ManifestEntry(Entry(FILE, 0o644, 1, 1, ctime, 1), digest, sent=sent, stamp=stamp)


class Volume:
    """What the first pod's mirror has sent, and what this pod sees."""

    def __init__(self, **sent: ManifestEntry) -> None:
        self.sent: dict[str, ManifestEntry] = dict(sent)
        self.seen: dict[str, str] = {path: one.digest for path, one in sent.items()}
        self.asked: list[dict[str, str]] = []
        self.lies: list[str] = []
        self.hangs = False
        self.proof = VolumeProof(lambda: self.sent, self.check)

    async def check(self, expected: Mapping[str, str]) -> list[str]:
        self.asked.append(dict(expected))
        if self.hangs:
            await asyncio.Event().wait()
        differing = [path for path, text in expected.items() if self.seen.get(path) != text]
        return [*differing, *self.lies]

    async def prove(self, timeout_s: float = 0.05) -> int:
        return await self.proof.prove(time.monotonic() + timeout_s, timeout_s)


async def test_each_file_is_read_once_and_again_when_it_was_written_again() -> None:
    volume = Volume(a=row("A"), b=row("B"), half=row("C", sent=False))
    volume.sent["dir"] = ManifestEntry(Entry(DIR, 0o755, 0, 1, 1, 1), "", sent=True)
    assert await volume.prove() == 2
    assert await volume.prove() == 0
    assert volume.asked == [{"a": "A", "b": "B"}, {}], "a sign of life is asked for in any case"
    # The same content, which was another in between: the pod may have that in its cache.
    volume.sent["a"] = row("A", ctime=2)
    assert await volume.prove() == 1
    volume.sent["b"] = row("B", stamp="2:2:2:2")
    assert await volume.prove() == 1
    assert volume.asked[2:] == [{"a": "A"}, {"b": "B"}]


async def test_a_file_that_is_gone_and_comes_back_is_read() -> None:
    volume = Volume(a=row("A"))
    await volume.prove()
    back = volume.sent.pop("a")
    await volume.prove()
    volume.sent["a"] = back
    assert await volume.prove() == 1


async def test_a_pod_that_lags_is_asked_again_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volume_proof, "_ASK_AGAIN_S", (0.001, 0.001))
    volume = Volume(a=row("A"), b=row("B"))
    volume.seen["b"] = "old"
    with pytest.raises(MirrorError, match="other content on the shared volume") as raised:
        await volume.prove()
    assert raised.value.cause == "1 differ: b"
    assert len(volume.asked) > 2 and set(volume.asked[-1]) == {"b"}
    volume.seen["b"] = "B"
    assert await volume.prove() == 1


async def test_a_pod_that_does_not_answer_ends_the_barrier_in_time() -> None:
    volume = Volume(a=row("A"))
    volume.hangs = True
    with pytest.raises(TimeoutExpired, match="has not read the files back") as raised:
        await volume.prove()
    assert raised.value.cause == "1 pending: a"


async def test_a_pod_that_names_other_paths_proves_and_spoils_nothing() -> None:
    volume = Volume(a=row("A"))
    volume.lies = ["../../etc/passwd", "\x1b[2J"]
    assert await volume.prove() == 1
