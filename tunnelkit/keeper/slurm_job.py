"""The job as Slurm has it: its end, its comment. Each question has a limit."""

import os
import re
import signal
import subprocess
from typing import Dict, List, NamedTuple, Optional

#: Limit for one command of Slurm.
_LIMIT_S = 10.0
#: squeue's filters, which would hide the job.
_FILTERS = (b"PARTITION", b"ACCOUNT", b"QOS", b"LICENSES", b"NAMES", b"USERS")
#: squeue has a record for each component of a heterogeneous job; a comment may have lines, too.
_NEXT_COMPONENT = re.compile(r"\n(?=(?:[0-9]+|N/A|NONE|Unknown) )")


class JobRecord(NamedTuple):
    """end_s: when its time limit is reached, None for no limit. comment: "" if it has none."""

    end_s: Optional[float]
    comment: str


class SlurmJob:
    """This job. bin_dir: the directory of Slurm's commands on the login host, or ""."""

    variable = "SLURM_JOB_ID"

    def __init__(self, environ: Dict[bytes, bytes], bin_dir: str) -> None:
        self.full_id = os.fsdecode(environ.get(b"SLURM_JOB_ID", b""))
        self.job_id = self.full_id if self.full_id.isdigit() else ""
        group = os.fsdecode(environ.get(b"SLURM_ARRAY_JOB_ID", b""))
        task = os.fsdecode(environ.get(b"SLURM_ARRAY_TASK_ID", b""))
        #: The number of the job's array, or "".
        self.group = group if group.isdigit() else ""
        self.array = f"{group}_{task}" if group.isdigit() and task.isdigit() else None
        # The last element has the array's number for its own: of that, Slurm takes all elements.
        self._named = self.array or self.job_id
        self.cluster = os.fsdecode(environ.get(b"SLURM_CLUSTER_NAME", b""))[:100]
        self.name = os.fsdecode(environ.get(b"SLURM_JOB_NAME", b""))[:100]
        self.node = node_name(environ)
        self._resources = resources(environ)
        self._environ = {
            name: value
            for name, value in environ.items()
            if name not in [b"SQUEUE_" + one for one in _FILTERS]
        }
        path = [environ.get(b"PATH", b""), bin_dir.encode(), b"/usr/local/bin:/usr/bin:/bin"]
        self._environ[b"PATH"] = b":".join(one for one in path if one)
        self._environ[b"SLURM_TIME_FORMAT"] = b"%s"

    def resources(self) -> "Dict[str, int]":
        """Return the job's GPUs, CPUs and nodes: what keeping it costs."""
        return self._resources

    def record(self) -> Optional[JobRecord]:
        """Ask Slurm; None if it does not answer."""
        out = self._run(["squeue", "-h", "-j", self._named, "-o", "%e %k"])
        first = _NEXT_COMPONENT.split((out or "").strip("\n"))[0]
        end, _, comment = first.partition(" ")
        if not end:
            return None
        limit_s = float(end) if end.isdigit() else None
        return JobRecord(limit_s, "" if comment == "(null)" else comment)

    def set_comment(self, text: str) -> bool:
        """Set the job's comment, which `squeue` shows; False if Slurm does not take it."""
        argv = ["scontrol", "update", f"jobid={self._named}", f"comment={text}"]
        return self._run(argv) is not None

    def _run(self, argv: List[str]) -> Optional[str]:
        try:
            done = subprocess.run(
                argv,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_LIMIT_S,
                preexec_fn=_unblock,
                check=False,
            )
        except (OSError, ValueError, subprocess.SubprocessError):
            return None
        return None if done.returncode else done.stdout.decode("utf-8", "replace")


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def resources(environ: Dict[bytes, bytes]) -> "Dict[str, int]":
    """Return the job's GPUs and CPUs, by its first node's: what keeping it costs."""

    def number(name: bytes) -> int:
        text = environ.get(name, b"")
        return int(text) if text.isdigit() else 0

    nodes = max(1, number(b"SLURM_JOB_NUM_NODES"))
    gpus = number(b"SLURM_GPUS_ON_NODE") or len(
        [one for one in environ.get(b"SLURM_JOB_GPUS", b"").split(b",") if one]
    )
    return {"gpus": gpus * nodes, "cpus": number(b"SLURM_CPUS_ON_NODE") * nodes, "nodes": nodes}


def node_name(environ: Dict[bytes, bytes]) -> str:
    """Return this node as Slurm names it."""
    return os.fsdecode(environ.get(b"SLURMD_NODENAME", b"")) or os.uname().nodename
