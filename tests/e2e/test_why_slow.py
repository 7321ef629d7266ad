"""Slow jobs, each made really slow: the probe samples them, and the rules name the cause."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.slow_rig import Job, prefer, pretend_job, pretend_nvml
from tunnelkit.diagnosis.verdict import Certainty, Verdict

pytestmark = [pytest.mark.slow, pytest.mark.why("slow")]

SPIN = """\
    print("ready", flush=True)
    while True:
        pass
    """
WAIT = """\
    import threading
    for _ in range(3):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    print("ready", flush=True)
    threading.Event().wait()
    """
#: A worker computes each item slowly; the main process waits for it in a pipe.
LOADER = """\
    import os
    out, into = os.pipe()
    if os.fork() == 0:
        while True:
            sum(range(3_000_000))
            os.write(into, b"x")
    print("ready", flush=True)
    while os.read(out, 1):
        pass
    """
THREADS = """\
    import os
    for _ in range(15):
        if os.fork() == 0:
            break
    else:
        print("ready", flush=True)
    while True:
        pass
    """
GIL = """\
    import threading
    def work():
        while True:
            sum(range(1000))
    for _ in range(4):
        threading.Thread(target=work, daemon=True).start()
    print("ready", flush=True)
    work()
    """
BOTH = [0, 1]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    with pretend_job(tmp_path) as made:
        yield made


def codes(verdicts: tuple[Verdict, ...]) -> list[str]:
    return [one.code for one in verdicts]


def text_of(verdict: Verdict) -> str:
    return "\n".join([verdict.sentence, *(one.text for one in verdict.because)])


def test_one_python_thread(job: Job) -> None:
    pid = job.python(SPIN).pid
    verdicts = job.verdicts()
    assert codes(verdicts) == ["one-thread"]
    assert f"(pid {pid})" in verdicts[0].sentence and "all else waits" in verdicts[0].sentence
    assert {"hang", "CPU quota", "threads", "swap", "storage"} <= set(verdicts[0].excluded)


def test_threads_that_share_the_gil(job: Job) -> None:
    job.python(GIL)
    [verdict] = job.verdicts()
    assert verdict.code == "one-thread" and "GIL" in verdict.sentence


def test_a_hang(job: Job) -> None:
    pid = job.python(WAIT).pid
    verdicts = job.verdicts()
    assert codes(verdicts) == ["hang"] and verdicts[0].certainty is Certainty.LIKELY
    assert f"(pid {pid}) waits for a lock or another thread" in text_of(verdicts[0])


def test_a_stopped_process(job: Job) -> None:
    pid = job.python(SPIN).pid
    os.kill(pid, signal.SIGSTOP)
    verdicts = job.verdicts()
    assert codes(verdicts) == ["stopped"] and verdicts[0].certainty is Certainty.PROVEN
    assert verdicts[0].next_steps[0].command == f"kill -CONT {pid}"


def test_more_threads_than_cpus(job: Job) -> None:
    job.python(THREADS, "taskset", "-c", str(min(os.sched_getaffinity(0))))
    verdicts = job.verdicts()
    assert codes(verdicts) == ["too-many-threads"] and verdicts[0].certainty is Certainty.PROVEN
    assert "16 threads want 1 CPU" in verdicts[0].sentence
    assert "OMP_NUM_THREADS is not set" in text_of(verdicts[0])


def test_a_neighbour_on_the_same_cpu(job: Job) -> None:
    cpu = str(min(os.sched_getaffinity(0)))
    job.python(SPIN, "taskset", "-c", cpu)
    argv = ["taskset", "-c", cpu, sys.executable, "-c", "while True: pass"]
    other = subprocess.Popen(argv, start_new_session=True)
    prefer(other.pid)
    try:
        verdicts = job.judge(job.window(), cpus=1)
    finally:
        other.kill()
        other.wait()
    assert codes(verdicts) == ["neighbours"]


@pytest.fixture
def quota_dir() -> Iterator[Path]:
    """A cgroup of our own with a quota of 0.2 CPUs."""
    above = Path("/sys/fs/cgroup/cpu")
    if os.geteuid() != 0 or not (above / "cpu.cfs_quota_us").exists():
        pytest.skip("a CPU quota needs root and cgroup v1")
    made = above / f"tk{os.environ.get('TK_TEST_RUN', '')}q{os.getpid()}"
    made.mkdir()
    try:
        (made / "cpu.cfs_period_us").write_text("100000")
        (made / "cpu.cfs_quota_us").write_text("20000")
        yield made
    finally:
        for pid in (made / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        _remove(made)


def _remove(made: Path) -> None:
    """A cgroup is busy until the kernel has cleared its processes away."""
    import time

    ends = time.monotonic() + 20
    while True:
        try:
            made.rmdir()
            return
        except OSError:
            assert time.monotonic() < ends, f"{made} stays busy"
            time.sleep(0.02)


def test_a_cpu_quota(job: Job, quota_dir: Path) -> None:
    process = job.python(SPIN)
    (quota_dir / "cgroup.procs").write_text(str(process.pid))
    verdicts = job.verdicts()
    assert codes(verdicts) == ["throttled"] and verdicts[0].certainty is Certainty.PROVEN
    assert "quota of 0.2 CPUs" in verdicts[0].sentence
    job.end()
    _wait_empty(quota_dir)


def _wait_empty(made: Path) -> None:
    assert (made / "cgroup.procs").read_text() == ""


@pytest.fixture
def loop_disk(tmp_path: Path) -> Iterator[Path]:
    """An ext4 in a file, mounted; thawed and unmounted at the end."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    image, place = tmp_path / "disk.img", tmp_path / "disk"
    place.mkdir()
    with open(image, "wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    done = subprocess.run(["mount", "-o", "loop", str(image), str(place)], capture_output=True)
    if done.returncode:
        pytest.skip(f"no loop device can be mounted here: {done.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["fsfreeze", "-u", str(place)], capture_output=True, check=False)
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_frozen_file_system(job: Job, loop_disk: Path) -> None:
    process = job.python(
        f"""\
        import sys
        file = open({str(loop_disk / "out")!r}, "wb", buffering=0)
        print("ready", flush=True)
        while True:
            file.write(b"x" * 4096)
            file.seek(0)
        """
    )
    subprocess.run(["fsfreeze", "-f", str(loop_disk)], check=True)
    try:
        verdicts = job.verdicts()
    finally:
        subprocess.run(["fsfreeze", "-u", str(loop_disk)], check=True)
    job.end()
    assert process.returncode is not None
    assert codes(verdicts) == ["storage-gone"], [text_of(one) for one in verdicts]
    assert str(loop_disk) in verdicts[0].sentence and "ext4" in verdicts[0].sentence


# -- GPUs -----------------------------------------------------------------------------------------

NVML = "gpu 300000 {used} 81920 1980 {pid}\n"


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = pretend_nvml(tmp_path_factory.mktemp("library"))
    if place is None:
        pytest.skip("no C compiler")
    return place


class Gpus:
    """A pretend driver that plays a recording."""

    def __init__(self, place: Path, job: Job) -> None:
        self._place, self._job = place, job
        job.env["CUDA_VISIBLE_DEVICES"] = "0"

    def verdicts(self, *lines: str, cpus: int = 2) -> tuple[Verdict, ...]:
        file = self._job.dir / "recording"
        file.write_text("\n".join(lines))
        return self._job.verdicts(
            cpus=cpus, LD_LIBRARY_PATH=str(self._place), TK_PRETEND_NVML=str(file)
        )


@pytest.fixture
def gpus(nvml: Path, job: Job) -> Gpus:
    return Gpus(nvml, job)


def gpu(pid: int, used_mib: int = 20000) -> str:
    return f"gpu 300000 {used_mib} 81920 1980 {pid}"


def test_a_gpu_that_is_not_used(job: Job, gpus: Gpus) -> None:
    job.python(SPIN)
    verdicts = gpus.verdicts(gpu(0, 4), "at 0 0 60000 210 1")
    assert codes(verdicts) == ["gpu-unused"] and verdicts[0].certainty is Certainty.PROVEN
    assert "no process is on it" in text_of(verdicts[0])


def test_a_gpu_that_waits_for_data(job: Job, gpus: Gpus) -> None:
    pid = job.python(LOADER).pid
    rows = ["at 9 2 71000 1980 0", "at 0 0 65000 1980 0", "at 14 3 80000 1980 0"]
    verdicts = gpus.verdicts(gpu(pid), *rows)
    assert codes(verdicts) == ["gpu-waits-for-data"]
    text = text_of(verdicts[0])
    assert "1 workers run at" in text and "data from a pipe" in text and "of 300 W" in text


def test_clocks_that_heat_holds_down(job: Job, gpus: Gpus) -> None:
    pid = job.python(SPIN).pid
    verdicts = gpus.verdicts(gpu(pid), "at 99 50 250000 600 40")
    assert codes(verdicts) == ["gpu-clocks"] and verdicts[0].certainty is Certainty.PROVEN
    assert "600 MHz of 1980" in text_of(verdicts[0])


def test_a_full_gpu_is_a_risk_only(job: Job, gpus: Gpus) -> None:
    pid = job.python(SPIN).pid
    [verdict] = gpus.verdicts(gpu(pid, 81000), "at 99 50 290000 1980 4")
    assert verdict.code == "gpu-memory" and verdict.certainty is Certainty.UNKNOWN


def test_a_driver_that_never_answers(job: Job, gpus: Gpus) -> None:
    job.python(SPIN)
    file = job.dir / "recording"
    file.write_text("silent\n")
    window = job.window(2, LD_LIBRARY_PATH=str(gpus._place), TK_PRETEND_NVML=str(file))
    assert window.gpu_error == "the GPU driver gave no answer within 3 s"
    assert codes(job.judge(window)) == ["one-thread"]


def test_a_lost_gpu_is_named(job: Job, gpus: Gpus) -> None:
    job.python(SPIN)
    file = job.dir / "recording"
    file.write_text("fail 15\n")
    window = job.window(2, LD_LIBRARY_PATH=str(gpus._place), TK_PRETEND_NVML=str(file))
    assert window.gpu_error == "NVML: GPU is lost"


def test_nvidia_smi_where_there_is_no_library(job: Job, tmp_path: Path) -> None:
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has the library")
    job.env["CUDA_VISIBLE_DEVICES"] = "0"
    pid = job.python(LOADER).pid
    smi = tmp_path / "bin/nvidia-smi"
    smi.parent.mkdir()
    row = "0, GPU-1, NVIDIA A100, 8, 2, 81920, 20000, 71.5, 300.00, 1410, 1410, 0x0000000000000000"
    smi.write_text(
        f"#!/bin/sh\ncase $1 in *compute-apps*) echo 'GPU-1, {pid}, 20000' ;; "
        f"*) echo '{row}' ;; esac\n"
    )
    smi.chmod(0o755)
    window = job.window(8, PATH=f"{smi.parent}:{os.environ['PATH']}")
    assert window.gpu_source == "nvidia-smi"
    assert codes(job.judge(window)) == ["gpu-waits-for-data"]


# -- healthy programs -----------------------------------------------------------------------------

WRITES = """\
    import os
    file = open("{place}/x", "ab", buffering=0)
    try:
        while True:
            file.write(bytes(1 << 16))
    except OSError:
        print("ready", flush=True)
    while True:
        pass
    """


@pytest.mark.root
def test_a_full_file_system_that_the_job_writes_to(job: Job, tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        job.python(WRITES.format(place=place))
        first = job.verdicts(1)[0]
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
    assert (first.code, first.certainty) == ("storage-full", Certainty.PROVEN), text_of(first)
    assert first.because[0].text == f"{place} (tmpfs): 0 bytes free of 1 MB"


HEALTHY = {
    "a serial program on one CPU": (SPIN, 1, ""),
    "a server that waits for clients": (
        """\
        import socket
        server = socket.create_server(("127.0.0.1", 0))
        print("ready", flush=True)
        server.accept()
        """,
        2,
        "",
    ),
    "an event loop without work": (
        """\
        import asyncio
        async def main():
            print("ready", flush=True)
            await asyncio.Event().wait()
        asyncio.run(main())
        """,
        2,
        "",
    ),
    "a program that sleeps between looks": (
        """\
        import time
        print("ready", flush=True)
        while True:
            time.sleep(1)
        """,
        2,
        "",
    ),
    "one process for each CPU": (
        """\
        import os
        if os.fork():
            print("ready", flush=True)
        while True:
            pass
        """,
        2,
        "",
    ),
    "a program that logs": (
        """\
        import time
        print("ready", flush=True)
        out = open("log.txt", "w")
        while True:
            print("step", file=out, flush=True)
            time.sleep(0.2)
        """,
        2,
        "",
    ),
    "a pipeline that computes and hands on": (
        """\
        import os
        out, into = os.pipe()
        if os.fork() == 0:
            while True:
                sum(range(300_000))
                os.write(into, b"x")
        print("ready", flush=True)
        while os.read(out, 1):
            sum(range(300_000))
        """,
        2,
        "",
    ),
    "a shell script that runs one program after another": (
        """\
        import subprocess
        print("ready", flush=True)
        while True:
            subprocess.run(["sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"])
        """,
        1,
        "",
    ),
    "a training loop whose GPU is busy": (SPIN, 2, "at 97 60 280000 1900 4"),
    "a GPU that is idle for a moment": (SPIN, 2, "at 100 60 290000 1900 0\nat 40 9 120000 1900 0\n"
        "at 100 60 290000 1900 0"),
}  # fmt: skip


@pytest.mark.why("healthy")
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_program_has_no_finding(name: str, job: Job, gpus: Gpus) -> None:
    source, cpus, recording = HEALTHY[name]
    if not recording:
        job.env["CUDA_VISIBLE_DEVICES"] = ""
    pid = job.python(source).pid
    verdicts = gpus.verdicts(*([gpu(pid), recording] if recording else []), cpus=cpus)
    assert codes(verdicts) == ["nothing"], [text_of(one) for one in verdicts]
