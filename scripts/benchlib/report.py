"""Numbers as Markdown, with the machine they were had on."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from benchlib.measure import Series, ratio

_SBIN = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
Measures = Mapping[str, Mapping[str, Series]]


def machine(rtt_ms: float | None, rounds: int, directory: str) -> dict[str, str]:
    """What the numbers depend on."""
    load = os.getloadavg()[0]
    return {
        "cpu": f"{os.cpu_count()} x {_cpu_model()}",
        "kernel": f"{platform.system()} {platform.release()}",
        "ssh": _first_line(["ssh", "-V"]),
        "slurm": _first_line([shutil.which("slurmctld", path=_SBIN) or "slurmctld", "-V"]),
        "python": f"{platform.python_version()}, debugpy {version('debugpy')}",
        "tunnelkit": version("tunnelkit"),
        "files": f"{directory}, {_first_line(['stat', '-f', '-c', '%T', directory])}",
        "load": f"{load:.1f} at the start",
        "rtt": _distance(rtt_ms),
        "rounds": f"{rounds}, interleaved; medians, quartiles in brackets",
    }


def _distance(rtt_ms: float | None) -> str:
    if rtt_ms is not None:
        return f"{rtt_ms:g} ms to the login host, by a proxy"
    return "loopback, no proxy in the way; F5: also by a proxy, at the times given"


def machine_lines(facts: Mapping[str, str]) -> list[str]:
    """The machine as a Markdown list."""
    return [f"- {name}: {value}" for name, value in facts.items()]


def table(title: str, measures: Measures, *, digits: int) -> list[str]:
    """One row a way, one column a measure."""
    names = list(measures)
    ways = list(next(iter(measures.values())))
    lines = ["", f"| {title} | " + " | ".join(names) + " |"]
    lines.append("|---|" + "---|" * len(names))
    for way in ways:
        cells = (_cell(measures[name][way], digits) for name in names)
        lines.append(f"| {way} | " + " | ".join(cells) + " |")
    return lines


def verdict(what: str, value: float, target: float, *, at_least: bool) -> str:
    """One line: a ratio against what the project set itself."""
    met = value >= target if at_least else value <= target
    sign = "≥" if at_least else "≤"
    return f"- {what}: **{value:.3g}x** (target {sign} {target:g}x{'' if met else ', MISSED'})"


def best_of(measures: Mapping[str, Series], *ways: str) -> Series:
    """The way with the highest median."""
    return max((measures[way] for way in ways), key=lambda series: series.median)


def ratio_of(measures: Mapping[str, Series], way: str, other: Series | str) -> float:
    """`way` over `other`, by rounds."""
    return ratio(measures[way], measures[other] if isinstance(other, str) else other)


def _cell(series: Series, digits: int) -> str:
    low, high = series.spread
    return f"{series.median:.{digits}f} [{low:.{digits}f}–{high:.{digits}f}]"


def _first_line(argv: list[str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=10)
    except OSError:
        return "not installed"
    text = (done.stdout or done.stderr).strip()
    return text.splitlines()[0] if text else "unknown"


def _cpu_model() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        found = None
    return found[1] if found else platform.machine()
