"""The probe's parts: parsers of /proc, the choice of processes, its limits and its cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.slow_rig import pretend_job
from tunnelkit import probe_zip
from tunnelkit.probe import cpu_quota, nfs, places, proc, threads, waits
from tunnelkit.probe.child import Child
from tunnelkit.probe.counters import Counters
from tunnelkit.probe.gpu import amd, smi
from tunnelkit.probe.gpu.record import GpuRecord
from tunnelkit.probe.job_processes import JobProcess, JobProcesses

# Recorded from an NFS 4.2 mount of Linux 6.1.
MOUNTSTATS = """\
device proc mounted on /proc with fstype proc
device server:/data mounted on /my\\040data with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,rsize=131072
\tage:\t250
\tevents:\t1 2 3
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: {reads} {sent} 0 6400 6553600 12 {ms} {ms} 0
\t     GETATTR: 10 10 0 2000 2400 0 5 6 0
"""


def test_what_an_nfs_operation_costs() -> None:
    before = nfs.parse(MOUNTSTATS.format(reads=100, sent=100, ms=400))
    after = nfs.parse(MOUNTSTATS.format(reads=150, sent=153, ms=2400))
    found = nfs.differences(before["/my data"], after["/my data"], 10)
    assert (found["ops"], found["ms"]) == (50, 40.0)
    assert found["busiest"] == [{"name": "READ", "ops": 50, "again": 3, "timeouts": 0, "ms": 40.0}]


@given(st.text(max_size=300))
def test_any_text_is_parsed(text: str) -> None:
    nfs.parse(text)
    nfs.parse("device a mounted on /b with fstype nfs\n" + text)
    smi.parse_gpus(text, {})
    smi.parse_processes(text, {"0": GpuRecord(0, "GPU-0", "a")})
    waits.by_call(text)
    proc.stat_fields(text)
    proc.allowed_cpus(text)
    proc.counters_of(text)
    cpu_quota.levels(text, cpu_quota.hierarchies(), "cpu")


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("202 0x5 0x189 0x0 0x0 0x0 0xffffffff 0x7f 0x7f", "futex"),
        ("202 0x5 0x189 0x0 0x7ffd 0x0 0xffffffff 0x7f 0x7f", "futex-timed"),
        ("232 0x4 0x7f 0x40 0xffffffff 0x0 0x0 0x7f 0x7f", "poll"),
        ("232 0x4 0x7f 0x40 0x3e8 0x0 0x0 0x7f 0x7f", "poll-timed"),
        ("7 0x7f 0x1 0xffffffffffffffff 0x0 0x0 0x0 0x7f 0x7f", "poll"),
        ("230 0x0 0x0 0x7ffd 0x7ffd 0x0 0x0 0x7f 0x7f", "sleep"),
        ("0 0x3 0x7f 0x1 0x0 0x0 0x0 0x7f 0x7f", "read"),
        ("23 0x1 0x7f 0x0 0x0 0x0 0x0 0x7f 0x7f", "stdin"),
        ("270 0x1 0x7f 0x0 0x0 0x0 0x7f 0x7f 0x7f", "stdin"),
        ("270 0x1 0x7f 0x0 0x0 0x7ffd 0x7f 0x7f 0x7f", "poll-timed"),
        ("270 0x4 0x7f 0x0 0x0 0x0 0x7f 0x7f 0x7f", "poll"),
        ("running", ""),
        ("-1 0x7f 0x7f", ""),
    ],
)
def test_what_a_system_call_waits_for(line: str, word: str) -> None:
    assert waits.by_call(line, "x86_64") == word


def test_cgroups_upwards() -> None:
    mounted = [
        cpu_quota.Hierarchy(frozenset({"cpu", "cpuacct"}), "/", "/sys/fs/cgroup/cpu"),
        cpu_quota.Hierarchy(frozenset(), "/docker/x", "/sys/fs/cgroup/unified"),
    ]
    assert cpu_quota.levels("4:cpu,cpuacct:/a/b\n", mounted, "cpu") == [
        "/sys/fs/cgroup/cpu/a/b",
        "/sys/fs/cgroup/cpu/a",
        "/sys/fs/cgroup/cpu",
    ]
    assert cpu_quota.levels("0::/docker/x/y\n", mounted, "cpu") == [
        "/sys/fs/cgroup/unified/y",
        "/sys/fs/cgroup/unified",
    ]


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({"cpu.max": "20000 100000"}, 0.2),
        ({"cpu.max": "max 100000"}, 0.0),
        ({"cpu.cfs_quota_us": "150000", "cpu.cfs_period_us": "100000"}, 1.5),
        ({"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}, 0.0),
    ],
)
def test_quotas_of_both_versions(tmp_path: Path, files: dict[str, str], cpus: float) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text + "\n")
    stat = "nr_periods 50\nnr_throttled 5\nthrottled_usec 2000000\n"
    (tmp_path / "cpu.stat").write_text(stat)
    found = cpu_quota.quotas([str(tmp_path)])
    assert [(one.cpus, one.periods, one.throttled_s) for one in found.values()] == (
        [(cpus, 50, 2.0)] if cpus else []
    )


def test_the_mount_of_a_path() -> None:
    known = [places.Mount(place, "ext4", "", "8:1") for place in ("/data/x", "/data", "/")]
    for path, place in [("/data/x/y", "/data/x"), ("/data/xy", "/data"), ("/etc", "/")]:
        found = places.mount_of(path, known)
        assert found is not None and found.place == place


def test_the_busiest_threads_come_first_then_main_threads() -> None:
    pids = range(1, 41)
    before = {(pid, tid): (0, 0) for pid in pids for tid in (pid, pid + 1000)}
    now = {**before, (7, 1007): (900_000_000, 0), (9, 1009): (0, 800_000_000)}
    chosen = threads.busiest(pids, before, now)
    assert chosen[:2] == [(7, 1007), (9, 1009)] and len(chosen) <= threads.MOST
    assert chosen[2:42] == [(pid, pid) for pid in pids]
    many = {(pid, tid): (tid * 10**7, 0) for pid, tid in before}
    assert threads.busiest(pids, before, many)[: threads.MOST][0] == (40, 1040)
    # Then the others, process by process.
    own = os.getpid()
    ended = threading.Event()
    other = threading.Thread(target=ended.wait)
    other.start()
    try:
        found = threads.busiest([own], {}, {})
    finally:
        ended.set()
        other.join()
    assert found[0] == (own, own) and (own, other.native_id) in found


def test_threads_of_a_process_that_does_not_run_are_not_read(tmp_path: Path) -> None:
    """They are counted, and their main thread is sampled; one that begins to run is found."""
    wait = (
        "import threading; [threading.Thread(target=threading.Event().wait).start() for _ in 'ab']"
    )
    with pretend_job(tmp_path) as job:
        still = job.start([sys.executable, "-c", f"{wait}; print('ready', flush=True)"])
        # Blocked: a signal that comes before the wait is not lost.
        waits = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [10])\n"
        spins = "print('ready', flush=True)\nsignal.sigwait([10])\nwhile True: pass"
        late = job.start([sys.executable, "-c", f"{waits}{spins}"])
        before = Counters(JobProcesses(job.id).look(), lazily=True)
        assert before.threads == {} and before.begin(first=True) == []
        late.send_signal(10)
        ends = time.monotonic() + 20
        while late.pid not in before.begin() and time.monotonic() < ends:
            pass
        now = Counters(before.processes, before)
        shares = now.shares(before, 1.0)
        assert still.pid not in shares and now.threads_of(still.pid) == 3
        assert late.pid in before.processes and (late.pid, late.pid) in before.threads


def test_a_child_that_never_answers_is_given_up() -> None:
    begun = time.monotonic()
    assert Child(lambda: time.sleep(60)).answer(0.3) is None
    assert time.monotonic() - begun < 10
    assert Child(lambda: {"a": 1}).answer(10) == {"a": 1}
    assert Child(lambda: 1 / 0).answer(10) is None


def test_amd_by_files(tmp_path: Path) -> None:
    device = tmp_path / "card0/device"
    (device / "hwmon/hwmon3").mkdir(parents=True)
    for name, text in {
        "gpu_busy_percent": "37",
        "mem_info_vram_total": "1000",
        "mem_info_vram_used": "250",
        "hwmon/hwmon3/power1_average": "120000000",
        "hwmon/hwmon3/power1_cap": "300000000",
    }.items():
        (device / name).write_text(text + "\n")
    [(place, gpu)] = amd.find(str(tmp_path))
    amd.read(place, gpu)
    assert (gpu.busy, gpu.used_bytes, gpu.power_w, gpu.limit_w) == ([37], 250, [120.0], 300.0)


def test_other_jobs_and_tks_own_are_left_out(tmp_path: Path) -> None:
    wait = "import time; print('ready', flush=True); time.sleep(60)"
    with pretend_job(tmp_path) as job:
        mine = job.start([sys.executable, "-c", wait])
        agent = tmp_path / f"agent-{'0' * 32}.zip"
        agent.write_text(wait)
        job.start([sys.executable, str(agent)])
        job.start([sys.executable, "-c", wait], SLURM_JOB_ID=f"1{job.id}")
        job.start([sys.executable, "-c", wait], SLURM_CLUSTER_NAME="other")
        found = job.window(1, SLURM_CLUSTER_NAME="mine")
        # A process that lacks the name may be of any cluster.
        assert [one.pid for one in found.processes] == [mine.pid]
        [thread] = found.threads
        assert thread.waits_for == "sleep" and thread.share("S") == 1.0


def test_an_arrays_name_is_no_cgroup_of_another_element(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last element's own number is the array's: job_1000 is not that of 1000_3."""
    lines = "0::/system.slice/slurmstepd.scope/job_1000/step_0\n"
    monkeypatch.setattr("tunnelkit.probe.proc.text_of", lambda path, most: lines)
    assert JobProcesses("1000")._by_cgroup(1)
    assert not JobProcesses("1000_3")._by_cgroup(1)


