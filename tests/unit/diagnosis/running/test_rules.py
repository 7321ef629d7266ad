"""Each question at its threshold and beside it; and which findings go together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from tunnelkit.diagnosis.codes.registry import CODES
from tunnelkit.diagnosis.evidence.job import JobView, NodeNeed
from tunnelkit.diagnosis.evidence.window import (
    GpuView,
    IoView,
    MemoryView,
    NfsView,
    NodeWindow,
    PlaceView,
    ProcessView,
    QuotaView,
    ThreadView,
)
from tunnelkit.diagnosis.running.rules import QUESTIONS, judge_running
from tunnelkit.diagnosis.verdict import Certainty, Stage, Verdict
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


def test_a_job_that_works_has_no_finding() -> None:
    [verdict] = judged(window())
    assert verdict.code == "nothing" and verdict.certainty is Certainty.UNKNOWN
    wanted = [one.label for one in QUESTIONS if one.label and not one.of_gpus]
    assert list(verdict.excluded) == wanted
    assert codes(window(()), window((), node="node2")) == ["nothing"]
    assert codes() == ["running"]


def test_a_suspended_job() -> None:
    job = replace(JOB, native_state="SUSPENDED")
    [verdict] = judged(job=job)
    assert verdict.code == "stopped" and verdict.certainty is Certainty.PROVEN


@pytest.mark.parametrize(("share", "found"), [(100, "stopped"), (90, "stopped"), (89, "nothing")])
@pytest.mark.parametrize("letter", ["T", "t"])
def test_a_stopped_process(share: int, found: str, letter: str) -> None:
    stopped = thread(1, states={letter: float(share), "R": 100.0 - share})
    assert codes(window(threads=[stopped])) == [found]


def test_few_samples_stop_nobody() -> None:
    assert codes(window(threads=[thread(1, states={"T": 7.0})])) == ["nothing"]
    assert codes(window(threads=[thread(1, states={"T": 8.0})])) == ["stopped"]


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


def test_storage_without_an_answer_is_proven() -> None:
    [verdict] = judged(window(places=(replace(DISK, answers=False, ops=None),)))
    assert (verdict.code, verdict.certainty) == ("storage-gone", Certainty.PROVEN)
    assert "/d (nfs4, server:/d) does not answer on node1" in verdict.sentence


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


# -- GPUs -----------------------------------------------------------------------------------------

MINE = {"CUDA_VISIBLE_DEVICES": "0"}


def gpu(busy: float, pids: Iterable[int] | None = (1,), **more: object) -> GpuView:
    made = GpuView(
        0,
        "GPU-0",
        "H100",
        busy=(busy, busy),
        processes=None if pids is None else dict.fromkeys(pids, 1),
    )
    return replace(made, **more)  # type: ignore[arg-type]


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
