"""The tables of `scripts/bench ranks`, with what the project set itself."""

from __future__ import annotations

import os

from benchlib.f5report import within
from benchlib.measure import Series, ratio
from benchlib.ranks import ALL, ALONE, BESIDE, LOOK, ONE, RANKS, RECIPE, SIGHT, TWICE, Found
from benchlib.report import Measures, table, verdict

_MANY = 256
_MANY_CAST_MS, _MANY_MB = 3000.0, 250.0


def measures(found: Found) -> dict[str, dict[str, Series]]:
    """measure -> way -> series, for the tables and for JSON."""
    casts = {f"RTT {rtt_ms:g}, ms": rows for rtt_ms, rows in found.casts.items()}
    return {"whole, s": found.whole, **casts, "step, ms": found.steps}


def lines(found: Found) -> list[str]:
    """Markdown."""
    casts: Measures = {f"RTT {rtt_ms:g} ms": rows for rtt_ms, rows in found.casts.items()}
    return [
        *table(f"where {found.ranks} ranks are", {"s": found.whole}, digits=2),
        *table(f"console, {found.ranks} ranks, ms", casts, digits=1),
        *table("editor on one of them", {"ms": found.steps}, digits=1),
        "",
        *_look_lines(found),
        *_cast_lines(found),
        verdict(
            "an editor's step, with a console / alone",
            ratio(found.steps[BESIDE], found.steps[ALONE]),
            1.1,
            at_least=False,
        ),
        *_memory_lines(found),
        f"- all {found.ranks} ranks had started and waited after {found.starts_s:.0f} s; "
        f"load of the machine in the end: {found.load:.1f}",
    ]


def _look_lines(found: Found) -> list[str]:
    if found.no_recipe:
        return [f"- where they are, without tk: not measured: {found.no_recipe}"]
    recipe = found.whole[RECIPE]
    return [
        verdict(f"{RANKS} / {RECIPE}", ratio(found.whole[RANKS], recipe), 0.2, at_least=False),
        verdict(f"{SIGHT} / {RECIPE}", ratio(found.whole[SIGHT], recipe), 0.2, at_least=False),
        verdict(f"{LOOK} / {RECIPE}", ratio(found.whole[LOOK], recipe), 0.2, at_least=False),
        "- `tk ranks` looks twice, a second apart, and so tells what moves; py-spy looks once. "
        f"{RANKS} / {TWICE}: {ratio(found.whole[RANKS], found.whole[TWICE]):.3g}x",
        "- the recipe is given the pids and a shell on the login host, and nobody reads its files",
    ]


def _cast_lines(found: Found) -> list[str]:
    out = []
    for rtt_ms, rows in found.casts.items():
        value = ratio(rows[ALL], rows[ONE])
        what = f"RTT {rtt_ms:g}, {ALL} {found.ranks} / to one"
        out.append(
            verdict(what, value, 1.5, at_least=False) if rtt_ms else f"- {what}: {value:.3g}x"
        )
        if found.ranks >= _MANY:
            out.append(within(f"RTT {rtt_ms:g}, {ALL}", rows[ALL].median, _MANY_CAST_MS))
    within_ms = "" if found.answer_cpu_ms <= 0.3 else ", MISSED"
    out.append(
        f"- the session's CPU for one rank's answer: **{found.answer_cpu_ms:.2f} ms** "
        f"(target ≤ 0.3 ms{within_ms})"
    )
    out.append(
        f"- the ranks' own CPU for a cast to all: {found.ranks_cpu_ms:.0f} ms, all of it on this "
        f"machine's {os.cpu_count()} CPUs; on a cluster each rank has its own"
    )
    return out


def _memory_lines(found: Found) -> list[str]:
    now, before = found.console_only, found.before
    rank_mb = (now.bytes - before.bytes) / found.ranks / 1e6
    session_mb = (now.session_bytes - before.session_bytes) / found.ranks / 1e6
    adapters = now.adapters - before.adapters
    missed = "" if rank_mb <= 0.4 else ", MISSED"
    out = [
        f"- laptop's memory (PSS) a rank, console only: **{rank_mb:.2f} MB** (target ≤ 0.4 MB"
        f"{missed}): session {session_mb:.2f} MB, the rest {adapters} processes for adapters",
        f"- the session alone has {now.session_bytes / 1e6:.0f} MB, "
        f"{before.session_bytes / 1e6:.0f} MB before the ranks; all adapters "
        f"{now.adapters_bytes / 1e6:.0f} MB",
    ]
    if found.ranks >= _MANY:
        mb = now.session_bytes / 1e6
        missed = "" if mb <= _MANY_MB else ", MISSED"
        out.append(
            f"- the session with {found.ranks} ranks: **{mb:.0f} MB** "
            f"(target ≤ {_MANY_MB:g} MB{missed})"
        )
    return out
