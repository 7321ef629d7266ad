"""Detection of a login host's scheduler: one command, and the parser of its output. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tunnelkit.errors import SchedulerError
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import Command

SchedulerName = Literal["slurm", "pbs", "torque", "none"]

#: A command over ssh gets no login shell, so its PATH may lack the scheduler: these directories
#: are searched as well, and the one that PBS's own configuration names.
USUAL_DIRS = (
    "/opt/slurm/bin", "/usr/local/slurm/bin", "/opt/slurm/current/bin",
    "/cm/shared/apps/slurm/current/bin",
    "/opt/pbs/bin", "/opt/torque/bin", "/usr/local/torque/bin", "/usr/local/bin",
)  # fmt: skip

#: sh code. $1: directories after the PATH. $2: not empty: Slurm's version does not matter. Each
#: line of the answer starts with a marker, as banners may come before. Torque prints its version on
#: stderr (2.x: `version:`), OpenPBS on stdout. Sets $kind as `parse_detect` will find it.
DETECT_SCRIPT = r"""
PATH=$PATH${1:+:$1}
conf=${PBS_CONF_FILE:-/etc/pbs.conf}
[ -r "$conf" ] && PATH=$PATH:$(sed -n 's,^ *PBS_EXEC=\([^ ]*\).*,\1/bin,p' "$conf" | tail -n 1)
for c in sbatch squeue scancel srun sacct qsub qstat qselect qdel; do
  p=$(command -v "$c" 2>/dev/null) && printf 'tk-found %s %s\n' "$c" "$p"
done
kind=none
if command -v sbatch >/dev/null 2>&1; then
  kind=slurm
  [ "$2" ] || sbatch --version 2>&1 </dev/null | sed 's/^/tk-sbatch /'
fi
if command -v qstat >/dev/null 2>&1; then
  v=$(qstat --version 2>&1 </dev/null)
  printf '%s\n' "$v" | sed 's/^/tk-qstat /'
  case $v in *pbs_version*|*Version:*|version:*)
    qstat -B -f 2>/dev/null </dev/null | sed -n 's/^ *job_history_enable = /tk-history /p'
    [ "$kind" = slurm ] && ! timeout 10 sinfo -h >/dev/null 2>&1 </dev/null &&
      command -v qsub >/dev/null 2>&1 && kind=none &&
      echo tk-silent slurm;;
  esac
  [ "$kind" = slurm ] ||
    case $v in *pbs_version*) kind=pbs ;; *Version:*|version:*) kind=torque ;; esac
fi
echo tk-done
"""


def detect(dirs: Sequence[str] = USUAL_DIRS) -> Command:
    """Return the command for `parse_detect`. dirs: searched besides the login host's PATH."""
    return Command(("sh", "-c", DETECT_SCRIPT, "sh", ":".join(dirs)))


DETECT = detect()


@dataclass(frozen=True, slots=True)
class Detected:
    """The scheduler of a login host.

    version: None if it printed none. bin_dir: the directory of its submit command.
    bin_dirs: the directory of each command that was found; sites wrap single commands, in another
    directory. history: True for a PBS that is known to keep finished jobs."""

    name: SchedulerName
    version: str | None = None
    bin_dir: str = ""
    bin_dirs: Mapping[str, str] = field(default_factory=dict, compare=False)
    history: bool = False


def parse_detect(done: Completed) -> Detected:
    """Parse the output of DETECT. Raises SchedulerError (transient) if there is none.

    Slurm wins over qsub, since Slurm sites often have its qsub wrappers; but not if Slurm
    does not answer and a real PBS is there. A qsub whose qstat is neither OpenPBS nor Torque
    (Grid Engine) counts as none.
    """
    lines = [line.strip() for line in done.text.splitlines()]
    if "tk-done" not in lines:
        raise SchedulerError(
            "the login host did not say which scheduler it has",
            cause=done.error_text or f"exit status {done.exit_code}",
            transient=True,
            hint="try again; `tk doctor` checks the login shell there",
        )
    found = (line.split(" ", 2) for line in lines if line.startswith("tk-found "))
    paths = {words[1]: words[2] for words in found if len(words) == 3}
    dirs = {name: _dir(path) for name, path in paths.items()}
    history = _said(lines, "tk-history ").strip() == "True"
    if "sbatch" in paths and not ("qsub" in paths and "tk-silent slurm" in lines):
        match = re.search(r"slurm\S* (\d\S*)", _said(lines, "tk-sbatch "))
        return Detected("slurm", match[1] if match else None, dirs["sbatch"], dirs, history)
    if "qsub" in paths:
        said = _said(lines, "tk-qstat ")
        if match := re.search(r"pbs_version\s*=\s*(\S+)", said):
            return Detected("pbs", match[1], dirs["qsub"], dirs, history)
        if match := re.search(r"^[Vv]ersion:\s*(\S+)", said, re.MULTILINE):
            return Detected("torque", match[1], dirs["qsub"], dirs, history)
    return Detected("none", bin_dirs=dirs)


def _said(lines: list[str], marker: str) -> str:
    return "\n".join(line.removeprefix(marker) for line in lines if line.startswith(marker))


def _dir(path: str) -> str:
    # An alias or a function has no directory: then the PATH must do.
    return path.rpartition("/")[0] if path.startswith("/") else ""
