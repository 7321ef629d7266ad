"""Programs that stand at an exception in a job of `tk submit` (keeper/hook/standing.py)."""

import json
import os
from typing import Mapping

#: Name of such a process, and in that of the file by which it takes requests.
NAME = "tk-stands"


def is_standing(pid: int, environ: Mapping[str, str]) -> bool:
    """True if a process of this agent's job stands at its exception."""
    for name in ("SLURM_JOB_ID", "PBS_JOBID"):
        if environ.get(name) != os.environ.get(name):
            return False
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip() == NAME
    except OSError:
        return False


def ask(pid: int, request: "Mapping[str, object]") -> None:
    """Have it dial in. Only its own user can open that file. Raises OSError."""
    where = f"/proc/{pid}/fd"
    for name in os.listdir(where):
        path = os.path.join(where, name)
        if NAME in os.readlink(path):
            with open(path, "w") as file:
                json.dump(request, file)
            return
    raise FileNotFoundError(f"process {pid} takes no requests")
