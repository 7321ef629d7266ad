"""The probe's stream on this machine: GPUs of a pretend driver, its cost, and its ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.slow_rig import Job, pretend_job, pretend_nvml
from tunnelkit import probe_zip

pytestmark = pytest.mark.slow

WAIT = "import threading; print('ready', flush=True); threading.Event().wait()"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    with pretend_job(tmp_path) as found:
        yield found


def start(job: Job, **env: str) -> subprocess.Popen[bytes]:
    zip_file = job.dir / "probe.zip"
    zip_file.write_bytes(probe_zip.build_sampler().data)
    return subprocess.Popen(
        [sys.executable, "-I", "-S", zip_file, "stream", "--job", job.id],
        env={**os.environ, **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def line(probe: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert probe.stdout is not None
    found: dict[str, Any] = json.loads(probe.stdout.readline())
    return found


def end(probe: subprocess.Popen[bytes]) -> None:
    """Close its stdin, and see it end with its child."""
    assert probe.stdin is not None and probe.stdout is not None
    probe.stdin.close()
    assert probe.wait(30) == 0
    # The child that reads the GPUs has the pipe, too: it has ended with it.
    probe.stdout.read()
    probe.stdout.close()


def test_periods_and_a_whole_one(job: Job) -> None:
    pid = job.python(WAIT).pid
    probe = start(job)
    try:
        periods = [line(probe) for _ in range(7)]
    finally:
        end(probe)
    assert all(one["processes"][0]["pid"] == pid for one in periods)
    assert [one.get("whole", False) for one in periods] == [False] * 6 + [True]
    assert periods[0]["seconds"] < 2 < periods[-1]["seconds"] / 4
    assert "places" in periods[-1] and "places" not in periods[0]
    assert set(periods[-1]["threads"][0]["waits"]) == {"futex"}


def test_gpus_are_read_again_and_again(job: Job, tmp_path: Path) -> None:
    library = pretend_nvml(tmp_path)
    if library is None:
        pytest.skip("no C compiler here")
    pid = job.python(WAIT).pid
    play = tmp_path / "recording"
    play.write_text(f"gpu 300000 20000 81920 1980 {pid}\nat 99 50 250000 600 40\n")
    probe = start(job, LD_LIBRARY_PATH=str(library), TK_PRETEND_NVML=str(play))
    try:
        # In the first object already: `tk top --once` shows no other.
        gpu = line(probe)["gpu"]
        assert (gpu["source"], gpu["gpus"][0]["busy"][0]) == ("NVML", 99)
        assert gpu["gpus"][0]["processes"] == [[pid, 20000 << 20]]
        # A period's own samples, not all so far.
        line(probe)
        assert len(line(probe)["gpu"]["gpus"][0]["busy"]) <= 5
    finally:
        end(probe)


def test_a_driver_that_never_answers_holds_up_nothing(job: Job, tmp_path: Path) -> None:
    library = pretend_nvml(tmp_path)
    if library is None:
        pytest.skip("no C compiler here")
    job.python(WAIT)
    play = tmp_path / "recording"
    play.write_text("silent\n")
    probe = start(job, LD_LIBRARY_PATH=str(library), TK_PRETEND_NVML=str(play))
    try:
        errors = [line(probe)["gpu"]["error"] for _ in range(6)]
    finally:
        end(probe)
    assert errors[0] == "the driver has not answered yet"
    assert errors[-1] == "the GPU driver gave no answer within 3 s"


def test_it_ends_when_nobody_reads(job: Job) -> None:
    job.python(WAIT)
    probe = start(job)
    line(probe)
    assert probe.stdin is not None and probe.stdout is not None
    probe.stdout.close()
    assert probe.wait(30) == 0
    probe.stdin.close()


def test_words_that_are_not_known(job: Job) -> None:
    zip_file = job.dir / "probe.zip"
    zip_file.write_bytes(probe_zip.build_sampler().data)
    argv = [sys.executable, "-I", "-S", str(zip_file), "stream", "--jobs"]
    done = subprocess.run(argv, capture_output=True, check=False)
    assert done.returncode == 2 and b"probe stream" in done.stderr
