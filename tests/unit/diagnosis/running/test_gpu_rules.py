"""GPUs, and the one thread that feeds them, at each threshold and beside it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.unit.diagnosis.running.windows import (
    CPUS,
    JOB,
    codes,
    gpu,
    judged,
    one_process,
    thread,
    window,
)
from tunnelkit.diagnosis.evidence.job import NodeNeed
from tunnelkit.diagnosis.evidence.window import (
    ProcessView,
)
from tunnelkit.diagnosis.verdict import Certainty

# -- GPUs -----------------------------------------------------------------------------------------

MINE = {"CUDA_VISIBLE_DEVICES": "0"}


@pytest.mark.parametrize(
    ("busy", "pids", "run", "host", "found"),
    [
        (0.0, (), 0.5, True, Certainty.PROVEN),
        (0.0, (), 0.5, False, Certainty.PROVEN),
        (0.0, (99,), 0.5, True, Certainty.PROVEN),
        (0.0, (99,), 0.5, False, Certainty.LIKELY),
        (0.0, None, 0.5, True, Certainty.LIKELY),
        (0.0, (), 0.49, True, None),
        (1.0, (), 0.5, True, None),
        (0.0, (1,), 0.5, True, None),
    ],
)
def test_an_unused_gpu(
    busy: float, pids: Iterable[int] | None, run: float, host: bool, found: Certainty | None
) -> None:
    process = one_process(run=run, env=MINE)
    verdicts = judged(window([process], gpus=(gpu(busy, pids),), host_pids=host))
    unused = [one for one in verdicts if one.code == "gpu-unused"]
    assert [one.certainty for one in unused] == ([found] if found else [])


def test_a_gpu_that_is_not_the_jobs() -> None:
    process = one_process(run=0.5, env={"CUDA_VISIBLE_DEVICES": "1"})
    assert codes(window([process], gpus=(gpu(0.0, ()),), host_pids=True)) == ["nothing"]
    process = one_process(run=0.5, env={"CUDA_VISIBLE_DEVICES": ""})
    assert codes(window([process], gpus=(gpu(0.0, ()),), host_pids=True)) == ["nothing"]


@pytest.mark.parametrize(
    ("busy", "waits", "loads", "found"),
    [
        (49.0, 51.0, 0.9, "gpu-waits-for-data"),
        (50.0, 51.0, 0.9, "nothing"),
        (49.0, 50.0, 0.9, "nothing"),
        # No worker runs, and the GPU does nothing: an idle notebook.
        (0.0, 100.0, 0.0, "nothing"),
        (0.0, 100.0, 0.3, "gpu-waits-for-data"),
    ],
)
def test_a_gpu_that_waits(busy: float, waits: float, loads: float, found: str) -> None:
    main = one_process(run=0.4, wanting=0, env=MINE)
    worker = ProcessView(2, 1, name="python3", run=loads, wanting=1, cpus=CPUS)
    other = ProcessView(3, 1, name="python3", run=loads, wanting=1, cpus=CPUS)
    threads = [
        thread(1, run=0.4, states={"S": waits, "R": 100 - waits}, waits={"pipe": 9.0}),
        thread(2, run=loads),
        thread(3, run=loads),
    ]
    made = window([main, worker, other], threads, gpus=(gpu(busy),), host_pids=True)
    assert codes(made) == [found]


@pytest.mark.parametrize("bit", [0x8, 0x20, 0x40, 0x80])
def test_clocks(bit: int) -> None:
    def held(share: float, bit: int) -> list[str]:
        return codes(window(gpus=(gpu(99.0, reasons={bit: share}),), host_pids=True))

    assert held(0.21, bit) == ["gpu-clocks"] and held(0.20, bit) == ["nothing"]
    assert held(1.0, 0x4) == ["nothing"] and held(1.0, 0x1) == ["nothing"]


def test_gpu_memory_is_told_only_without_a_cause() -> None:
    full = {"total_bytes": 1000, "used_bytes": 951}
    assert codes(window(gpus=(gpu(99.0, **full),), host_pids=True)) == ["gpu-memory"]
    assert codes(window(gpus=(gpu(99.0, total_bytes=1000, used_bytes=950),), host_pids=True)) == [
        "nothing"
    ]
    hot = gpu(99.0, reasons={0x40: 1.0}, **full)
    assert codes(window(gpus=(hot,), host_pids=True)) == ["gpu-clocks"]


# -- one thread -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "other", "asked", "found"),
    [
        (0.91, 0.05, 8, "one-thread"),
        (0.90, 0.05, 8, "nothing"),
        (0.99, 0.06, 8, "nothing"),
        (0.99, 0.0, 1, "nothing"),
    ],
)
def test_one_thread(run: float, other: float, asked: int, found: str) -> None:
    process = one_process(run=run + other, wanting=1)
    threads = [thread(1, run=run), thread(1, 2, run=other)]
    job = replace(JOB, need=NodeNeed(cpus=asked))
    assert codes(window([process], threads), job=job) == [found]


def test_the_gil() -> None:
    process = one_process(run=0.98, wanting=0)
    threads = [thread(1, tid, run=0.245) for tid in (1, 2, 3, 4)]
    [verdict] = judged(window([process], threads))
    assert verdict.code == "one-thread" and "GIL" in verdict.sentence
    # Threads of a program in another language take no turns.
    native = one_process(run=0.98, wanting=0, name="solver", argv="./solver")
    assert codes(window([native], threads)) == ["nothing"]


def test_a_busy_gpu_makes_one_thread_enough() -> None:
    process = one_process(run=0.99, wanting=1, env=MINE)
    made = window([process], gpus=(gpu(50.0),), host_pids=True)
    assert codes(made) == ["nothing"]
    assert codes(replace(made, gpus=(gpu(49.0),))) == ["one-thread"]
