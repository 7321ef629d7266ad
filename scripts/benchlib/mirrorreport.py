"""The tables of `scripts/bench mirror`, with what the project set itself."""

from __future__ import annotations

from statistics import quantiles

from benchlib.measure import Series, ratio
from benchlib.mirrorcase import (
    BARRIER,
    CHECKOUT,
    COMMAND,
    COPY,
    DELTA_BYTES,
    DELTA_S,
    EDIT_BYTES,
    EDIT_CPU,
    EDIT_RSS,
    FIRST,
    MIXED,
    OVERTAKE,
    VISIBLE,
    Found,
)
from benchlib.mirrorways import FILES_FROM, RSYNC, TK, unison_repeat

_DIGITS = {
    VISIBLE: 1,
    BARRIER: 0,
    EDIT_CPU: 1,
    EDIT_BYTES: 0,
    EDIT_RSS: 0,
    DELTA_BYTES: 0,
    OVERTAKE: 0,
}
Row = tuple[str, list[str], str, str]
"""What; a value for each distance; tk's over the best of the others at each; the target."""


def lines(found: Found) -> list[str]:
    """Markdown."""
    rtts_ms = list(found.rows)
    heads = [f"RTT {rtt:g} ms" for rtt in rtts_ms]
    out = ["", f"| mirror | {' | '.join(heads)} | tk / this | target |"]
    out.append("|---|" + "---|" * (len(heads) + 2))
    kinds = (VISIBLE, BARRIER, COPY, FIRST, CHECKOUT, MIXED, DELTA_S, DELTA_BYTES, OVERTAKE)
    for measure in kinds:
        out += _measure(found, measure)
    for measure in (EDIT_CPU, EDIT_BYTES, EDIT_RSS):
        out += _measure(found, measure)
    for way, (part, mb) in found.idle.items():
        target = "< 1 %" + ("" if part < 0.01 else ", MISSED") if way == TK else ""
        out.append(_line(f"idle: {way}", [f"{part:.2%} CPU, {mb:.0f} MB"], "", target, len(heads)))
    out += ["", *_verdicts(found)]
    out += [f"- not measured: {note}" for note in found.notes]
    out.append(f"- unison: -repeat {unison_repeat()}; idle: every file watched, nothing changes")
    load = ", ".join(f"{value:.1f}" for value in found.load)
    out.append(f"- load of the machine after each case and distance: {load}")
    return out


def _measure(found: Found, measure: str) -> list[str]:
    ways: list[str] = []
    for rows in found.rows.values():
        ways += [way for way in rows.get(measure, {}) if way not in ways]
    return [row for way in ways for row in _way(found, measure, way)]


def _way(found: Found, measure: str, way: str) -> list[str]:
    cells, ratios, targets = [], [], []
    for rtt_ms, rows in found.rows.items():
        series, own = rows.get(measure, {}).get(way), rows.get(measure, {}).get(TK)
        cells.append(_cell(measure, series) if series is not None else "-")
        if series is not None and own is not None and way not in (TK, COMMAND):
            ratios.append(f"{own.median / series.median:.2g}" if series.median else "-")
        if way == TK and series is not None:
            targets.append(_target(measure, rtt_ms))
    shown = " / ".join(text for text in targets if text)
    return [_line(f"{measure}: {way}", cells, " / ".join(ratios), shown, len(found.rows))]


def _cell(measure: str, series: Series) -> str:
    digits = _DIGITS.get(measure, 2)
    if measure == VISIBLE:
        return f"{series.median:.{digits}f} (p95 {p95(series):.{digits}f})"
    return f"{series.median:,.{digits}f}"


def _line(what: str, cells: list[str], ratios: str, target: str, columns: int) -> str:
    cells = cells + [""] * (columns - len(cells))
    return f"| {what} | {' | '.join(cells)} | {ratios} | {target} |"


def p95(series: Series) -> float:
    """The value that 95 of 100 don't exceed; of few values, nearly the highest."""
    if len(series.values) < 2:
        return series.median
    return quantiles(series.values, n=20, method="inclusive")[-1]


def _target(measure: str, rtt_ms: float) -> str:
    if measure == VISIBLE:
        return f"{visible_limits(rtt_ms)[0]:g} (p95 {visible_limits(rtt_ms)[1]:g})"
    if measure == BARRIER:
        return f"{rtt_ms + 30:g}"
    if measure == CHECKOUT and rtt_ms == 20:
        return "1 at RTT 20"
    return ""


def visible_limits(rtt_ms: float) -> tuple[float, float]:
    """p50 and p95 of an edit, ms."""
    return rtt_ms / 2 + 15, rtt_ms + 60


def _verdicts(found: Found) -> list[str]:
    out = []
    for rtt_ms, rows in found.rows.items():
        at = f"RTT {rtt_ms:g}"
        seen = rows.get(VISIBLE, {})
        if TK in seen:
            middle, high = visible_limits(rtt_ms)
            out.append(_within(f"{at}, {VISIBLE}, p50", seen[TK].median, middle))
            out.append(_within(f"{at}, {VISIBLE}, p95", p95(seen[TK]), high))
            if rtt_ms == 0 and FILES_FROM in seen:
                value = seen[FILES_FROM].median / seen[TK].median
                met = "" if value >= 8 else ", MISSED"
                out.append(f"- {at}, {FILES_FROM} / tk: **{value:.3g}x** (target ≥ 8x{met})")
        if TK in rows.get(BARRIER, {}):
            out.append(_within(f"{at}, {BARRIER}", rows[BARRIER][TK].median, rtt_ms + 30))
        # Like with like: FIRST has no target, since no rsync looks for a scheduler, asks for a job
        # and starts an agent.
        for measure, limit in ((COPY, 1.1), (DELTA_BYTES, 1.5)):
            ways = rows.get(measure, {})
            if TK in ways and RSYNC in ways:
                value = ratio(ways[TK], ways[RSYNC])
                out.append(_within(f"{at}, {measure}, tk / rsync -a", value, limit))
        if TK in rows.get(CHECKOUT, {}) and rtt_ms == 20:
            out.append(_within(f"{at}, {CHECKOUT}", rows[CHECKOUT][TK].median, 1.0))
    for rtt_ms, counts in found.generations.items():
        met = "" if set(counts) == {1} else ", MISSED"
        told = ", ".join(map(str, counts))
        out.append(f"- RTT {rtt_ms:g}, generations of each checkout: **{told}** (target 1{met})")
    return out


def _within(what: str, value: float, limit: float) -> str:
    missed = "" if value <= limit else ", MISSED"
    return f"- {what}: **{value:.3g}** (target ≤ {limit:.3g}{missed})"


def to_json(found: Found) -> dict[str, object]:
    """Every value."""
    rows = {
        f"RTT {rtt:g} ms": {
            measure: {
                way: {"median": one.median, "p95": p95(one), "values": one.values}
                for way, one in ways.items()
            }
            for measure, ways in measures.items()
        }
        for rtt, measures in found.rows.items()
    }
    idle = {way: {"cpu_part": part, "rss_mb": mb} for way, (part, mb) in found.idle.items()}
    generations = {f"RTT {rtt:g} ms": counts for rtt, counts in found.generations.items()}
    return {**rows, "idle": idle, "generations": generations, "notes": found.notes}
