"""Parallel jobs of which one rank holds up the others."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from tunnelkit.diagnosis.evidence.window import NodeWindow
from tunnelkit.diagnosis.running.look import Look, mean, percent, users_of
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict

#: With fewer nobody can say which one differs.
_FEWEST = 3
_DIFFERS = 0.30
_SPINS = 80.0
_LOW_POWER = 0.5


@dataclass(frozen=True, slots=True)
class _Rank:
    """One rank. run, wait: its CPUs. busy, power_w: of its GPUs; None if it has none."""

    number: int
    window: NodeWindow
    run: float
    wait: float
    busy: float | None
    power_w: float | None


def straggler(look: Look) -> tuple[int, Verdict] | None:
    """Return the rank that differs from all others, with the verdict."""
    ranks = _ranks(look)
    if len(ranks) < _FEWEST:
        return None
    return _by_power(look, ranks) or _by_cpu(look, ranks)


def _ranks(look: Look) -> list[_Rank]:
    numbers = sorted({one.rank for _, one in look.programs() if one.rank is not None})
    found = []
    for number in numbers:
        mine = look.only_rank(number)
        programs = mine.programs()
        if not programs:
            continue
        window = programs[0][0]
        gpus = [gpu for where, gpu in mine.gpus() if users_of(where, gpu) and gpu.busy]
        found.append(
            _Rank(
                number,
                window,
                sum(one.run + one.children for _, one in programs),
                sum(one.wait for _, one in programs),
                mean(mean(gpu.busy) for gpu in gpus) if gpus else None,
                mean(mean(gpu.power_w) for gpu in gpus)
                if gpus and all(gpu.power_w for gpu in gpus)
                else None,
            )
        )
    return found


def _by_power(look: Look, ranks: list[_Rank]) -> tuple[int, Verdict] | None:
    """GPUs that spin in a collective are fully busy, at a fraction of the power."""
    powers = [one.power_w for one in ranks]
    known = [power for power in powers if power is not None]
    if len(known) < len(ranks):
        return None
    highest = max(known)
    spinning = [
        one
        for one in ranks
        if (one.busy or 0) >= _SPINS and (one.power_w or 0) < _LOW_POWER * highest
    ]
    others = [one for one in ranks if one not in spinning]
    if len(others) != 1:
        return None
    slow = others[0]
    watts = mean(one.power_w or 0.0 for one in spinning)
    because = Evidence(
        f"{len(spinning)} GPUs are {mean(one.busy or 0.0 for one in spinning):.0f} % busy at "
        f"{watts:.0f} W: they wait in a collective; that of rank {slow.number}: "
        f"{slow.busy or 0:.0f} %, {slow.power_w or 0:.0f} W",
        slow.window.gpu_source,
        "GPUs",
    )
    return slow.number, _verdict(slow, len(spinning), because)


def _by_cpu(look: Look, ranks: list[_Rank]) -> tuple[int, Verdict] | None:
    """One rank computes while all others wait; or it lacks a CPU while all others spin."""
    for slow in ranks:
        others = [one for one in ranks if one is not slow]
        runs = [one.run for one in others]
        if max(runs) - min(runs) > _DIFFERS:
            continue
        usual = median(runs)
        works_alone = slow.run - usual > _DIFFERS and usual < 0.5
        starves = usual - slow.run > _DIFFERS and slow.wait > _DIFFERS
        if not works_alone and not starves and not _starves_by_threads(slow, others):
            continue
        because = Evidence(
            f"CPU of rank {slow.number}: {percent(slow.run)}, it waits {slow.wait:.1f} s/s for "
            f"one; of the others: {percent(usual)} each",
            "/proc/PID/task/TID/schedstat",
            "CPU",
        )
        return slow.number, _verdict(slow, len(others), because)
    return None


def _starves_by_threads(slow: _Rank, others: list[_Rank]) -> bool:
    """True if its threads wait for CPUs, and no other rank's do."""
    return slow.wait > 1.0 and max(one.wait for one in others) < _DIFFERS


def _verdict(slow: _Rank, others: int, because: Evidence) -> Verdict:
    return Verdict(
        "straggler",
        f"is slow: {others} ranks wait for rank {slow.number} on {slow.window.node}",
        Certainty.LIKELY,
        (because,),
        next_steps=(
            NextStep("in a session, see where each rank is", "tk ranks --native"),
            NextStep("share the work evenly, or leave that node out"),
        ),
    )