@pytest.mark.parametrize(
    ("env", "rank"),
    [
        # torchrun's workers inherit the word of the srun or mpirun that started it.
        ({"PMIX_RANK": "0", "SLURM_PROCID": "0", "RANK": "3", "WORLD_SIZE": "4"}, 3),
        ({"PMI_RANK": "1", "RANK": "5", "WORLD_SIZE": "8"}, 5),
        ({"OMPI_COMM_WORLD_RANK": "0", "RANK": "1", "WORLD_SIZE": "2"}, 1),
        ({"OMPI_COMM_WORLD_RANK": "2", "SLURM_PROCID": "0"}, 2),
        # A setting of the user's own: torchrun says of how many.
        ({"RANK": "64", "SLURM_PROCID": "1"}, 1),
        ({"RANK": "64"}, None),
    ],
)
def test_the_rank_is_that_of_the_nearest_launcher(env: dict[str, str], rank: int | None) -> None:
    assert JobProcess(os.getpid(), 1, "0", "python", env).rank == rank


def test_a_program_of_tks_loop_is_one_of_the_job(tmp_path: Path) -> None:
    """Its command line is that of the server that forked it; one that stands by does not run."""
    text = "print('ready', flush=True)\n{}\n# tunnelkit.debuggee.fork_server\n"
    stands = text.format("import threading; threading.Event().wait()")
    runs = text.format("import os; os.fork()\nwhile True: pass")
    with pretend_job(tmp_path) as job:
        idle = job.start([sys.executable, "-c", stands])
        busy = job.start([sys.executable, "-c", runs])
        found = job.window(1)
        pids = {one.pid for one in found.processes}
        assert busy.pid in pids and idle.pid not in pids and len(pids) == 2
        assert {one.pid for one in found.threads} == pids
        assert {one.argv for one in found.processes} == {"python (tk loop)"}
        # Its session knows that its program has begun.
        zip_file = tmp_path / "probe.zip"
        argv = [sys.executable, "-I", zip_file, "sample", "--seconds", "1", "--job", job.id]
        done = subprocess.run(
            [*argv, "--programs", f"1,{idle.pid}"],
            check=True, capture_output=True, start_new_session=True,
        )  # fmt: skip
        told = {one["pid"] for one in json.loads(done.stdout)["processes"]}
        assert told == pids | {idle.pid}


