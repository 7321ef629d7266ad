"""A node's window in which four programs work well, for tests that change one thing of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tunnelkit.diagnosis.codes.registry import CODES
from tunnelkit.diagnosis.evidence.job import JobView, NodeNeed
from tunnelkit.diagnosis.evidence.window import (
    GpuView,
    NodeWindow,
    ProcessView,
    ThreadView,
)
from tunnelkit.diagnosis.running.rules import judge_running
from tunnelkit.diagnosis.verdict import Stage, Verdict
from tunnelkit.model import JobState

MIB = 1 << 20
JOB = JobView("7", JobState.RUNNING, "RUNNING", need=NodeNeed(cpus=8))
CPUS = frozenset(range(8))
#: Four programs on eight CPUs, each with work to do, and nothing that holds them back.
WELL = tuple(
    ProcessView(
        pid, name="python3", argv="python3 train.py", run=1.0, wanting=1, cpus=CPUS, mounts=("/d",)
    )
    for pid in (1, 2, 3, 4)
)


def thread(
    pid: int, tid: int = 0, *, run: float = 0.0, wait: float = 0.0, **more: object
) -> ThreadView:
    states = more.get("states") or ({"R": 100.0} if run > 0.5 else {"S": 100.0})
    waits = more.get("waits") or {}
    assert isinstance(states, dict) and isinstance(waits, dict)
    return ThreadView(pid, tid or pid, "python3", run, wait, states, waits)


def window(
    processes: Iterable[ProcessView] = WELL,
    threads: Iterable[ThreadView] | None = None,
    node: str = "node1",
    **more: object,
) -> NodeWindow:
    made = tuple(processes)
    mine = (
        tuple(thread(one.pid, run=one.run, wait=one.wait) for one in made)
        if threads is None
        else tuple(threads)
    )
    base = NodeWindow(node, 10.0, 100, len(made), len(mine), made, mine, dict.fromkeys(CPUS, 0.5))
    return replace(base, **more)  # type: ignore[arg-type]


def judged(*windows: NodeWindow, job: JobView = JOB) -> tuple[Verdict, ...]:
    verdicts = judge_running(job, windows, 0.0)
    for one in verdicts:
        assert CODES[one.code].stage is Stage.RUNNING
        assert one.because or one.code == "running"
    assert len(verdicts) in (1, 2)
    return verdicts


def codes(*windows: NodeWindow, job: JobView = JOB) -> list[str]:
    return [one.code for one in judged(*windows, job=job)]


def one_process(**more: object) -> ProcessView:
    return replace(WELL[0], **more)  # type: ignore[arg-type]


def gpu(busy: float, pids: Iterable[int] | None = (1,), **more: object) -> GpuView:
    made = GpuView(
        0,
        "GPU-0",
        "H100",
        busy=(busy, busy),
        processes=None if pids is None else dict.fromkeys(pids, 1),
    )
    return replace(made, **more)  # type: ignore[arg-type]
