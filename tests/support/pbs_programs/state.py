"""The server's memory, and what all programs share."""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

NODES = {"node1": {"ncpus": 4, "ngpus": 2}, "node2": {"ncpus": 2, "ngpus": 0}}
DEFAULTS = {
    "dialect": "pbs",
    "history": True,
    "broken_json": False,
    "down": False,
    "lingers": False,
    "lost_replies": 0,
    "started": True,
    "scheduling": True,
    "nodes": list(NODES),
}
#: Low bytes of PBS's error numbers, as the recorded answers have them.
UNKNOWN_JOB, FINISHED, UNKNOWN_QUEUE, BAD_RESOURCE, BAD_VALUE, BAD_NODES = (
    153,
    35,
    170,
    187,
    166,
    241,
)
KILL_DELAY_S = 2.0
Job = dict[str, Any]


def user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def ctime() -> str:
    return time.strftime("%a %b %d %H:%M:%S %Y")


def fail(code: int, *lines: str) -> NoReturn:
    for line in lines:
        print(line, file=sys.stderr)
    sys.exit(code)


class State:
    """The server's memory: one file a job."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def enter(self, node: str) -> list[str]:
        """argv prefix that runs a program under the node's host name, as `rig.install` wrote it."""
        prefixes: dict[str, list[str]] = json.loads(entries(self.root).read_text())
        return prefixes[node]

    @contextmanager
    def locked(self) -> Iterator[State]:
        with open(self.root / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self

    @property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = json.loads((self.root / "config.json").read_text())
        return config

    def write_config(self, config: dict[str, Any]) -> None:
        self._write(self.root / "config.json", config)

    @property
    def torque(self) -> bool:
        return bool(self.config["dialect"] == "torque")

    def jobs(self) -> dict[str, Job]:
        files = sorted(self.root.glob("*.job"), key=lambda file: int(file.stem))
        jobs = [json.loads(file.read_text()) for file in files]
        return {job["id"]: job for job in jobs}

    def job(self, job_id: str) -> Job | None:
        number = job_id.partition(".")[0]
        file = self.root / f"{number}.job"
        return json.loads(file.read_text()) if file.exists() else None

    def save(self, job: Job) -> None:
        job["mtime"] = ctime()
        self._write(self.root / f"{job['id'].partition('.')[0]}.job", job)

    def next_id(self) -> str:
        file = sequence(self.root)
        number = int(file.read_text()) + 1
        file.write_text(str(number))
        return f"{number}.login"

    def delete(self, job_id: str, who: str) -> None:
        job = self.job(job_id)
        assert job is not None
        comment = job.get("comment")
        if job["job_state"] in "QH":
            if comment:
                job["comment"] = f"{comment} and terminated"
            self.finish(job)
        else:
            job["kill"] = True
            if not self.torque:
                job["comment"] = f"{comment} and terminated by {who}"
            self.save(job)

    def finish(self, job: Job, exit_status: int | None = None) -> None:
        """F, or C, or forgotten, as the server is set up."""
        if exit_status is not None:
            job["Exit_status"] = exit_status
        if self.torque:
            job["job_state"] = "C"
        elif self.config["history"]:
            job["job_state"] = "F"
        else:
            (self.root / f"{job['id'].partition('.')[0]}.job").unlink()
            return
        self.save(job)

    @staticmethod
    def _write(path: Path, data: Any) -> None:
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(data))
        temporary.replace(path)


def sequence(root: Path) -> Path:
    """The file with the number of the last job."""
    return root / "sequence"


def entries(root: Path) -> Path:
    """The file with `State.enter`'s answers. Not in `root`: a fresh server has the same nodes."""
    return root.with_suffix(".enter")


def fits(need: dict[str, int], size: dict[str, int]) -> bool:
    return all(size[name] >= amount for name, amount in need.items())


def limit_s(job: Job) -> float:
    clock = job["Resource_List"].get("walltime")
    if clock is None:
        return float("inf")
    parts = [int(part) for part in clock.split(":")]
    return float(sum(part * 60**power for power, part in enumerate(reversed(parts))))


def start(program: str, state: State, *argv: str) -> None:
    """In the background, as a daemon would run."""
    subprocess.Popen(
        [*words(program, state.root), *argv],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True, cwd="/",
    )  # fmt: skip


def words(program: str, root: Path) -> list[str]:
    """The argv that runs one of the programs."""
    checkout = str(Path(__file__).parents[3])
    script = "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    script += "from tests.support.pbs_programs.main import main; main()"
    return [sys.executable, "-I", "-S", "-c", script, checkout, program, str(root)]
