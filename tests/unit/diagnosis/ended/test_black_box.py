"""The rules on ended jobs whose black box has counted and sampled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.diagnosis.ended_cases import START_S, job, verdict
from tests.unit.diagnosis.test_ended_rules import TRACEBACK
from tunnelkit.diagnosis.evidence.box import (
    BoxSample,
    BoxView,
    GpuFault,
    MemoryLevel,
    ProcessEnd,
    SignalSeen,
)
from tunnelkit.diagnosis.verdict import Certainty

PROVEN, LIKELY, UNKNOWN = Certainty.PROVEN, Certainty.LIKELY, Certainty.UNKNOWN


def _box(**fields: object) -> BoxView:
    return BoxView(node="n1", uid=1000, **fields)  # type: ignore[arg-type]


KILLED = ProcessEnd(99, "python", rank=2, signal=9, rss_bytes=60 << 30)
LEVEL = MemoryLevel("job", limit_bytes=64 << 30, oom=1, oom_kill=1)


def test_counters_prove_whose_limit_it_was() -> None:
    found = verdict(job("FAILED", 137), box=_box(memory=(LEVEL,), ends=(KILLED,)))
    assert (found.code, found.certainty) == ("oom-limit", PROVEN)
    assert found.sentence == (
        "failed: the kernel killed python (rank 2 on n1) for memory, at the job's limit of 64 GB"
    )
    assert found.next_steps[0].command == "sbatch --mem=80G train.sh"


@pytest.mark.parametrize(
    ("state", "before_s", "certainty"),
    [
        ("FAILED", 5, PROVEN),
        ("FAILED", 500, LIKELY),
        ("TIMEOUT", 500, LIKELY),
        ("TIMEOUT", 5, PROVEN),
    ],
)
def test_a_kill_that_the_job_outlived_is_likely(
    state: str, before_s: float, certainty: Certainty
) -> None:
    """The script may have tried again, or the other ranks have waited for the one killed."""
    box = _box(
        memory=(LEVEL,), victims=(KILLED,), ends=(KILLED,), killed_s=START_S + 600 - before_s
    )
    found = verdict(job(state, 1), box=box)
    assert (found.code, found.certainty) == ("oom-limit", certainty)


HELPER = ProcessEnd(98, "sort", signal=9)
OF_HELPER = _box(memory=(LEVEL,), victims=(HELPER,), killed_s=START_S + 50)


@pytest.mark.parametrize("level", [LEVEL, MemoryLevel("job", oom=0, oom_kill=1)])
def test_a_helper_s_kill_long_before_an_exception_is_told_beside_it(level: MemoryLevel) -> None:
    box = replace(OF_HELPER, memory=(level,))
    found = verdict(job("FAILED", 1), "step\n" * 300 + TRACEBACK, box=box)
    assert (found.code, found.certainty) == ("exception", PROVEN)
    assert [one.text for one in found.because if one.label == "earlier"] == [
        "the kernel killed sort on n1 for memory; the job went on"
    ]
    # Another end, more lines after it, or an exception for the killed process's sake.
    lost = f"{TRACEBACK.rpartition('KeyError')[0]}torch.distributed.DistBackendError: NCCL error\n"
    for code, text in ((1, "step\n"), (2, TRACEBACK), (1, TRACEBACK + "step\n"), (1, lost)):
        found = verdict(job("FAILED", code), text, box=box)
        assert found.code.startswith("oom-") and found.certainty is LIKELY


@pytest.mark.parametrize("before_s", [550, 5])
def test_a_job_that_ended_with_0_has_not_failed_of_a_kill(before_s: int) -> None:
    box = replace(OF_HELPER, killed_s=START_S + 600 - before_s, agent_code=0, ended_s=START_S + 600)
    for found in (verdict(job("COMPLETED"), "done\n", box=box), verdict(None, box=box)):
        assert (found.code, found.certainty) == ("ok", PROVEN)
        assert any("sort on n1 for memory; the job went on" in one.text for one in found.because)


def test_the_node_ran_out_only_if_all_levels_were_counted() -> None:
    zero = MemoryLevel("job", oom=0, oom_kill=1)
    found = verdict(job("FAILED", 137), box=_box(memory=(zero,), ends=(KILLED,)))
    assert (found.code, found.certainty) == ("oom-node", PROVEN)
    unknown = MemoryLevel("step", oom=None, oom_kill=1)
    found = verdict(job("FAILED", 137), box=_box(memory=(zero, unknown), ends=(KILLED,)))
    assert (found.code, found.certainty) == ("killed-unknown", UNKNOWN)


def _samples(cpu_s: float, log_bytes: int, count: int = 40) -> tuple[BoxSample, ...]:
    return tuple(
        BoxSample(START_S + 90.0 * at, cpu_s * at, 1, log_bytes * at) for at in range(count)
    )


@pytest.mark.parametrize(
    ("cpu_s", "log_bytes", "code", "certainty"),
    [
        (80.0, 100, "timeout-working", PROVEN),
        (0.0, 0, "timeout-hang", PROVEN),
        (0.0, 100, "timeout-working", LIKELY),
    ],
)
def test_samples_tell_work_from_a_hang(
    cpu_s: float, log_bytes: int, code: str, certainty: Certainty
) -> None:
    box = _box(samples=_samples(cpu_s, log_bytes))
    found = verdict(job("TIMEOUT", 0, 15, ran_s=3600), box=box)
    assert (found.code, found.certainty) == (code, certainty)


def test_a_hard_limit_of_cpu_time_and_a_sender() -> None:
    end = ProcessEnd(9, "python", signal=9, cpu_s=3600.2)
    found = verdict(job("FAILED", 137), box=_box(ends=(end,), cpu_limit_s=3600))
    assert (found.code, found.certainty) == ("cpu-limit", PROVEN)
    sent = SignalSeen(15, START_S, sender_uid=1000, sender_pid=5, sender_name="bash")
    end = ProcessEnd(9, "python", signal=15)
    found = verdict(job("FAILED", 143), box=_box(ends=(end,), signals=(sent,)))
    assert (found.code, found.certainty) == ("terminated", PROVEN)
    assert "a process of yours (bash)" in found.sentence


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (GpuFault(0, xid=79), "gpu-lost"),
        (GpuFault(0, nvml=15), "gpu-lost"),
        (GpuFault(0, xid=48), "gpu-memory-error"),
        (GpuFault(0, xid=119), "gpu-reset"),
        (GpuFault(0, nvml=18), "gpu-driver"),
        (GpuFault(0, xid=31), "exception"),
    ],
)
def test_errors_of_a_gpu(fault: GpuFault, code: str) -> None:
    assert verdict(job("FAILED", 1), TRACEBACK, box=_box(gpu_faults=(fault,))).code == code
