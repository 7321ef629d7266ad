"""A loop with parts on other nodes: no run begins, or is ended, on one of them alone."""

from __future__ import annotations

from pathlib import Path

from tests.unit.agent.loop_rig import loop_rig
from tunnelkit.agent.debug.turns import DueEnd, Turns


async def test_each_run_begins_when_the_session_says_so(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("print('here')\n")
    async with loop_rig(tmp_path, standby=False, together=True) as rig:
        assert not rig.told("starting")
        rig.loop.begin(1, now=False)
        await rig.run_through(1)
        assert rig.loop.state == "ended" and not rig.told("starting", generation=2)
        rig.loop.begin(2, now=False)
        await rig.run_through(2)


async def test_a_run_that_failed_elsewhere_is_ended_and_pauses_too(tmp_path: Path) -> None:
    """Also if it had not begun here; a begin without delay ends the pause."""
    (tmp_path / "main.py").write_text("print('here')\n")
    async with loop_rig(tmp_path, standby=False, together=True) as rig:
        rig.loop.fail("train-1 has failed", 1)
        rig.loop.begin(1, now=False)
        assert (await rig.event("ended", generation=1))["why"] == "train-1 has failed"
        await rig.event("waiting", generation=1)
        rig.loop.begin(2, now=True)
        await rig.event("armed", generation=2)
        rig.loop.fail("train-1 has failed", 1)
        rig.loop.fail("train-1 has failed", 2)
        await rig.event("ended", generation=2)
        await rig.event("waiting", generation=2)
        await rig.loop.restart("restarted by you", 3)
        rig.loop.begin(3, now=True)
        assert (await rig.event("ended", generation=3))["why"] == "restarted by you"
        assert not rig.told("waiting", generation=3)


def test_the_end_of_a_run_that_has_not_begun_is_for_that_run_alone() -> None:
    turns = Turns(free=False)
    turns.end_later(DueEnd(3, "why", failed=False))
    assert turns.take_end(2) is None and turns.take_end(3) is None
    turns.end_later(DueEnd(3, "why", failed=True))
    assert turns.take_end(3) == DueEnd(3, "why", failed=True)
    alone = Turns(free=True)
    alone.end_later(DueEnd(1, "why", failed=False))
    assert alone.take_end(1) is None
