"""Programs that run as a job's would, sampled by the probe's zip and judged; no scheduler."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.why_report import saw
from tunnelkit import probe_zip
from tunnelkit.diagnosis.evidence.job import JobView, NodeNeed
from tunnelkit.diagnosis.evidence.window import NodeWindow, parse_window
from tunnelkit.diagnosis.running.rules import judge_running
from tunnelkit.diagnosis.verdict import Verdict
from tunnelkit.model import JobState

_TRIES = 6
_C_FILE = Path(__file__).parent / "data/pretend_nvml.c"


@dataclass
class Job:
    """A pretend job. Its programs say `ready` on stdout once they do what they are to do."""

    dir: Path
    id: str = field(default_factory=lambda: str(10**9 + secrets.randbelow(10**8)))
    env: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def python(self, source: str, *before: str, **env: str) -> subprocess.Popen[bytes]:
        """Start a Python program; `before`: words such as `taskset -c 0`."""
        path = self.dir / f"program{len(self.started)}.py"
        path.write_text(textwrap.dedent(source))
        return self.start([*before, sys.executable, str(path)], **env)

    def start(self, argv: Sequence[str], **env: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            argv,
            cwd=self.dir,
            env={**os.environ, "SLURM_JOB_ID": self.id, **self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.started.append(process)
        prefer(process.pid)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    def window(self, seconds: float = 3, **env: str) -> NodeWindow:
        """Sample it by the zip, as it runs on a node."""
        zip_file = self.dir / "probe.zip"
        zip_file.write_bytes(probe_zip.build_sampler().data)
        done = subprocess.run(
            [
                *(sys.executable, "-I", "-S", zip_file),
                *("sample", "--seconds", str(seconds), "--job", self.id),
            ],
            env={**os.environ, **env},
            capture_output=True,
            timeout=60,
            start_new_session=True,
        )
        assert done.returncode == 0, done.stderr
        found = parse_window(done.stdout, "node1")
        assert found is not None, done.stdout
        return found

    def judge(self, window: NodeWindow, cpus: int = 2) -> tuple[Verdict, ...]:
        view = JobView(self.id, JobState.RUNNING, "RUNNING", need=NodeNeed(cpus=cpus))
        found = judge_running(view, [window], 0.0)
        saw(found[0].code, found[0].certainty.value)
        return found

    def verdicts(self, seconds: float = 3, cpus: int = 2, **env: str) -> tuple[Verdict, ...]:
        """Sample and judge. While other programs of this machine take the job's CPUs, the rules
        rightly say so: then once more."""
        for _ in range(_TRIES):
            window = self.window(seconds, **env)
            if not _is_disturbed(window):
                break
        return self.judge(window, cpus)

    def end(self) -> None:
        for one in self.started:
            try:
                os.killpg(one.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            one.wait()
            if one.stdout is not None:
                one.stdout.close()


def prefer(pid: int) -> None:
    """Have the kernel prefer a session's programs, where this user may: other tests run, too."""
    try:
        with open(f"/proc/{pid}/autogroup", "w") as file:
            file.write("-20")
    except OSError:
        pass


def _is_disturbed(window: NodeWindow) -> bool:
    """True if the job waits for CPUs that others use."""
    run = sum(one.run + one.children for one in window.processes)
    cpus = frozenset().union(*(one.cpus for one in window.processes))
    taken = sum(window.cpu_busy.get(cpu, 0.0) for cpu in cpus) - run
    wait = sum(one.wait for one in window.processes)
    held = any(one.throttled for one in window.quotas)
    return taken > 0.15 and wait > 0.08 and run < 0.9 * len(cpus) and not held


@contextmanager
def pretend_job(directory: Path) -> Iterator[Job]:
    job = Job(directory)
    try:
        yield job
    finally:
        job.end()


def pretend_nvml(directory: Path) -> Path | None:
    """Compile the pretend library; None where there is no compiler. Returns its directory."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    place = directory / "nvml"
    place.mkdir()
    argv = [
        compiler,
        "-shared",
        "-fPIC",
        "-O1",
        "-o",
        str(place / "libnvidia-ml.so.1"),
        str(_C_FILE),
    ]
    subprocess.run(argv, check=True)
    return place
