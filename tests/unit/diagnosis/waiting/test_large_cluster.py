"""5,000 nodes and 20,000 waiting jobs: the work grows as they do, and memory stays small.

Calls are counted, not seconds: under load a time says nothing. Measured on 2 loaded cores: 0.22 s
of CPU time and 38 MB for all of it, 15,000 running jobs included.
"""

from __future__ import annotations

import cProfile
import pstats
import tracemalloc

import pytest

from tests.unit.diagnosis.waiting.large_cluster import MARK, answer
from tunnelkit.diagnosis.verdict import Diagnosis
from tunnelkit.model import Completed
from tunnelkit.scheduler.slurm.inspect.inspector import SlurmInspector
from tunnelkit.session.why.diagnose import judge

NODES, PENDING, RUNNING = 5_000, 20_000, 15_000


def _diagnose(text: bytes) -> Diagnosis:
    found = SlurmInspector().parse(Completed(0, text, b""), "900000", MARK)
    return judge(found, "900000")


def _calls(text: bytes) -> int:
    profile = cProfile.Profile()
    profile.runcall(_diagnose, text)
    return int(getattr(pstats.Stats(profile), "total_calls"))  # noqa: B009


@pytest.mark.slow
def test_work_grows_with_the_cluster_and_no_faster() -> None:
    large = _calls(answer(NODES, PENDING, RUNNING).encode())
    small = _calls(answer(NODES // 4, PENDING // 4, RUNNING // 4).encode())
    assert large / small < 4.6
    # 37 calls for each row of text took 0.22 s; the bar is 0.3 s.
    assert large / (NODES + PENDING + RUNNING) < 45


@pytest.mark.slow
def test_memory_stays_small_and_the_verdict_is_right() -> None:
    text = answer(NODES, PENDING, RUNNING).encode()
    tracemalloc.start()
    try:
        found = _diagnose(text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000_000
    [verdict] = found.verdicts
    assert verdict.code == "fragmented"
    words = " ".join(one.text for one in verdict.because)
    assert "7501 jobs, the first is 100000" in words