def test_words_that_it_does_not_know() -> None:
    from tunnelkit.probe.main import main

    assert main(["sample", "--seconds"]) == 2
    assert main(["sample", "--what", "1"]) == 2
    assert main(["sample", "--programs", "x"]) == 2
    assert main(["sample", "--seconds", "x"]) == 2


@pytest.mark.slow
def test_sampling_costs_less_than_a_look_at_each_thread_a_second(tmp_path: Path) -> None:
    """64 processes, 1,000 threads, 10 s; the start of Python not counted. On a calm machine it is
    1 % of a core; here it is beside the same machine's cost of reading what the kernel has."""
    many = """\
        import os, threading, time
        for _ in range(63):
            if os.fork() == 0:
                break
        for _ in range(15):
            threading.Thread(target=threading.Event().wait, daemon=True).start()
        if os.getpgrp() == os.getpid():
            time.sleep(1)
            print("ready", flush=True)
        time.sleep(120)
        """
    with pretend_job(tmp_path) as job:
        first = job.python(many).pid
        zip_file = tmp_path / "probe.zip"
        zip_file.write_bytes(probe_zip.build_sampler().data)
        argv = [sys.executable, "-I", "-S", zip_file, "sample", "--seconds", "10", "--job", job.id]
        ratios = []
        for _ in range(3):
            done = subprocess.run(argv, check=True, capture_output=True, start_new_session=True)
            found = json.loads(done.stdout)
            assert found["thread_count"] >= 1000 and found["process_count"] == 64
            assert len(found["threads"]) == threads.MOST and found["rounds"] >= 10
            began_s = time.process_time()
            for _ in range(10):
                _read_threads(first)
            looks_s = time.process_time() - began_s
            ratios.append(found["own_cpu_s"] / looks_s)
            print(f"CPU in 10 s: {found['own_cpu_s']:.3f} s, of ten looks {looks_s:.3f} s")
    assert min(ratios) <= 0.7, ratios


def _read_threads(first: int) -> None:
    """Read what the kernel has of each thread of a process and its children, once."""
    children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    for pid in (first, *children):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with open(thread / "stat", "rb", buffering=0) as file:
                file.read()
