"""The tables of `scripts/bench f5`, with what the project set itself."""

from __future__ import annotations

from benchlib.f5 import (
    AGAIN,
    AGAIN_FROM_CONTINUE,
    COLD,
    LOCALS,
    STEP,
    STEP_LOCALS,
    STOPPED,
    WARM,
    Found,
    Rows,
    row,
)
from benchlib.f5ways import LOCAL, STOCK, TK
from benchlib.measure import Series, ratio
from benchlib.report import table, verdict

_HANDSHAKE_RTTS, _HANDSHAKE_MS = 2, 40.0
_LOCALS_RTTS, _LOCALS_MS = 2, 60.0
_STEP_RTTS, _STEP_MS, _STEP_HERE_MS = 1, 20.0, 12.0


def lines(found: Found) -> list[str]:
    """Markdown."""
    columns = {f"RTT {rtt:g} ms": rows for rtt, rows in found.rows.items()}
    out = table("F5, ms", columns, digits=1)
    out.append("")
    for rtt_ms, rows in found.rows.items():
        out += _verdicts(rtt_ms, rows)
        out += _refusals(rtt_ms, found.refusals[rtt_ms])
    out += _torch(found)
    load = ", ".join(f"{value:.1f}" for value in found.load)
    out.append(f"- load of the machine after each round-trip time: {load}")
    return out


def _verdicts(rtt_ms: float, rows: Rows) -> list[str]:
    at = f"RTT {rtt_ms:g}"
    tk, stock, local = (rows[row(STOPPED, way)] for way in (TK, STOCK, LOCAL))
    out = []
    if rtt_ms:
        limit_ms = _HANDSHAKE_RTTS * rtt_ms + _HANDSHAKE_MS
        what = f"{at}, {STOPPED}, tk against {_HANDSHAKE_RTTS} RTT + {_HANDSHAKE_MS:g} ms"
        out.append(within(what, tk.median, limit_ms))
        out.append(f"- {at}, {STOPPED}, tk / stock: {ratio(tk, stock):.3g}x")
    else:
        what = f"{at}, {STOPPED}, tk / stock"
        out.append(verdict(what, ratio(tk, stock), 0.15, at_least=False))
        what = f"{at}, {STOPPED}, tk / debugpy on this machine"
        out.append(verdict(what, ratio(tk, local), 1.0, at_least=False))
    value = ratio(rows[row(AGAIN, TK)], rows[row(AGAIN, STOCK)])
    out.append(verdict(f"{at}, {AGAIN}, tk / stock loop", value, 0.3, at_least=False))
    value = ratio(rows[row(AGAIN_FROM_CONTINUE, TK)], rows[row(AGAIN_FROM_CONTINUE, STOCK)])
    # tk tells `terminated` once the whole process group is gone: so with that, too.
    out.append(f"- {at}, {AGAIN_FROM_CONTINUE}, tk / stock loop: {value:.3g}x")
    step = rows[row(STEP, TK)]
    ideal = Series([value + rtt_ms for value in rows[row(STEP, LOCAL)].values])
    what = f"{at}, {STEP}, tk / (RTT + step on this machine)"
    out.append(verdict(what, ratio(step, ideal), 1.15, at_least=False))
    limit_ms = _LOCALS_RTTS * rtt_ms + _LOCALS_MS
    what = f"{at}, {LOCALS}, tk against {_LOCALS_RTTS} RTT + {_LOCALS_MS:g} ms"
    out.append(within(what, rows[row(LOCALS, TK)].median, limit_ms))
    stepped = rows[row(STEP_LOCALS, TK)]
    limit_ms = _STEP_RTTS * rtt_ms + _STEP_MS if rtt_ms else _STEP_HERE_MS
    out.append(within(f"{at}, {STEP_LOCALS}, tk", stepped.median, limit_ms))
    value = ratio(stepped, rows[row(STEP_LOCALS, STOCK)])
    if rtt_ms:
        out.append(verdict(f"{at}, {STEP_LOCALS}, tk / stock", value, 0.25, at_least=False))
    else:
        out.append(f"- {at}, {STEP_LOCALS}, tk / stock: {value:.3g}x")
    return out


def within(what: str, value_ms: float, limit_ms: float) -> str:
    """One line: a time against a limit."""
    missed = "" if value_ms <= limit_ms else ", MISSED"
    return f"- {what}: **{value_ms:.0f} ms** (target ≤ {limit_ms:.0f} ms{missed})"


def _refusals(rtt_ms: float, seen: dict[str, tuple[int, int, int, int]]) -> list[str]:
    told = []
    for way, (refused, hung, hit, rounds) in seen.items():
        also = f", {hung} hung" if hung else ""
        told.append(f"{way} {refused} refused{also} (in {hit} of {rounds} F5)")
    return [f"- RTT {rtt_ms:g}, F5 at the end of the last: {'; '.join(told)}"]


def _torch(found: Found) -> list[str]:
    if found.torch is None:
        return [f"- torch: not measured: {found.no_torch}"]
    out = table("torch script", {"ms": found.torch}, digits=0)
    value = ratio(found.torch[COLD], found.torch[WARM])
    what = "cold stock / tk --preload torch"
    return [*out, "", verdict(what, value, 30.0, at_least=True)]
