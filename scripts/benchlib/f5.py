"""F5 on tk's port, on stock debugpy through `ssh -J -L`, and on debugpy of this machine.

All three are armed and idle when the clock starts; all run the same script under the same
debugpy with the same editor, one after the other in every round. Login is behind the lab's
proxy at each round-trip time, 0 included.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median

from benchlib.f5editor import Round, Target, play, press, run_out
from benchlib.f5ways import (
    LOCAL,
    STOCK,
    TK,
    TkWay,
    Tunnel,
    Way,
    far_shell,
    listen_command,
    local_way,
    stock_way,
    tk_way,
    tunnel,
)
from benchlib.measure import Series, interleaved
from benchlib.rig import Rig, listener, wait_until
from tunnelkit import lab

STOPPED = "connect to stopped"
AGAIN = "`terminated` to next stopped"
AGAIN_FROM_CONTINUE = "`continue` to next stopped"
LOCALS = "connect to locals on screen"
STEP, STEP_LOCALS = "step", "step to locals on screen"
HOVER = "hover on a name"
TORCH = "torch"
WARM, COLD = "tk loop --preload torch, F5 to stopped", "python -m debugpy, start to stopped"
_SCRIPT = """import sys

total = 0
total += 1
total += 2
total += 3
total += 4
total += 5
total += 6
print(total, file=sys.stderr)
"""
_STOP_LINE = 3
_TORCH_SCRIPT = """import torch
total = torch.ones(3).sum()
"""
_TORCH_LINE = 2
_GET_TORCH = (
    "install it where scripts/bench runs: "
    "pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu"
)

Rows = dict[str, Series]


@dataclass
class Found:
    """RTT in ms -> row -> one value a round; refusals RTT -> way -> (refused, hung, rounds with
    any, rounds); torch rows, or None with the reason why not."""

    rows: dict[float, Rows] = field(default_factory=dict)
    refusals: dict[float, dict[str, tuple[int, int, int, int]]] = field(default_factory=dict)
    torch: Rows | None = None
    no_torch: str = ""
    load: list[float] = field(default_factory=list)


def row(measure: str, way: str) -> str:
    """The table's name for a way in a measure."""
    return f"{measure}: {way}"


def run(rig: Rig, rtts_ms: list[float], rounds: int, found: Found) -> None:
    """All at these distances, in one session over one lab, added to `found`."""
    script, torch_script = rig.project / "2.py", rig.project / "with_torch.py"
    script.write_text(_SCRIPT)
    torch_script.write_text(_TORCH_SCRIPT)
    with rig.session(), tunnel(rig) as way:
        with ExitStack() as stack:
            ways: dict[str, Way] = {
                TK: stack.enter_context(tk_way(rig, script, _STOP_LINE)),
                STOCK: stack.enter_context(stock_way(rig, way, script, _STOP_LINE)),
                LOCAL: stack.enter_context(local_way(rig, script, _STOP_LINE)),
            }
            _play_all(ways, 1, "warm-up")  # every file is in the cache
            for rtt_ms in rtts_ms:
                lab.set_rtt(rtt_ms, rig.info.dir)
                seen = _play_all(ways, rounds, f"F5 at RTT {rtt_ms:g}")
                found.rows[rtt_ms] = _rows(seen)
                found.refusals[rtt_ms] = {name: _refusals(one) for name, one in seen.items()}
                found.load.append(os.getloadavg()[0])
        lab.set_rtt(0, rig.info.dir)
        if found.torch is not None or found.no_torch:
            return
        if way.run("python -c 'import torch'") == 0:
            try:
                found.torch = _torch(rig, way, rounds)
            except RuntimeError as error:  # what was measured before is worth telling
                found.no_torch = str(error)
        else:
            found.no_torch = f"`python` on the node can't import torch; to have it: {_GET_TORCH}"


def _play_all(ways: dict[str, Way], rounds: int, what: str) -> dict[str, list[Round]]:
    seen: dict[str, list[Round]] = {name: [] for name in ways}
    for name in interleaved(list(ways), rounds, what):
        ways[name].arm()
        seen[name].append(asyncio.run(play(ways[name].target)))
    return seen


def _rows(seen: dict[str, list[Round]]) -> Rows:
    values: list[tuple[str, Callable[[Round], float]]] = [
        (STOPPED, lambda one: one.stopped_ms),
        (AGAIN, lambda one: one.again_ms),
        (AGAIN_FROM_CONTINUE, lambda one: one.again_from_continue_ms),
        (LOCALS, lambda one: one.locals_ms),
        (STEP, lambda one: median(one.steps_ms)),
        (STEP_LOCALS, lambda one: median(one.step_locals_ms)),
        (HOVER, lambda one: median(one.hovers_ms)),
    ]
    return {
        row(measure, name): Series([value(one) for one in rounds])
        for measure, value in values
        for name, rounds in seen.items()
    }


def _refusals(rounds: list[Round]) -> tuple[int, int, int, int]:
    refused, hung = sum(one.refused for one in rounds), sum(one.hung for one in rounds)
    return refused, hung, sum(1 for one in rounds if one.refused or one.hung), len(rounds)


# -- torch ------------------------------------------------------------------------------------


def _torch(rig: Rig, way: Tunnel, rounds: int) -> Rows:
    script = rig.project / "with_torch.py"
    rows = {WARM: Series(), COLD: Series()}
    with tk_way(rig, script, _TORCH_LINE, "--preload", "torch") as warm:
        warm.arm()
        asyncio.run(_warm_ms(warm))
        for name in interleaved([WARM, COLD], rounds, TORCH):
            if name == WARM:
                warm.arm()
                value = asyncio.run(_warm_ms(warm))
            else:
                value = _cold_ms(rig, way, warm.target)
            rows[name].values.append(value)
    return rows


async def _warm_ms(way: TkWay) -> float:
    stop = await press(way.target)
    await run_out(stop)
    return stop.took_ms


def _cold_ms(rig: Rig, way: Tunnel, target: Target) -> float:
    """From the process's start: the editor comes as soon as the port lets it."""
    remote = str(rig.remote_project / "with_torch.py")
    cold = Target(way.near, target.script, target.line, target.mappings)
    command = f"read go && {listen_command(way.far, remote)} >&2"
    with far_shell(way, command) as shell:
        assert shell.stdin is not None
        start = time.perf_counter()
        shell.stdin.write(b"go\n")
        shell.stdin.flush()
        # No retries here: they would hold up a start by their own work.
        wait_until(lambda: listener(way.far) is not None, "debugpy --listen")
        took_ms = asyncio.run(_cold_stop(cold, start))
        shell.wait(20.0)
    return took_ms


async def _cold_stop(target: Target, start: float) -> float:
    stop = await press(target)
    await run_out(stop)
    return (stop.stopped - start) * 1e3
