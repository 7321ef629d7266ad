"""Each question at its threshold and beside it; and which findings go together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.unit.diagnosis.running.windows import (
    CPUS,
    JOB,
    MIB,
    WELL,
    codes,
    gpu,
    judged,
    one_process,
    thread,
    window,
)
from tunnelkit.diagnosis.evidence.job import NodeNeed, Shape
from tunnelkit.diagnosis.evidence.window import (
    GpuView,
    IoView,
    MemoryView,
    NfsView,
    NodeWindow,
    PlaceView,
    ProcessView,
    QuotaView,
)
from tunnelkit.diagnosis.running.rules import QUESTIONS
from tunnelkit.diagnosis.verdict import Certainty


def test_a_job_that_works_has_no_finding() -> None:
    [verdict] = judged(window())
    assert verdict.code == "nothing" and verdict.certainty is Certainty.UNKNOWN
    wanted = [one.label for one in QUESTIONS if one.label and not one.of_gpus]
    assert list(verdict.excluded) == wanted
    assert codes(window(()), window((), node="node2")) == ["nothing"]
    assert codes() == ["running"]


@pytest.mark.parametrize("state", ["SUSPENDED", "S", "U"])  # PBS: S and U
def test_a_suspended_job(state: str) -> None:
    job = replace(JOB, native_state=state)
    held = window([one_process(run=0.0)], [thread(1, states={"T": 100.0})])
    for windows in ((), (held,)):
        [verdict] = judged(*windows, job=job)
        assert verdict.code == "stopped" and verdict.certainty is Certainty.PROVEN
        assert f"state {state}" in [one.text for one in verdict.because]
        assert not any("kill" in one.command for one in verdict.next_steps)


@pytest.mark.parametrize(("share", "found"), [(100, "stopped"), (90, "stopped"), (89, "nothing")])
@pytest.mark.parametrize("letter", ["T", "t"])
def test_a_stopped_process(share: int, found: str, letter: str) -> None:
    stopped = thread(1, states={letter: float(share), "R": 100.0 - share})
    assert codes(window([one_process(run=0.0)], [stopped])) == [found]


def test_a_stopped_process_beside_others_that_run_holds_nothing() -> None:
    editor = ProcessView(9, name="vim", cpus=CPUS)
    halted = thread(9, states={"T": 100.0})
    assert codes(window([*WELL, editor], [halted])) == ["nothing"]
    idle = [replace(one, run=0.01, wanting=0) for one in WELL]
    assert codes(window([*idle, editor], [halted])) == ["stopped"]
    # Ranks spin while they wait for the one that is stopped.
    ranks = [replace(one, rank=one.pid) for one in WELL]
    spinning = [replace(ranks[0], run=0.0, wanting=0), *ranks[1:]]
    assert "stopped" in codes(window(spinning, [thread(1, states={"T": 100.0})]))
    # An editor in a shell of a rank's step has its number.
    beside = replace(editor, rank=1)
    assert "stopped" not in codes(window([*ranks, beside], [halted]))


def test_few_samples_stop_nobody() -> None:
    alone = [one_process(run=0.0)]
    assert codes(window(alone, [thread(1, states={"T": 7.0})])) == ["nothing"]
    assert codes(window(alone, [thread(1, states={"T": 8.0})])) == ["stopped"]


def test_a_frozen_cgroup() -> None:
    assert codes(window(frozen=True)) == ["stopped"]


DISK = PlaceView("/d", "nfs4", "server:/d", True, 0)


@pytest.mark.parametrize(
    ("share", "ops", "mount", "found"),
    [
        (100, 0, "/d", "storage-gone"),
        (90, 0, "/d", "storage-gone"),
        (89, 0, "/d", "storage-slow"),
        (100, 1, "/d", "storage-slow"),
        (100, None, "/d", "storage-slow"),
        (100, 0, "/other", "storage-slow"),
        (30, 5, "/d", "storage-slow"),
        (29, 5, "/d", "nothing"),
    ],
)
def test_threads_that_the_kernel_holds(share: int, ops: int | None, mount: str, found: str) -> None:
    held = thread(1, states={"D": float(share), "R": 100.0 - share}, waits={"nfs": 9.0})
    places = (replace(DISK, ops=ops, path=mount),)
    made = window(threads=[held], places=places)
    assert codes(made) == [found]
    assert all(one.certainty is not Certainty.PROVEN for one in judged(made))


def test_a_gpu_driver_is_no_storage() -> None:
    held = thread(1, states={"D": 100.0}, waits={"gpu-driver": 9.0})
    assert codes(window(threads=[held], places=(DISK,))) == ["nothing"]


SILENT = replace(DISK, answers=False, ops=None)


@pytest.mark.parametrize("waits", ["", "futex"])
def test_storage_without_an_answer_is_proven_where_nothing_runs(waits: str) -> None:
    [verdict] = judged(still(waits, places=(SILENT,)))
    assert (verdict.code, verdict.certainty) == ("storage-gone", Certainty.PROVEN)
    assert verdict.sentence == ("stands still: /d (nfs4, server:/d) does not answer on node1")
    assert any(one.command == "scancel 7" for one in verdict.next_steps)


def test_storage_without_an_answer_is_proven_where_the_kernel_holds_a_thread() -> None:
    held = thread(1, states={"D": 100.0}, waits={"nfs": 9.0})
    [verdict] = judged(window(threads=[held], places=(SILENT,)))
    assert (verdict.code, verdict.certainty) == ("storage-gone", Certainty.PROVEN)
    # A process without files there proves nothing about it.
    other = window(threads=[held], places=(replace(SILENT, path="/other"),))
    assert all(one.certainty is not Certainty.PROVEN for one in judged(other))


def test_a_job_that_goes_on_does_not_stand_still_for_slow_storage() -> None:
    [verdict] = judged(window(places=(SILENT,)))
    assert (verdict.code, verdict.certainty) == ("storage-gone", Certainty.LIKELY)
    assert verdict.sentence.startswith("goes on, but /d (nfs4, server:/d) does not answer")
    assert not any("scancel" in one.command for one in verdict.next_steps)
    assert "storage gone" not in verdict.excluded
    # Another cause is not hidden by it.
    limited = window(places=(SILENT,), quotas=(QuotaView("/job", 2.0, 100, 50, 5.0),))
    assert codes(limited) == ["throttled", "storage-gone"]


def still(word: str, run: float = 0.0, **more: object) -> NodeWindow:
    process = one_process(run=run, wanting=0, name="python3")
    return window([process], [thread(1, run=run, waits={word: 9.0} if word else {})], **more)


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("futex", "hang"),
        ("pipe", "hang"),
        ("receive", "hang"),
        ("futex-timed", "nothing"),
        ("poll-timed", "nothing"),
        ("poll", "nothing"),
        ("accept", "nothing"),
        ("sleep", "nothing"),
        ("terminal", "waits-for-input"),
        ("", "nothing"),
    ],
)
def test_programs_that_do_nothing(word: str, found: str) -> None:
    assert codes(still(word)) == [found]


def test_what_moves_does_not_hang() -> None:
    assert codes(still("futex", run=0.01)) == ["hang"]
    assert codes(still("futex", run=0.011)) == ["nothing"]
    assert codes(still("futex", log_grew=True)) == ["nothing"]
    assert codes(still("futex", log_grew=False)) == ["hang"]
    made = still("futex")
    writing = replace(made.processes[0], io=IoView(written_bytes=1.0))
    assert codes(replace(made, processes=(writing,))) == ["nothing"]
    busy = GpuView(0, busy=(0.0, 1.0), processes={1: 1})
    idle = GpuView(0, busy=(0.0, 0.0), processes={1: 1})
    assert codes(replace(made, gpus=(busy,), host_pids=True)) == ["nothing"]
    assert codes(replace(made, gpus=(idle,), host_pids=True)) == ["hang"]


def test_a_monitor_beside_a_hang_does_not_hide_it() -> None:
    made = still("futex")
    sleeper = ProcessView(9, name="sleep", cpus=CPUS)
    made = replace(
        made,
        processes=(*made.processes, sleeper),
        threads=(*made.threads, thread(9, waits={"sleep": 9.0})),
    )
    assert codes(made) == ["hang"]


@pytest.mark.parametrize(
    ("throttled", "periods", "found"),
    [(10, 100, "nothing"), (11, 100, "throttled"), (9, 9, "nothing"), (10, 10, "throttled")],
)
def test_a_quota(throttled: int, periods: int, found: str) -> None:
    made = window(quotas=(QuotaView("/cg", 1.0, periods, throttled, 3.0),))
    assert codes(made) == [found]
    if found == "throttled":
        assert judged(made)[0].certainty is Certainty.PROVEN


@pytest.mark.parametrize(
    ("run", "wait", "wanting", "found"),
    [
        (2.0, 1.01, 3, "too-many-threads"),
        (2.0, 1.0, 3, "nothing"),
        (1.8, 5.0, 9, "too-many-threads"),
        (1.79, 5.0, 9, "neighbours"),
        (2.0, 1.01, 2, "nothing"),
    ],
)
def test_threads_for_cpus(run: float, wait: float, wanting: int, found: str) -> None:
    process = one_process(run=run, wait=wait, wanting=wanting, threads=9, cpus=frozenset({0, 1}))
    made = window([process], [], cpu_busy={0: 1.0, 1: 1.0 if found == "neighbours" else 0.9})
    busy = made if found != "neighbours" else replace(made, cpu_busy={0: 1.05, 1: 1.05})
    assert codes(busy) == [found]


def test_a_binding_that_lost_cpus_is_named() -> None:
    process = one_process(
        run=1.0,
        wait=7.0,
        wanting=8,
        cpus=frozenset({0}),
        env={"SLURM_CPUS_PER_TASK": "8", "OMP_NUM_THREADS": "8"},
    )
    [verdict] = judged(window([process], []))
    assert verdict.next_steps[0].command == "srun --cpus-per-task=8 ..."
    assert any(one.text == "OMP_NUM_THREADS=8" for one in verdict.because)


@pytest.mark.parametrize(
    ("run", "wait", "busy", "found"),
    [
        (0.5, 0.5, 1.0, "neighbours"),
        (0.5, 0.29, 1.0, "nothing"),
        (0.5, 0.3, 1.0, "neighbours"),
        (0.5, 0.5, 0.84, "nothing"),
        (0.9, 0.5, 1.0, "nothing"),
        (0.69, 0.5, 1.0, "neighbours"),
        (0.71, 0.5, 1.0, "nothing"),
    ],
)
def test_neighbours(run: float, wait: float, busy: float, found: str) -> None:
    process = one_process(run=run, wait=wait, wanting=1, cpus=frozenset({0}))
    assert codes(window([process], [], cpu_busy={0: busy})) == [found]


def test_time_that_the_hypervisor_took() -> None:
    process = one_process(run=0.5, wait=0.5, wanting=1, cpus=frozenset({0}))
    [verdict] = judged(window([process], [], cpu_busy={0: 1.0}, stolen=0.4))
    assert "hypervisor" in verdict.sentence


@pytest.mark.parametrize(
    ("growth", "faults", "in_use", "found"),
    [
        (4 * MIB, 0.0, 4 * MIB, Certainty.LIKELY),
        (4 * MIB - 1, 0.0, 4 * MIB, None),
        (0, 101.0, MIB, Certainty.LIKELY),
        (0, 100.0, MIB, None),
        (0, 101.0, 0, None),
        (4 * MIB, 101.0, 5 * MIB, Certainty.PROVEN),
    ],
)
def test_swap(growth: int, faults: float, in_use: int, found: Certainty | None) -> None:
    process = one_process(
        run=0.5, swap_bytes=in_use, swap_bytes_before=in_use - growth, major_faults=faults
    )
    verdicts = judged(window([process, *WELL[1:]]))
    assert [one.code for one in verdicts] == (["swap"] if found else ["nothing"])
    if found:
        assert verdicts[0].certainty is found


@pytest.mark.parametrize(
    ("used", "hits", "faults", "stalled", "found"),
    [
        (96, 10.0, 101.0, None, "swap"),
        (94, 10.0, 101.0, None, "nothing"),
        (96, 9.0, 101.0, None, "nothing"),
        # The page cache alone: the limit is reached, and nobody waits.
        (96, 500.0, 3.0, 0.0, "nothing"),
        (96, 0.0, 0.0, 0.10, "swap"),
        (96, 0.0, 0.0, 0.09, "nothing"),
    ],
)
def test_a_memory_limit(
    used: int, hits: float, faults: float, stalled: float | None, found: str
) -> None:
    process = one_process(major_faults=faults)
    limit = MemoryView("/cg", 100 * MIB, used * MIB, hits, stalled)
    assert codes(window([process, *WELL[1:]], memory=(limit,))) == [found]


def test_slow_storage_says_what_an_operation_costs() -> None:
    nfs = NfsView(120, 45.2, 3, 1, (("READ", 100, 52.0), ("GETATTR", 20, 11.0)))
    process = one_process(io=IoView(20e6, 0, 1000, 0, 20e6, 0))
    held = thread(1, states={"D": 60.0, "R": 40.0}, waits={"nfs": 9.0})
    place = replace(DISK, ops=120, nfs=nfs)
    [verdict] = judged(window([process, *WELL[1:]], [held], places=(place,)))
    text = " ".join(one.text for one in verdict.because)
    assert "120 operations, 45.2 ms each: READ 100 (52.0 ms)" in text and "3 sent again" in text
    assert "larger pieces" in verdict.next_steps[0].text


# -- ranks ----------------------------------------------------------------------------------------


def ranks(runs: Iterable[float], waits: Iterable[float] = (0, 0, 0, 0)) -> list[NodeWindow]:
    found = []
    for rank, (run, wait) in enumerate(zip(runs, waits, strict=False)):
        cpus = frozenset({rank})
        process = ProcessView(
            rank + 1,
            rank=rank,
            name="python3",
            run=run,
            wait=wait,
            wanting=1 + int(wait),
            cpus=cpus,
        )
        found.append(window([process], node=f"node{rank}", cpu_busy={rank: max(run, 0.01)}))
    return found


def test_one_rank_that_works_while_the_others_wait() -> None:
    [verdict] = judged(*ranks([0.05, 0.04, 0.99, 0.05]))[:1]
    assert verdict.code == "straggler" and "3 ranks wait for rank 2 on node2" in verdict.sentence
    assert codes(*ranks([0.05, 0.04, 0.35, 0.05])) == ["nothing"]
    assert codes(*ranks([0.05, 0.99])) == ["nothing"]
    # A manager that waits for its workers.
    assert codes(*ranks([0.01, 0.99, 0.98, 0.99])) == ["nothing"]


def test_a_rank_without_cpus_and_its_cause() -> None:
    made = ranks([1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 7.8, 0.0])
    straggler, cause = judged(*made)
    assert (straggler.code, cause.code) == ("straggler", "too-many-threads")
    assert "rank 2" in straggler.sentence
    assert any("wait for a CPU 7.8 s" in one.text for one in straggler.because)


def test_gpus_that_spin_in_a_collective() -> None:
    made = []
    for rank, (busy, watts) in enumerate([(100, 92), (100, 94), (31, 240), (100, 91)]):
        process = ProcessView(
            rank + 1, rank=rank, name="python3", run=1.0, wanting=1, cpus=frozenset({rank})
        )
        one = gpu(busy, (rank + 1,), power_w=(float(watts),), limit_w=300.0)
        made.append(window([process], node=f"node{rank}", gpus=(one,), host_pids=True))
    verdict = judged(*made)[0]
    assert verdict.code == "straggler" and "rank 2 on node2" in verdict.sentence
    assert any("at 92 W" in one.text for one in verdict.because)
    even = [
        replace(one, gpus=tuple(replace(card, power_w=(240.0,)) for card in one.gpus))
        for one in made
    ]
    assert "straggler" not in codes(*even)


# -- together -------------------------------------------------------------------------------------


def test_a_second_finding_only_if_it_is_independent() -> None:
    process = one_process(run=0.2, wait=0.9, wanting=1, cpus=frozenset({0}))
    quota = QuotaView("/cg", 0.2, 100, 99, 8.0)
    made = window([process], [], cpu_busy={0: 1.0}, quotas=(quota,))
    assert codes(made) == ["throttled"]
    hot = gpu(99.0, reasons={0x40: 1.0})
    verdicts = judged(replace(window(quotas=(quota,)), gpus=(hot,), host_pids=True))
    assert [one.code for one in verdicts] == ["throttled", "gpu-clocks"]
    assert verdicts[1].excluded == ()


@pytest.mark.parametrize(
    ("shape", "asked", "found"),
    [
        # Slurm gives a job of one CPU the whole core.
        (Shape(all_memory=True), 2, "nothing"),
        (Shape(all_memory=True, cpus_per_task=2), 2, "one-thread"),
        (Shape(all_memory=True, tasks=2), 2, "one-thread"),
        (Shape(all_memory=True), 8, "one-thread"),  # --exclusive
        (Shape(), 2, "one-thread"),  # nothing is known of it
    ],
)
def test_a_core_of_two_threads_is_what_a_serial_job_asked_for(
    shape: Shape, asked: int, found: str
) -> None:
    cpus = frozenset({4, 36}) if asked == 2 else CPUS
    serial = one_process(run=0.99, wanting=1, cpus=cpus)
    job = replace(JOB, need=NodeNeed(cpus=asked), shape=shape)
    assert codes(window([serial]), job=job) == [found]
