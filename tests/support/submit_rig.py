"""Scripts of a user's own, submitted by sbatch and by `tk submit`, and what became of them."""

from __future__ import annotations

import asyncio
import re
import secrets
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab_fixtures import ssh_argv
from tests.support.tkrig import Project
from tunnelkit.remote_command import remote_command

#: What a script writes down about itself, into files that its job's id names.
RECORD_SH = r"""
cat /proc/$$/cmdline >"OUT/$SLURM_JOB_ID.argv"
cat /proc/$$/environ >"OUT/$SLURM_JOB_ID.env"
cat >"OUT/$SLURM_JOB_ID.stdin"
cat "$0" >"OUT/$SLURM_JOB_ID.self"
{ grep -E '^(Sig(Blk|Ign)|Cpus_allowed_list|Threads):' /proc/self/status
  umask; pwd; ulimit -a; ls /proc/$$/fd; cat /proc/$$/oom_score_adj
  [ "$SLURM_TASK_PID" = $$ ] && echo own-pid
  [ "$(ps -o pgid= -p $$ | tr -d ' ')" = $$ ] && echo leads-group; } >"OUT/$SLURM_JOB_ID.rest" 2>&1
"""
RECORD_PYTHON = r"""
import os, resource, signal, sys
base = f"OUT/{os.environ['SLURM_JOB_ID']}"
read = lambda path: open(path, "rb").read()
put = lambda name, data: open(f"{base}.{name}", "wb").write(data)
put("argv", read("/proc/self/cmdline"))
put("env", read("/proc/self/environ"))
put("stdin", sys.stdin.buffer.read())
put("self", read(sys.argv[0]))
rest = [sorted(signal.pthread_sigmask(0, ())), os.getcwd(), sorted(os.listdir("/proc/self/fd"))]
rest += [os.environ["SLURM_TASK_PID"] == str(os.getpid()), os.getpgrp() == os.getpid()]
rest += [resource.getrlimit(one) for one in range(resource.RLIM_NLIMITS)]
put("rest", repr(rest).encode())
"""
#: Differ between any two jobs, or any two connections.
VOLATILE = frozenset(
    [b"SLURM_JOB_ID", b"SLURM_JOBID", b"SLURM_TASK_PID", b"SSH_CLIENT", b"SSH_CONNECTION"]
)
#: What tk's own shell on the login host may change on the way to sbatch.
BY_SHELLS = frozenset([b"_", b"SHLVL", b"PWD", b"OLDPWD"])
#: Of `scontrol show job`: what must be the same.
FIELDS = (
    "JobName",
    "JobState",
    "Reason",
    "ExitCode",
    "NumNodes",
    "NumCPUs",
    "NumTasks",
    "CPUs/Task",
    "TimeLimit",
    "Partition",
    "Comment",
    "WorkDir",
    "StdIn",
    "Requeue",
)


@dataclass
class Case:
    """One script. options: for the command line. refused: sbatch does not take it."""

    text: bytes
    options: list[str] = field(default_factory=list)
    args: list[bytes] = field(default_factory=list)
    refused: bool = False


@dataclass
class Ended:
    """A job that has ended: its record, and what its script wrote, without its own id."""

    fields: dict[str, str]
    files: dict[str, bytes]


class Submitter:
    """Submits scripts both ways on a lab, and reads what became of the jobs."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.out = project.base / "out"
        self.out.mkdir(exist_ok=True)

    def sh(self, before: str = "", after: str = "") -> str:
        """The body of a script for sh that records itself."""
        return f"{before}{RECORD_SH}{after}".replace("OUT", str(self.out))

    def python(self, after: str = "") -> str:
        return f"{RECORD_PYTHON}{after}".replace("OUT", str(self.out))

    def write(self, case: Case, name: str) -> Path:
        path = self.project.base / f"case-{secrets.token_hex(4)}" / name
        path.parent.mkdir()
        path.write_bytes(case.text)
        return path

    async def at_login(self, argv: Sequence[str], code: int | None = 0) -> str:
        """Run a command on the login host by ssh."""
        words = [*ssh_argv(self.project.lab, "login"), remote_command(argv)]
        done = await asyncio.to_thread(
            subprocess.run, words, stdin=subprocess.DEVNULL, capture_output=True
        )
        assert code is None or done.returncode == code, done.stderr
        return done.stdout.decode(errors="replace") if done.returncode == 0 else ""

    async def by_sbatch(self, case: Case, path: Path) -> str:
        """Submit by sbatch; the job's id, "" if it is refused."""
        args = [one.decode("utf-8", "surrogateescape") for one in case.args]
        argv = ["sbatch", "--parsable", *case.options, str(path), *args]
        return (await self.at_login(argv, code=None)).strip()

    async def by_tk(self, case: Case, path: Path, *own: str) -> str:
        """Submit by `tk submit`; the job's id, "" if it is refused."""
        args = [one.decode("utf-8", "surrogateescape") for one in case.args]
        done = await self.project.tk(
            "submit", "--json", *own, *case.options, "--", str(path), *args, code=None
        )
        return str(done.json["job"]) if done.code == 0 else ""

    async def ended(self, jobs: Sequence[str], deadline_s: float = 120.0) -> dict[str, Ended]:
        """Wait until all these jobs have ended."""
        async with asyncio.timeout(deadline_s):
            while True:
                records = await self.records()
                mine = {job: records[job] for job in jobs}
                states = {one["JobState"] for one in mine.values()}
                if not states & {"PENDING", "RUNNING", "COMPLETING"}:
                    break
                await asyncio.sleep(0.2)
        return {job: Ended(record, self.files(job)) for job, record in mine.items()}

    async def records(self) -> dict[str, dict[str, str]]:
        """Slurm's record of each job that it knows."""
        out = await self.at_login(["scontrol", "show", "job", "-o"])
        # A script's arguments are in it, with any line ends.
        parts = re.split(r"^(?=JobId=)", out, flags=re.M)
        rows = [dict(re.findall(r"(\S+?)=(\S*)", part)) for part in parts]
        return {row["JobId"]: row for row in rows if "JobId" in row}

    def files(self, job: str) -> dict[str, bytes]:
        mark = f"job{int(job):05d}".encode()
        return {
            path.suffix: path.read_bytes().replace(mark, b"jobN")
            for path in self.out.glob(f"{job}.*")
        }


def environment(data: bytes) -> list[bytes]:
    """The variables without those that differ anyway."""
    left_out = VOLATILE | BY_SHELLS
    return [one for one in data.split(b"\0") if one.partition(b"=")[0] not in left_out]


def differences(one: Ended, other: Ended) -> list[str]:
    """What is not the same about two jobs."""
    found = [
        f"{name}: {one.fields.get(name)} {other.fields.get(name)}"
        for name in FIELDS
        if one.fields.get(name) != other.fields.get(name)
    ]
    if sorted(one.files) != sorted(other.files):
        found.append(f"files: {sorted(one.files)} {sorted(other.files)}")
    for name, data in one.files.items():
        theirs = other.files.get(name, b"")
        if name == ".env":
            mine, others = environment(data), environment(theirs)
            if sorted(mine) != sorted(others):
                found.append(f"env: {set(mine) ^ set(others)}")
        elif data != theirs:
            found.append(f"{name}: {data!r} {theirs!r}")
    return found
