"""The tables of `scripts/bench kube`, with what the project set itself."""

from __future__ import annotations

from collections.abc import Mapping

from benchlib import f5, forwards, kube
from benchlib.f5ways import TK
from benchlib.kubeways import BY_HAND
from benchlib.measure import Series, ratio
from benchlib.report import Measures, table, verdict

_F5_BAR = {0.0: 0.30, 40.0: 0.45}
_SAVE_BAR = {0.0: 0.03, 40.0: 0.06}
_UP_BAR = {0.0: 12.0, 40.0: 8.0}
_UP_S = {0.0: 1.3, 40.0: 3.0}
_HELPER_MB = 60.0


def measures(found: kube.Found) -> Measures:
    """All numbers, for --json."""
    named: dict[str, Mapping[str, Series]] = {
        f"RTT {rtt:g} ms, F5": rows for rtt, rows in found.f5.items()
    }
    for rtt, parts in found.times.items():
        named |= {f"RTT {rtt:g} ms, {name}": rows for name, rows in parts.items()}
    return {**named, **found.forwards}


def lines(found: kube.Found) -> list[str]:
    """Markdown."""
    columns = {f"RTT {rtt:g} ms": rows for rtt, rows in found.f5.items()}
    out = table("F5, ms", columns, digits=1)
    for rtt, parts in found.times.items():
        for name, rows in parts.items():
            out += table(f"{name}", {f"RTT {rtt:g} ms": rows}, digits=1 if "ms" in name else 2)
    out += [*table("forwards", found.forwards, digits=1), ""]
    for rtt, rows in found.f5.items():
        value = ratio(rows[f5.row(f5.STOPPED, TK)], rows[f5.row(f5.STOPPED, BY_HAND)])
        what = f"RTT {rtt:g}, {f5.STOPPED}, tk / by hand"
        out.append(verdict(what, value, _F5_BAR[rtt], at_least=False))
        out += _times(rtt, found.times[rtt])
    out += _forwards(found)
    count, size_mb = found.helpers
    late = "" if count == 1 and size_mb <= _HELPER_MB else ", MISSED"
    out.append(
        f"- {kube.PODS} pods: **{count} kubectl, {size_mb:.0f} MB** "
        f"(target 1, {_HELPER_MB:g} MB{late})"
    )
    out.append(f"- a forward, nobody listening yet: {found.refused}")
    load = ", ".join(f"{value:.1f}" for value in found.load)
    return [*out, f"- load of the machine after each round-trip time: {load}"]


def _times(rtt: float, parts: Mapping[str, kube.Rows]) -> list[str]:
    bars = [
        (kube.SAVE, kube.TK_SYNC, kube.CP, _SAVE_BAR[rtt]),
        (kube.MANY, kube.TK_SYNC, kube.TAR, 1.2),
        (kube.BIG, kube.TK_SYNC, kube.TAR, 1.3),
        (kube.PULL, kube.TK_PULL, kube.CAT, 1.3),
        (kube.START, kube.TK_UP, kube.EXEC, _UP_BAR[rtt]),
    ]
    out = []
    for name, ours, other, bar in bars:
        if name in parts:
            value = ratio(parts[name][ours], parts[name][other])
            out.append(
                verdict(f"RTT {rtt:g}, {name}, {ours} / {other}", value, bar, at_least=False)
            )
    seconds = parts[kube.START][kube.TK_UP].median
    late = "" if seconds <= _UP_S[rtt] else ", MISSED"
    out.append(
        f"- RTT {rtt:g}, {kube.TK_UP}: **{seconds:.2f} s** (target ≤ {_UP_S[rtt]:g} s{late})"
    )
    if kube.OWN in parts:
        more = parts[kube.OWN][kube.TK_IMAGE].median - parts[kube.OWN][kube.RUN].median
        late = "" if more <= 1.0 else ", MISSED"
        out.append(f"- {kube.TK_IMAGE} after {kube.RUN}: **{more:.2f} s** (target ≤ 1 s{late})")
    if kube.SAVE_BUSY in parts:
        busy = parts[kube.SAVE_BUSY][kube.TK_SYNC].median
        value = busy / parts[kube.SAVE][kube.TK_SYNC].median
        what = "save to visible, a big file under way / idle"
        out.append(verdict(what, value, 5.0, at_least=False))
    return out


def _forwards(found: kube.Found) -> list[str]:
    out = []
    for measure, bar, at_least in (
        (forwards.DOWN, 0.6, True),
        (forwards.UP, 0.6, True),
        (forwards.ECHO, 1.5, False),
        (forwards.CONNECT, 1.0, False),
    ):
        rows = found.forwards[measure]
        value = ratio(rows[kube.TK_FORWARD], rows[kube.PORT_FORWARD])
        what = f"{measure}, {kube.TK_FORWARD} / {kube.PORT_FORWARD}"
        out.append(verdict(what, value, bar, at_least=at_least))
    return out
