"""A black box that runs beside a pretend job's script, and its record."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tunnelkit import probe_zip

#: The job's script: starts the box, then what it is given, and ends the box as tk's script does.
SCRIPT = """\
"$PYTHON" -I -S "$ZIP" box "$TK" "$TK/status" $WORDS &
box=$!
echo "$box" >"$TK/box.pid"
echo "running here $$" >"$TK/status"
while [ ! -e "$TK/boxes" ]; do sleep 0.05; done
sh -c "$PROGRAM"
echo "ended $?" >"$TK/status"
kill -USR2 "$box"
wait "$box"
"""


class Job:
    """The pretend job: its script's process, and its directory."""

    def __init__(self, process: subprocess.Popen[bytes], directory: Path, job: str) -> None:
        self.process = process
        self.directory = directory
        self._job = job

    @property
    def path(self) -> Path:
        return self.directory / "boxes" / f"{self._job}.0.jsonl"

    @property
    def box_pid(self) -> int:
        path = self.directory / "box.pid"
        until(lambda: path.exists() and path.read_text().strip(), "the box's pid")
        return int(path.read_text())

    def lines(self, kind: str) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        found = [json.loads(line) for line in self.path.read_text().splitlines()]
        return [one for one in found if one["kind"] == kind]


@contextmanager
def running(
    directory: Path, program: str, *, job: str = "99077", words: str = "", within: str = ""
) -> Iterator[Job]:
    """A job that runs `program` in sh. within: a cgroup's directory that it enters first."""
    directory.mkdir(exist_ok=True)
    archive = directory / "probe.zip"
    archive.write_bytes(probe_zip.build().data)
    enter = f'echo $$ >"{within}/cgroup.procs"\n' if within else ""
    env = {name: text for name, text in os.environ.items() if not name.startswith("SLURM_")}
    env |= {
        "PYTHON": sys.executable,
        "ZIP": str(archive),
        "TK": str(directory),
        "WORDS": words,
        "PROGRAM": program,
        "SLURM_JOB_ID": job,
    }
    process = subprocess.Popen(
        ["sh", "-c", enter + SCRIPT], env=env, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield Job(process, directory, job)
    finally:
        # The box, and what the program has left, are in its group.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def until(condition: Callable[[], object], what: str, deadline_s: float = 30.0) -> None:
    """Poll a condition that has no event to wait for."""
    ends = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < ends, f"not within {deadline_s:.0f} s: {what}"
        time.sleep(0.02)


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state != "Z"
