"""A login host with a scheduler, as the contract suite sees it: run a command, wait for a job."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab_fixtures import ssh_argv
from tunnelkit.lab import LabInfo
from tunnelkit.model import Completed, JobState, JobStatus, ResourceRequest
from tunnelkit.scheduler.base import Command, Scheduler
from tunnelkit.scheduler.job_script import body

DEADLINE_S = 40.0


@dataclass
class Cluster:
    """The lab's login host and one scheduler; jobs submitted here are cancelled at the end."""

    info: LabInfo
    scheduler: Scheduler
    jobs: list[str] = field(default_factory=list)

    def remote_argv(self, argv: Sequence[str]) -> list[str]:
        return [*ssh_argv(self.info, "login"), shlex.join(argv)]

    def run(self, command: Command) -> Completed:
        done = subprocess.run(
            self.remote_argv(command.argv),
            input=command.stdin,
            capture_output=True,
            timeout=60,
            check=False,
        )
        return Completed(done.returncode, done.stdout, done.stderr)

    def submit(self, job_name: str, request: ResourceRequest, script: str = "") -> str:
        command = self.scheduler.submit(
            request, job_name=job_name, body=script or hold(job_name), log_dir="~/"
        )
        job_id = self.scheduler.parse_submit(self.run(command))
        self.jobs.append(job_id)
        return job_id

    def status(self, job_id: str) -> JobStatus:
        done = self.run(self.scheduler.query([job_id]))
        return self.scheduler.parse_query(done, [job_id])[job_id]

    def find(self, job_name: str) -> list[JobStatus]:
        return self.scheduler.parse_find(self.run(self.scheduler.find(job_name)), job_name)

    def until(self, job_id: str, want: Callable[[JobStatus], bool], what: str) -> JobStatus:
        end = time.monotonic() + DEADLINE_S
        while not want(status := self.status(job_id)):
            assert time.monotonic() < end, f"{what} did not come: {status}"
            time.sleep(0.1)
        return status

    def running(self, job_id: str) -> JobStatus:
        return self.until(job_id, lambda s: s.state is JobState.RUNNING, "RUNNING")

    def cancel(self, job_id: str) -> JobStatus:
        self.scheduler.parse_cancel(self.run(self.scheduler.cancel(job_id)))
        return self.until(job_id, lambda s: s.state is JobState.ENDED, "the end")

    def home(self, name: str) -> Path:
        return self.info.home / name

    def file(self, node: str, path: str) -> str:
        """A file on that node's own disk."""
        return Path(path).read_text()


@contextmanager
def cluster(info: LabInfo, scheduler: Scheduler) -> Iterator[Cluster]:
    rig = Cluster(info, scheduler)
    try:
        yield rig
    finally:
        for job_id in rig.jobs:
            rig.cancel(job_id)
            rig.home(f"{job_id}.log").unlink(missing_ok=True)
        for suffix in ("st", "env", "sig"):
            for file in info.home.glob(f"tk-*.{suffix}"):
                file.unlink()


def hold(job_name: str) -> str:
    """A holder whose agent tells its environment and then waits to be ended."""
    agent = 'env >"$HOME/$1.env"; trap "exit 7" TERM; trap "echo USR1 >>$HOME/$1.sig" USR1; '
    agent += "while :; do sleep 1000 & wait $!; done"
    argv = ["sh", "-c", agent, "agent", job_name]
    return body(agent_argv=argv, prologue="export FROM_PROLOGUE=1", status_file=f"~/{job_name}.st")


def until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.05)
