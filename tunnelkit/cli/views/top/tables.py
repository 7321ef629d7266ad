"""Tables of `tk top` from a frame: the same cells for a terminal's screen and for plain text."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from tunnelkit.diagnosis.top.frame import GpuRow, NodeRow, ProcessRow, ThreadRow, TopInfo
from tunnelkit.text_format import duration, human_bytes, shown

_BARS = "▁▂▃▄▅▆▇█"
_WORST = "▲"
SPARK_WIDTH = 8
_KEPT = 24


class Show(Enum):
    """The kind of rows: ranks or programs, GPUs, threads, nodes."""

    RANKS = "ranks"
    GPUS = "gpus"
    THREADS = "threads"
    NODES = "nodes"


@dataclass(frozen=True)
class Table:
    """Cells by row; right: columns of figures. worst: numbers of rows that are marked."""

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    right: frozenset[str]
    worst: frozenset[int] = frozenset()
    empty: str = ""


@dataclass
class Recent:
    """The figures of each row in the last frames, for its sparkline."""

    _of: dict[str, deque[float | None]] = field(default_factory=dict)

    def add(self, frame: TopInfo) -> None:
        """Take a frame. The first one brings what the session has kept."""
        if not self._of:
            for key, points in frame["history"]["rows"].items():
                values = points["gpu"] if ":gpu " in key else points["run"]
                # The last point is this frame's own.
                self._of[key] = deque(values[:-1], maxlen=_KEPT)
        now = {one["key"]: one["run"] for one in frame["rows"]}
        now.update({one["key"]: one["busy"] or 0.0 for one in frame["gpus"]})
        for key in list(self._of):
            if key not in now:
                del self._of[key]
        for key, value in now.items():
            self._of.setdefault(key, deque(maxlen=_KEPT)).append(value)

    def line(self, key: str, most: float) -> str:
        """Return the sparkline of a row. most: the figure of a full bar."""
        return sparkline(list(self._of.get(key, ()))[-SPARK_WIDTH:], most)


def sparkline(values: Sequence[float | None], most: float) -> str:
    """Return a bar for each value, blank where there is none."""
    top = len(_BARS) - 1
    return "".join(
        " " if one is None else _BARS[min(top, max(0, round(one / most * top)))] if most > 0 else
        _BARS[0]
        for one in values
    )  # fmt: skip


def table_of(frame: TopInfo, show: Show, recent: Recent) -> Table:
    """Return the table that is asked for."""
    if show is Show.GPUS:
        return _gpus(frame["gpus"], recent)
    if show is Show.THREADS:
        return _threads(frame["threads"])
    if show is Show.NODES:
        return _nodes(frame["nodes"])
    return _processes(frame["rows"], recent)


def _processes(rows: list[ProcessRow], recent: Recent) -> Table:
    ranks = any(one["rank"] is not None for one in rows)
    gpus = any(one["gpu"] is not None for one in rows)
    most = max((one["run"] for one in rows), default=1.0) or 1.0
    columns = ["rank" if ranks else "program", "", "node", "cpu", "recent", "waits", "memory"]
    columns += ["disk/s", *(("gpu", "busy", "power") if gpus else ()), "state"]
    cells = []
    for one in rows:
        first = str(one["rank"]) if one["rank"] is not None else one["name"]
        row = [first, _WORST if one["worst"] else "", one["node"], _share(one["run"])]
        row += [recent.line(one["key"], most), _share(one["wait"]), human_bytes(one["rss_bytes"])]
        row.append(human_bytes(one["read_bytes"] + one["written_bytes"]))
        if gpus:
            row += [_number(one["gpu"]), _percent(one["gpu_busy"]), _watts(one["power_w"], None)]
        state = one["state"] + (f" (differs: {one['worst']})" if one["worst"] else "")
        cells.append(_shown(*row, state))
    return Table(
        tuple(columns),
        cells,
        frozenset({"cpu", "waits", "memory", "disk/s", "gpu", "busy", "power"}),
        frozenset(at for at, one in enumerate(rows) if one["worst"]),
        "no program of the job was found",
    )


def _gpus(rows: list[GpuRow], recent: Recent) -> Table:
    columns = ("node", "gpu", "", "busy", "least-most", "recent", "memory", "power", "clock",
               "processes", "model")  # fmt: skip
    cells = [
        _shown(
            one["node"],
            str(one["index"]),
            _WORST if one["worst"] else "",
            _percent(one["busy"]),
            f"{_percent(one['busy_least'])}-{_percent(one['busy_most'])}",
            recent.line(one["key"], 100.0),
            f"{human_bytes(one['used_bytes'])} of {human_bytes(one['total_bytes'])}",
            _watts(one["power_w"], one["limit_w"]),
            "" if one["clock_mhz"] is None else f"{one['clock_mhz']:.0f} MHz",
            _number(one["processes"]),
            one["name"] + (f" (differs: {one['worst']})" if one["worst"] else ""),
        )
        for one in rows
    ]
    right = frozenset({"gpu", "busy", "least-most", "memory", "power", "clock", "processes"})
    worst = frozenset(at for at, one in enumerate(rows) if one["worst"])
    return Table(columns, cells, right, worst, "the job has no GPU that its nodes name")


def _threads(rows: list[ThreadRow]) -> Table:
    columns = ("node", "rank", "pid", "thread", "name", "cpu", "waits", "state")
    cells = [
        _shown(one["node"], _number(one["rank"]), str(one["pid"]), str(one["tid"]), one["name"],
               _share(one["run"]), _share(one["wait"]), one["state"])
        for one in rows
    ]  # fmt: skip
    right = frozenset({"rank", "pid", "thread", "cpu", "waits"})
    return Table(columns, cells, right, empty="no thread was sampled yet")


def _nodes(rows: list[NodeRow]) -> Table:
    columns = ("node", "cpus", "busiest", "waits", "memory", "processes", "problem")
    cells = [
        _shown(
            one["node"],
            f"{one['run']:.1f} of {one['cpus']}" if one["processes"] else "",
            _share(one["busiest"]),
            _share(one["wait"]),
            human_bytes(one["rss_bytes"])
            + (f" of {human_bytes(one['limit_bytes'])}" if one["limit_bytes"] else ""),
            str(one["processes"]),
            one["problem"],
        )
        for one in rows
    ]
    right = frozenset({"cpus", "busiest", "waits", "memory", "processes"})
    return Table(
        columns, cells, right, frozenset(at for at, one in enumerate(rows) if one["problem"])
    )


def headline(frame: TopInfo) -> str:
    """Return the first line: the job, its time, what it is made of."""
    ranks = len({one["rank"] for one in frame["rows"]} - {None})
    parts = [f"job {frame['job_id']}", frame["state"].lower()]
    if frame["remaining_s"] is not None:
        parts.append(f"{duration(frame['remaining_s'])} left")
    nodes = len(frame["nodes"])
    parts.append(f"{nodes} node{'s' if nodes > 1 else ''}")
    if ranks > 1:
        parts.append(f"{ranks} ranks")
    if frame["gpus"]:
        parts.append(_gpus_in_words([one["busy"] for one in frame["gpus"]]))
    return shown(" · ".join(parts))


def _gpus_in_words(busy: list[float | None]) -> str:
    """Return their number, and the least and the most busy."""
    known = [f"{one:.0f}" for one in sorted(one for one in busy if one is not None)]
    span = " to ".join(dict.fromkeys([known[0], known[-1]])) if known else ""
    return f"{len(busy)} GPU{'s' if len(busy) > 1 else ''}" + (f", {span} % busy" if span else "")


def notes(frame: TopInfo) -> list[str]:
    """Return what the frame says beside its table: silent nodes, the verdict."""
    found = [f"{one['node']}: {one['problem']}" for one in frame["nodes"] if one["problem"]]
    verdict = frame["verdict"]
    if verdict is not None and verdict["code"] != "nothing":
        likely = "most likely " if verdict["certainty"] == "likely" else ""
        found.insert(0, f"why: {likely}{verdict['sentence']}   (tk why {frame['job_id']})")
    return [shown(one) for one in [*found, *frame["notes"]]]


def plain_lines(table: Table) -> list[str]:
    """Return a table as text; columns as wide as their cells."""
    if not table.rows:
        return [f"  {table.empty}"]
    widths = [
        max(len(title), *(len(row[at]) for row in table.rows))
        for at, title in enumerate(table.columns)
    ]

    def line(cells: Iterable[str]) -> str:
        parts = [
            cell.rjust(width) if title in table.right else cell.ljust(width)
            for title, cell, width in zip(table.columns, cells, widths, strict=True)
        ]
        return (
            "  " + "  ".join(part for part, width in zip(parts, widths, strict=True) if width)
        ).rstrip()

    return [line(table.columns), *(line(row) for row in table.rows)]


def history_lines(frame: TopInfo) -> list[str]:
    """Return the least, the middle and the most of each row over what the session has kept."""
    times_s = frame["history"]["times_s"]
    if len(times_s) < 2:
        return ["  no history yet: a session keeps it while `tk top` runs"]
    lines = [f"  the last {duration(times_s[-1] - times_s[0])}: least, middle, most"]
    for key, points in frame["history"]["rows"].items():
        is_gpu = ":gpu " in key
        values = [one for one in (points["gpu"] if is_gpu else points["run"]) if one is not None]
        if not values:
            continue
        scale, most = (1.0, 100.0) if is_gpu else (100.0, max(values) or 1.0)
        low, middle, high = min(values), sorted(values)[len(values) // 2], max(values)
        memory = max((one for one in points["rss_bytes"] if one is not None), default=0.0)
        figures = f"{low * scale:.0f} {middle * scale:.0f} {high * scale:.0f} %"
        lines.append(
            shown(f"  {key:<20} {figures:<14} memory {human_bytes(memory):>7}  ")
            + sparkline(values[-60:], most)
        )
    return lines


def _shown(*cells: str) -> tuple[str, ...]:
    return tuple(shown(one) for one in cells)


def _share(value: float) -> str:
    return f"{value * 100:.0f}%"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}%"


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _watts(value: float | None, limit: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}/{limit:.0f} W" if limit else f"{value:.0f} W"
