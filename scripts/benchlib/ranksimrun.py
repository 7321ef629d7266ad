"""`scripts/bench ranks --simulate`: what 1,024 ranks cost the laptop, without any of them.

Processor time of one process that is both session and command; the ranks answer from a record.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field

from benchlib.measure import Series
from benchlib.ranksim import SimRanks, console
from benchlib.rankways import pss_bytes
from benchlib.report import table
from tunnelkit.cli.views.ranks_text import view_of
from tunnelkit.debug.ranks_view.describe import describe
from tunnelkit.session.handlers.ranks import RankLooks
from tunnelkit.session.runtime.control_calls import Ranks

SIMULATED = 1024
OPEN, LIST, FIRST_CAST, CAST, ALL_DIFFER, COMING, LOOK, CLASSES = (
    "console opens: each rank is asked where it is",
    "list",
    "p loss, the first time: frames and code first",
    "p loss, folded",
    "p rank, a grid",
    "each rank changes the list of ranks",
    "tk ranks: two questions to each rank, and the answer as JSON",
    "tk ranks: classes, who is late, text",
)
_GOAL_S, _GOAL_MB = 1.0, 0.4
_LATE = 47


@dataclass
class Simulated:
    """cpu_s: rows -> seconds, one a round. rank_bytes: memory for each rank, all in all. texts: the
    answer to `tk ranks`, then what it prints."""

    ranks: int
    cpu_s: dict[str, Series] = field(default_factory=dict)
    rank_bytes: Series = field(default_factory=Series)
    texts: list[str] = field(default_factory=list)

    def add(self, name: str, cpu_s: float) -> None:
        """Add a value to a row."""
        self.cpu_s.setdefault(name, Series()).values.append(cpu_s)

    async def spend(self, name: str, work: Awaitable[object]) -> None:
        """Measure some work."""
        start_s = time.process_time()
        await work
        self.add(name, time.process_time() - start_s)


def run(ranks: int, rounds: int) -> Simulated:
    """All rows, each round with new ranks."""
    found = Simulated(ranks)
    for _ in range(rounds):
        asyncio.run(_round(found))
    return found


def lines(found: Simulated) -> list[str]:
    """Markdown."""
    out = table(f"{found.ranks} simulated ranks", {"CPU s": found.cpu_s}, digits=2)
    out.append("")
    for name in (LIST, CAST, ALL_DIFFER):
        value_s = found.cpu_s[name].median
        missed = "" if value_s <= _GOAL_S else ", MISSED"
        out.append(f"- {name}: **{value_s:.2f} s** (target ≤ {_GOAL_S:g} s{missed})")
    mb = max(found.rank_bytes.values) / 1e6  # later rounds use what earlier ones have given back
    missed = "" if mb <= _GOAL_MB else ", MISSED"
    out.append(
        f"- memory a rank, session and console, without adapters: **{mb:.3f} MB** "
        f"(target ≤ {_GOAL_MB:g} MB{missed})"
    )
    return out


def _value(rank: int, expression: str) -> str:
    return str(rank) if "rank" in expression else "0.4127"


async def _round(found: Simulated) -> None:
    gc.collect()
    before_bytes = pss_bytes("self")
    sim = SimRanks(found.ranks, _value, late=frozenset({_LATE}))
    sim.stop()
    await asyncio.sleep(0)
    start_s = time.process_time()
    async with console(sim, lambda _lines: None) as (shell, _):
        found.add(OPEN, time.process_time() - start_s)
        for name, line in (
            (LIST, "list"),
            (FIRST_CAST, "p loss"),
            (CAST, "p loss"),
            (ALL_DIFFER, "p rank"),
        ):
            await found.spend(name, shell.give(line, last=True))
            if not shell.results[-1].all_answered:
                raise RuntimeError(f"{line}: {shell.results[-1].unanswered}")
        gc.collect()
        found.rank_bytes.values.append((pss_bytes("self") - before_bytes) / found.ranks)
        await found.spend(COMING, _come(sim))
        await shell.give("c", last=True)
    await found.spend(LOOK, _look(sim, found.texts))
    await found.spend(CLASSES, _describe(found.texts))


async def _come(sim: SimRanks) -> None:
    """Change each rank, with a turn of the loop between."""
    for target in sim.targets:
        target.debugged_pid += 1
        sim.wake()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def _look(sim: SimRanks, texts: list[str]) -> None:
    texts[:] = [json.dumps(await RankLooks(sim.session).look(Ranks(gap_s=0.01)))]


async def _describe(texts: list[str]) -> None:
    texts[:] = describe(view_of(json.loads(texts[0])))
    said = " ".join(texts)
    if f"rank {_LATE} has not reached all_reduce" not in said:
        raise RuntimeError(f"the late rank is not named: {said}")
