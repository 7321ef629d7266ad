"""`tk ranks` and `tk console` on many ranks of two nodes, beside what people do without them.

One job, one `tk loop srun`, everything in one run. All of it shares this machine with the ranks
themselves.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from benchlib.measure import Series, interleaved, timed
from benchlib.rankways import (
    Editor,
    Memory,
    Recipe,
    answered,
    console,
    control_paths,
    cpu_s,
    first_sight,
    look,
    looping,
    memory,
    py_spy,
    stand,
)
from benchlib.rig import Rig, wait_until
from tunnelkit import lab
from tunnelkit.session.runtime.paths import SessionPaths

RTTS_MS = (0.0, 60.0)
RANKS, SIGHT, LOOK, RECIPE, TWICE = (
    "tk ranks",
    "tk ranks on a terminal, until it shows where all are",
    "one look, as the session answers it",
    "srun --overlap, py-spy dump for each rank",
    "the same twice, a second apart",
)
ONE, ALL = "cast p 1 to one rank", "cast p 1 to all"
ALONE, BESIDE = "step of an editor alone", "step with a console beside it"
_STEPS = 5
#: Between two steps, as a key that is held down repeats.
_KEY_S = 0.05


@dataclass
class Found:
    """whole: ways to know where all are -> seconds; casts: RTT in ms -> ways -> ms; steps: ms.

    before, console_only: memory on the laptop. answer_cpu_ms: the session's CPU for one rank's
    answer. ranks_cpu_ms: that of all ranks together for a cast to all. no_recipe: why there is
    none. load: of the machine, in the end.
    """

    ranks: int
    whole: dict[str, Series] = field(default_factory=dict)
    casts: dict[float, dict[str, Series]] = field(default_factory=dict)
    steps: dict[str, Series] = field(default_factory=dict)
    before: Memory = field(default_factory=lambda: Memory(0, 0, 0))
    console_only: Memory = field(default_factory=lambda: Memory(0, 0, 0))
    answer_cpu_ms: float = 0.0
    ranks_cpu_ms: float = 0.0
    starts_s: float = 0.0
    no_recipe: str = ""
    load: float = 0.0


def cpus_of(ranks: int) -> int:
    """CPUs that each of the two nodes needs."""
    return max(4, -(-ranks // 2))


def run(rig: Rig, ranks: int, rounds: int) -> Found:
    """All rows, on a lab whose nodes have the CPUs."""
    found = Found(ranks)
    rig.tk("up", "--nodes", "2", "--cpus", str(-(-ranks // 2)))
    try:
        status = rig.status()
        pid, job, paths = status["pid"], status["job"], control_paths(rig)
        assert isinstance(pid, int) and isinstance(job, dict)
        found.before = memory(rig, pid)
        began_s = time.monotonic()
        with looping(rig, paths, ranks):
            found.starts_s = time.monotonic() - began_s
            asyncio.run(_consoles(rig, paths, pid, rounds, found))
            _looks(rig, paths, str(job["id"]), rounds, found)
    finally:
        rig.down()
    found.load = os.getloadavg()[0]
    return found


# -- a console ------------------------------------------------------------------------------------


async def _consoles(rig: Rig, paths: SessionPaths, pid: int, rounds: int, found: Found) -> None:
    os.chdir(rig.project)
    async with console(paths) as shell:
        await stand(shell, paths, found.ranks)
        # The last rank is on the node that is not the agent's own, as half of all are: who asks all
        # waits for these, too.
        lines = {ONE: f"cast ranks({found.ranks - 1}) p 1", ALL: "cast ranks(:) p 1"}
        for line in lines.values():
            await answered(shell, line)  # the ranks have the console's code
        found.console_only = memory(rig, pid)
        for rtt_ms in RTTS_MS:
            lab.set_rtt(rtt_ms, rig.info.dir)
            rows = found.casts.setdefault(rtt_ms, {name: Series() for name in lines})
            for name in interleaved(list(lines), rounds, f"casts at RTT {rtt_ms:g}"):
                start = time.perf_counter()
                await answered(shell, lines[name])
                rows[name].values.append((time.perf_counter() - start) * 1e3)
        lab.set_rtt(0, rig.info.dir)
        samples = (await asyncio.to_thread(look, paths))["looks"][-1]["samples"]
        spent_s, ranks_s = cpu_s(pid), sum(cpu_s(one["pid"]) for one in samples)
        for _ in range(rounds):
            await answered(shell, lines[ALL])
        found.answer_cpu_ms = (cpu_s(pid) - spent_s) / (rounds * found.ranks) * 1e3
        ranks_s = sum(cpu_s(one["pid"]) for one in samples) - ranks_s
        found.ranks_cpu_ms = ranks_s / rounds * 1e3
    editor = Editor(rig)
    await editor.attach()
    await _steps(editor, paths, rounds, found)
    async with console(paths) as shell:
        # With a console there, the rank stays where it is.
        await editor.close()
        await asyncio.to_thread(wait_until, lambda: not _editors(rig), "the editor's end")
        (rig.project / "sleep").touch()
        wait_until((rig.remote_project / "sleep").exists, "the file `sleep` on the node")
        await answered(shell, "c")


def _editors(rig: Rig) -> list[str]:
    loops = rig.status()["loops"]
    assert isinstance(loops, list)
    return [loop["editor"] for loop in loops if loop["editor"]]


async def _steps(editor: Editor, paths: SessionPaths, rounds: int, found: Found) -> None:
    found.steps = {ALONE: Series(), BESIDE: Series()}
    for name in interleaved([ALONE, BESIDE], rounds, "steps"):
        if name == ALONE:
            found.steps[name].values.append(await _median_step_ms(editor))
            continue
        async with console(paths):
            found.steps[name].values.append(await _median_step_ms(editor))


async def _median_step_ms(editor: Editor) -> float:
    await editor.step_ms()
    times_ms = Series()
    for _ in range(_STEPS):
        await asyncio.sleep(_KEY_S)
        times_ms.values.append(await editor.step_ms())
    return times_ms.median


# -- where is everyone ----------------------------------------------------------------------------


def _looks(rig: Rig, paths: SessionPaths, job: str, rounds: int, found: Found) -> None:
    ways: dict[str, Callable[[], object]] = {
        RANKS: partial(rig.tk, "ranks"),
        SIGHT: partial(first_sight, rig, found.ranks),
        LOOK: partial(look, paths),
    }
    program = py_spy()
    if program is None:
        found.no_recipe = "py-spy is not installed (scripts/setup --bench)"
    else:
        recipe = Recipe(rig, program, job, look(paths))
        ways[RECIPE], ways[TWICE] = recipe.run, recipe.run_twice
    for work in ways.values():
        work()  # files are in the cache, and the ranks have the code that answers
    found.whole = {name: Series() for name in ways}
    for name in interleaved(list(ways), rounds, "looks"):
        found.whole[name].values.append(timed(ways[name]))
