"""The job as PBS and Torque have it. A user may not set a job's comment there."""

import os
import re
import signal
import subprocess
import time
from typing import Dict, Optional

from tunnelkit.keeper.slurm_job import JobRecord

#: Limit for one command of PBS.
_LIMIT_S = 10.0


class PbsJob:
    """This job. job_id: as its files are named, 14 or 14-3. began_s: when its script did."""

    variable = "PBS_JOBID"

    def __init__(self, environ: Dict[bytes, bytes], bin_dir: str, began_s: float) -> None:
        self.full_id = os.fsdecode(environ.get(b"PBS_JOBID", b""))
        found = re.match(r"([0-9]+)(?:\[([0-9]+)\])?", self.full_id)
        #: The number of the job's array, or "".
        self.group = found[1] if found and found[2] else ""
        self.job_id = "-".join(part for part in found.groups() if part) if found else ""
        self.array = self.full_id if self.group else None
        #: The server's name, as in the ids of all its jobs.
        self.cluster = self.full_id.partition(".")[2][:100]
        self.name = os.fsdecode(environ.get(b"PBS_JOBNAME", b""))[:100]
        self.node = _first_node(environ)
        self._began_s = began_s
        self._environ = dict(environ)
        path = [environ.get(b"PATH", b""), bin_dir.encode(), b"/usr/local/bin:/usr/bin:/bin"]
        path.append(b"/opt/pbs/bin")
        self._environ[b"PATH"] = b":".join(one for one in path if one)
        self._text = ""

    def record(self) -> Optional[JobRecord]:
        """Ask PBS, or read Torque's variable; None if neither tells the time limit."""
        walltime = self._attributes().get("walltime") or os.fsdecode(
            self._environ.get(b"PBS_WALLTIME", b"")
        )
        parts = walltime.split(":")
        if not all(part.isdigit() for part in parts) or len(parts) > 3:
            return None
        seconds = 0
        for part in parts:
            seconds = seconds * 60 + int(part)
        return JobRecord(self._began_s + seconds, "")

    def set_comment(self, text: str) -> bool:
        """Do nothing: only an operator may."""
        return False

    def resources(self) -> "Dict[str, int]":
        """Return the job's GPUs, CPUs and nodes: what keeping it costs."""
        asked = self._attributes()

        def number(*names: str) -> int:
            for name in names:
                text = asked.get(name) or os.fsdecode(self._environ.get(name.encode(), b""))
                if text.isdigit():
                    return int(text)
            return 0

        nodes = max(1, number("nodect", "PBS_NUM_NODES"))
        cpus = number("ncpus", "PBS_NP", "NCPUS")
        return {"gpus": number("ngpus", "gpus"), "cpus": cpus, "nodes": nodes}

    def _attributes(self) -> Dict[str, str]:
        """Return what was asked for, of `qstat -f`."""
        text = self._text = self._text or self._ask()
        return dict(re.findall(r"^\s+Resource_List\.(\w+) = (\S+)", text, re.M))

    def _ask(self) -> str:
        try:
            done = subprocess.run(
                ["qstat", "-f", self.full_id],
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_LIMIT_S,
                preexec_fn=_unblock,
                check=False,
            )
        except (OSError, ValueError, subprocess.SubprocessError):
            return ""
        return done.stdout[:100_000].decode("utf-8", "replace")


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _first_node(environ: Dict[bytes, bytes]) -> str:
    try:
        with open(environ.get(b"PBS_NODEFILE", b"")) as file:
            return file.readline().strip() or os.uname().nodename
    except OSError:
        return os.uname().nodename


def make(environ: Dict[bytes, bytes], bin_dir: str) -> PbsJob:
    """Return this job, whose script begins now."""
    return PbsJob(environ, bin_dir, time.time())
