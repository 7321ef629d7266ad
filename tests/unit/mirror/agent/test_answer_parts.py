"""An agent's answer in parts, of which a hostile one has no end."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import pytest

from tunnelkit.mirror.agent.channel import MirrorChannel
from tunnelkit.mirror.api import FileAgent
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.parcels import ParcelError


async def on_proof(*proof: Mapping[str, str]) -> None:
    pytest.fail("nothing is proven")


async def committed(paths: int) -> tuple[MirrorChannel, int]:
    """A channel with a batch of so many paths that has no answer yet."""
    sent: list[bytes] = []
    far = SimpleNamespace(is_over=False, is_full=lambda: False, write_nowait=sent.append)
    agent = SimpleNamespace(is_up=True)
    live = MirrorChannel(cast("FileAgent", agent), cast("Channel", far), ("node", "/r"), None)
    number, rest = live.begin("now")
    await live.commit(number, rest, paths=paths)
    return live, number


def part(number: int, first: int, count: int) -> dict[str, object]:
    names = (f"{at}.py" for at in range(first, first + count))
    return {"batch": number, "part": {name: ["failed", "why"] for name in names}}


async def test_all_parts_that_the_paths_need_are_taken() -> None:
    live, number = await committed(25_000)
    for first, count in ((0, 10_000), (10_000, 10_000), (20_000, 5_000)):
        await live._take(part(number, first, count), on_proof)
    done = {"batch": number, "committed": True, "results": None, "replaced_dir": None}
    await live._take(done, on_proof)
    found = await live.answer(number, files=25_000, size_bytes=0)
    assert len(found.results) == 25_000


@pytest.mark.parametrize(("paths", "most"), [(0, 1), (2, 1), (25_000, 6)])
async def test_parts_without_end_are_refused(paths: int, most: int) -> None:
    live, number = await committed(paths)
    for at in range(most):
        await live._take(part(number, at, 1), on_proof)
    with pytest.raises(ParcelError, match="more parts than it has paths for"):
        await live._take(part(number, most, 1), on_proof)
