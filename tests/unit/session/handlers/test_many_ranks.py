"""1,024 ranks that answer from a record, through the session's handlers and a whole console."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tunnelkit.cli.views import console_shell
from tunnelkit.cli.views.ranks_text import view_of
from tunnelkit.debug.dap.messages import Message, parse
from tunnelkit.debug.rank_looks import look
from tunnelkit.debug.ranks.sample import RankState
from tunnelkit.debug.ranks.selection import parse_selection
from tunnelkit.debug.ranks_view.describe import describe
from tunnelkit.debug.ranks_view.rank_lines import rank_lines
from tunnelkit.debug.ranks_view.view_json import look_json
from tunnelkit.mux.dap_framing import DapReader
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.session.handlers import ranks as ranks_handler
from tunnelkit.session.handlers.console import _ROSTER_GAP_S, ConsoleServer
from tunnelkit.session.handlers.ranks import RankLooks
from tunnelkit.session.runtime.control_calls import Ranks

sys.path.insert(0, str(Path(__file__).parents[4] / "scripts"))
from benchlib.ranksim import SimRanks, console, pipes

RANKS = 1024
LATE, ODD = 47, 700


def value(rank: int, expression: str) -> str:
    if "rank" in expression:
        return str(rank)
    return "nan" if rank == ODD else "0.4127"


@pytest.fixture(autouse=True)
def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A console shows its answers after 1 s, `tk ranks` after 1.5 s: a busy machine is slower."""
    monkeypatch.setattr(console_shell, "_now", lambda: 100.0)
    monkeypatch.setattr(ranks_handler, "look", partial(look, patience_s=60.0))


async def stopped() -> SimRanks:
    sim = SimRanks(RANKS, value, late=frozenset({LATE}))
    sim.stop()
    await asyncio.sleep(0)
    return sim


async def test_1024_ranks_are_listed_and_cast_to_and_their_answers_folded() -> None:
    sim, shown = await stopped(), list[str]()
    async with console(sim, shown.extend) as (shell, _):
        assert shown == ["1,024 ranks on 128 nodes · srun python train.py · 1024 stopped"]
        shown.clear()
        await shell.give("list", last=True)
        rows = [line.split()[:4] for line in shown]
        assert rows == [
            ["ranks", "n", "where", "state"],
            ["A", "0-46,48-1023", "1023", "distributed_c10d.py:3252"],
            ["B", "47", "1", "data.py:31"],
        ]
        shown.clear()
        await shell.give("p loss", last=True)
        assert shown == ["0-699,701-1023  0.4127", "700             nan"]
        # Each is asked once, and in one message.
        assert [one.asked.count("evaluate") for one in sim.ranks] == [3] * RANKS
        shown.clear()
        await shell.give("p rank", last=True)
        assert shown[0] == "all different: 0 to 1023 (p! for a line each)"
        cells = " ".join(shown[1:]).split()
        pairs = {
            int(rank): int(number) for rank, number in zip(cells[::2], cells[1::2], strict=True)
        }
        assert pairs == {rank: rank for rank in range(RANKS)}


async def test_those_of_1024_that_do_not_answer_are_named() -> None:
    sim, shown = await stopped(), list[str]()
    async with console(sim, shown.extend) as (shell, far):
        await shell.give("p loss", last=True)
        sim.ranks[3].mute = sim.ranks[900].mute = True
        shown.clear()
        sent = far.sent
        shell.type("p 1")
        while far.sent < sent + RANKS - 2 or not far.is_read():
            await asyncio.sleep(0)
        shell.interrupt()
        await shell.idle()
        assert shown[-1] == f"{RANKS - 2} of {RANKS} answered"
        assert "3,900       has not answered yet" in [line.rstrip() for line in shown]


async def test_the_late_one_of_1024_is_found() -> None:
    sim = SimRanks(RANKS, value, late=frozenset({LATE}))
    answer = await RankLooks(sim.session).look(Ranks(gap_s=0.01))
    view = view_of(answer)
    [arrival] = view.arrivals
    assert (arrival.operation, arrival.sequence) == ("all_reduce", 1204)
    assert [one.rank for one in arrival.late] == [LATE]
    assert [one.ranks for one in view.classes][1] == (LATE,)
    text = " ".join(describe(view))
    assert "1024 ranks on 128 nodes" in text and "all answered" in text
    assert "rank 47 has not reached all_reduce #1204 of the group world" in text


