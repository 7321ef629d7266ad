"""A node's agent that answers for batches that are open, over, or never were."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.support.big_transfer import big_rig as big_rig
from tests.support.big_transfer import comes, ends, under_way
from tests.support.mirror_rig import Rig, needs_rsync
from tunnelkit.mirror.api import MirrorState

pytestmark = needs_rsync

_EVIL = "\x1b]0;owned\x07"


async def test_the_big_file_is_not_there_before_its_batch_was_committed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, big = await under_way(rig, monkeypatch)
    rig.write("a.py", "2\n")
    await comes(rig, "a.py", "2\n")
    assert mirror._syncer is not None
    live = await mirror._syncer.channels.live()
    assert live is not None
    await live.proofs_in()
    believed: list[object] = []

    async def on_proof(*proof: Mapping[str, str]) -> None:
        believed.append(proof)

    results = {"model.bin": ["replaced", _EVIL], "../../etc/passwd": ["same", ""]}
    for batch in (-1, 0, *range(1, live._number + 3)):
        answer = {"batch": batch, "committed": True, "results": results, "replaced_dir": _EVIL}
        await live._take(answer, on_proof)
        proof = {"batch": batch, "proof": {"model.bin": "1:1:1"}, "differ": {}, "more": False}
        await live._take(proof, on_proof)
    assert believed == []
    rig.write("a.py", "3\n")
    await comes(rig, "a.py", "3\n")
    row = mirror.sent().get("model.bin")
    assert row is None or not (row.sent or row.proven)
    assert mirror.status().state is MirrorState.PENDING
    await ends(rig, mirror, big)


async def test_an_agent_that_refuses_the_batch_that_it_said_it_takes(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mirror says so, and begins again."""
    mirror, big = await under_way(rig, monkeypatch)
    assert mirror._syncer is not None
    live = await mirror._syncer.channels.live()
    assert live is not None

    async def on_proof(*proof: Mapping[str, str]) -> None:
        pytest.fail("nothing is proven")

    await live._take({"error": "protocol", "message": "no nested batch"}, on_proof)
    rig.write("a.py", "2\n")
    big.may_end.set()
    await mirror.barrier(60)
    assert rig.equal()
    reasons = {status.reason for status in rig.seen if status.state is MirrorState.STALE}
    assert mirror._rsync is not None
    if mirror._rsync.sends_deltas:
        assert reasons == set(), "rsync goes on without the agent"
    else:
        (reason,) = reasons
        assert reason is not None
        assert reason.startswith("the mirror's channel to the agent failed: no ")
