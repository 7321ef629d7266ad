"""The probe's cost: CPU of one sample of ten seconds, Python's start and its children included."""

from __future__ import annotations

import os
import resource
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from benchlib.measure import Series, interleaved
from tunnelkit import probe_zip
from tunnelkit.session.why.running import BOOT

START, EMPTY, ONE, MANY = (
    "Python alone",
    "an empty job",
    "1 process",
    "64 processes, 1,024 threads",
)
COST = "CPU, ms of a window of 10 s"
SECONDS = 10
_PROGRAM = """
import os, sys, threading
processes, threads = int(sys.argv[1]), int(sys.argv[2])
for _ in range(processes - 1):
    if os.fork() == 0:
        break
for _ in range(threads - 1):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
threading.Event().wait()
"""
_SIZES = {EMPTY: (0, 0), ONE: (1, 1), MANY: (64, 16)}


def run(rounds: int) -> dict[str, dict[str, Series]]:
    """Sample jobs of several sizes; nothing of them runs."""
    found = {name: Series() for name in (START, *_SIZES)}
    for name in interleaved([START, *_SIZES], rounds, "probe"):
        if name == START:
            found[name].values.append(_cost([sys.executable, "-I", "-S", "-c", "pass"]))
            continue
        with _job(*_SIZES[name]) as job:
            words = ["-c", BOOT, "sample", "--seconds", str(SECONDS), "--job", job]
            found[name].values.append(_cost([sys.executable, "-I", "-S", *words]))
    return {COST: found}


@contextmanager
def _job(processes: int, threads: int) -> Iterator[str]:
    """Start processes that carry a job's number."""
    job = str(10**9 + secrets.randbelow(10**8))
    if not processes:
        yield job
        return
    program = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(processes), str(threads)],
        env={**os.environ, "SLURM_JOB_ID": job},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert program.stdout is not None
    try:
        for _ in range(processes):
            program.stdout.readline()
        yield job
    finally:
        os.killpg(program.pid, signal.SIGKILL)
        program.wait()
        program.stdout.close()


def _cost(argv: list[str]) -> float:
    """Return the milliseconds of CPU time that a command and its children took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    data = probe_zip.build_sampler().data
    subprocess.run(argv, input=data, check=True, stdout=subprocess.DEVNULL, start_new_session=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