async def test_ranks_that_have_not_dialled_in_are_named() -> None:
    sim = SimRanks(RANKS, value)
    for rank in (3, 900):
        sim.run.targets.remove(sim.targets[rank])
    answer = await RankLooks(sim.session).look(Ranks(gap_s=0.01))
    assert answer["absent"] == [3, 900]
    view = view_of(answer)
    found = look_json(view)
    assert (found["total"], found["answered"], found["absent"]) == (RANKS, RANKS - 2, [3, 900])
    [arrival] = view.arrivals
    assert arrival.absent == (3, 900) and arrival.late == ()
    lines = describe(view)
    assert lines[0].startswith(f"{RANKS - 2} of {RANKS} ranks on 128 nodes")
    assert "ranks 3,900 have not dialled in" in lines
    assert f"{RANKS - 2} of {RANKS} answered" in " ".join(lines)
    assert rank_lines(view)[-1] == "ranks 3,900 have not dialled in"
    # A choice of others does not miss them.
    some = view_of(answer, parse_selection("0-7"))
    assert (some.total(), some.absent) == (7, [])
    shown = list[str]()
    async with console(sim, shown.extend):
        words = " ".join(shown)
    assert words.startswith("1,022 of 1,024 ranks on 128 nodes")
    assert words.endswith("1022 running · ranks 3,900 have not dialled in")


@pytest.mark.parametrize("ended", [True, False])
async def test_ranks_that_ended_and_those_not_to_debug_are_not_missed(ended: bool) -> None:
    sim = SimRanks(8, value)
    if ended:
        sim.targets[3].over = True
    else:
        sim.run.targets.remove(sim.targets[3])
        sim.loop.info["ranks"] = {"only": [0, 1, 2, 4, 5, 6, 7]}
    answer = await RankLooks(sim.session).look(Ranks(gap_s=0))
    assert answer["absent"] == []
    sim.run.targets[:] = sim.targets[:1]
    # Others may have ended before a session was killed.
    sim.loop.adopted_run = 1
    assert (await RankLooks(sim.session).look(Ranks(gap_s=0)))["absent"] == []
    sim.loop.adopted_run = 0
    # An attachment is one rank of many.
    sim.loop.info.pop("ranks", None)
    sim.loop.ranked = False
    assert (await RankLooks(sim.session).look(Ranks(gap_s=0)))["absent"] == []


async def test_a_second_question_goes_on_from_the_first() -> None:
    sim = SimRanks(8, value, late=frozenset({3}))
    looks = RankLooks(sim.session)
    first = await looks.look(Ranks(gap_s=0, again=True))
    assert len(first["looks"]) == 1
    both = await looks.look(Ranks(gap_s=0.01, again=True))
    assert both["looks"][0] == first["looks"][-1] and len(both["looks"]) == 2
    # Each rank was asked twice, not three times.
    assert [one.asked.count("evaluate") for one in sim.ranks] == [2] * 8
    # Another run has not been looked at.
    sim.run.number = 2
    assert len((await looks.look(Ranks(gap_s=0, again=True)))["looks"]) == 1


async def test_two_who_look_at_the_same_moment_share_the_answers() -> None:
    sim = SimRanks(8, value, late=frozenset({3}))
    both = await asyncio.gather(*(look(sim.targets, 60.0) for _ in range(2)))
    assert [one.state for one in both[0]] == [RankState.RUNNING] * 8
    assert both[1] == both[0]
    assert [one.asked.count("evaluate") for one in sim.ranks] == [1] * 8
    # One that hangs is not asked again.
    sim.ranks[5].mute = True
    questions = []
    for _ in range(2):
        samples = await look(sim.targets, 0.01)
        assert sim.ranks[5].rank in [one.rank for one in samples if one.state is RankState.SILENT]
        questions.append(sim.targets[5].asked.look)
    assert questions[0] is questions[1]


async def test_ranks_that_change_one_after_another_are_told_together() -> None:
    """A roster has all ranks: one for each change would be a million entries."""
    sim = SimRanks(RANKS, value)
    near, far = pipes()
    server = ConsoleServer(sim.session, sim.loop, far)
    loop = asyncio.get_running_loop()
    serving = asyncio.create_task(server.run())
    rosters: list[Message] = []
    try:
        frames = DapReader()
        began_s = loop.time()
        while not rosters:
            rosters += _rosters(frames, await near.read())
        for target in sim.targets:
            target.debugged_pid += 100_000
            sim.wake()
            await asyncio.sleep(0)
        # The last one has everything.
        while _pids(rosters[-1]) != [120_000 + rank for rank in range(RANKS)]:
            rosters += _rosters(frames, await near.read())
        took_s = loop.time() - began_s
        with suppress(TimeoutError):
            async with asyncio.timeout(2 * _ROSTER_GAP_S):
                raise AssertionError(await near.read())
    finally:
        near.close()
        await cancel_all(serving)
    assert len(rosters) <= took_s / _ROSTER_GAP_S + 2


def _rosters(frames: DapReader, data: bytes) -> list[Message]:
    messages = [parse(body) for body in frames.feed(data)]
    return [one for one in messages if one["type"] == "roster"]


def _pids(roster: Message) -> list[object]:
    ranks = roster["ranks"]
    assert isinstance(ranks, list)
    return [one["pid"] for one in ranks]
