"""One moment of a job, for the control socket and for `tk top --json`."""

from __future__ import annotations

from typing import TypedDict

from tunnelkit.diagnosis.verdict_json import VerdictInfo


class ProcessRow(TypedDict):
    """A rank with all its processes on its node, or a program of a job without ranks.

    key: the row's name in `TopInfo.history`. run, wait: CPUs used, and CPUs waited for. read,
    written: bytes a second. gpu: index of its GPU, which is gpu_busy percent busy. state: what its
    main thread does. worst: in what it differs most from the others; "" if it does not.
    """

    key: str
    node: str
    pid: int
    name: str
    rank: int | None
    run: float
    wait: float
    threads: int
    rss_bytes: int
    read_bytes: float
    written_bytes: float
    gpu: int | None
    gpu_busy: float | None
    power_w: float | None
    state: str
    worst: str


class GpuRow(TypedDict):
    """One GPU. busy: percent, with the least and the most of the samples. processes: those of the
    job; None if the driver names none. worst: as in `ProcessRow`."""

    key: str
    node: str
    index: int
    name: str
    busy: float | None
    busy_least: float | None
    busy_most: float | None
    power_w: float | None
    limit_w: float | None
    clock_mhz: float | None
    most_mhz: float | None
    used_bytes: int
    total_bytes: int
    processes: int | None
    worst: str


class ThreadRow(TypedDict):
    """One of the busiest threads."""

    node: str
    pid: int
    tid: int
    rank: int | None
    name: str
    run: float
    wait: float
    state: str


class NodeRow(TypedDict):
    """A node. cpus: those that the job may use. limit_bytes: of the job's memory there; None if
    the node tells no limit. busiest: the largest `run` of one process. problem: why nothing is
    known of it, or its GPUs; else ""."""

    node: str
    run: float
    busiest: float
    wait: float
    cpus: int
    rss_bytes: int
    limit_bytes: int | None
    processes: int
    problem: str


class Points(TypedDict):
    """The figures of one row over time, oldest first; None where it was not there."""

    run: list[float | None]
    wait: list[float | None]
    rss_bytes: list[float | None]
    gpu: list[float | None]
    power_w: list[float | None]


class HistoryInfo(TypedDict):
    """The last hour at most. times_s: Unix times of the points. rows: by `key`."""

    times_s: list[float]
    rows: dict[str, Points]


class TopInfo(TypedDict):
    """time_s: Unix time of the newest answer. remaining_s: until the job's time limit. verdict: of
    the last ten seconds; None before they are over. sampled_s: the time that the rows are of."""

    job_id: str
    time_s: float
    state: str
    remaining_s: float | None
    sampled_s: float
    nodes: list[NodeRow]
    rows: list[ProcessRow]
    gpus: list[GpuRow]
    threads: list[ThreadRow]
    verdict: VerdictInfo | None
    notes: list[str]
    history: HistoryInfo
