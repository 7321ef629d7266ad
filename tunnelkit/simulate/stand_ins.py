"""Programs that a job finds and this computer has not: srun, and module."""

from __future__ import annotations

from pathlib import Path

from tunnelkit.scheduler.slurm.batch_scripts import LONG_WITH_VALUE, SHORT_WITH_VALUE

#: srun's own options with a value that sbatch lacks, and letters that mean another thing there.
_SRUN_LONG = frozenset(
    {"mpi", "cpu-bind", "accel-bind", "bcast", "epilog", "prolog", "task-epilog", "task-prolog",
     "multi-prog-file", "relative", "jobid", "slurmd-debug", "het-group", "threads"}
)  # fmt: skip
_SRUN_SHORT = (SHORT_WITH_VALUE | frozenset("rTP")) - frozenset("b")
# One task of the step runs; the others are not simulated.
_SRUN = r"""#!/bin/sh
# A stand-in by `tk simulate`: runs one task of the step, here.
while [ $# -gt 0 ]; do
  case $1 in
    --) shift; break ;;
    --version | -V) echo 'srun of tk simulate'; exit 0 ;;
    --*=*) shift ;;
    LONG_CASE) shift; [ $# -gt 0 ] && shift ;;
    --*) shift ;;
    -[SHORT_CASE]) shift; [ $# -gt 0 ] && shift ;;
    -?*) shift ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || { echo 'srun: no command is named' >&2; exit 1; }
[ "${SLURM_NTASKS:-1}" = 1 ] ||
  echo "srun (tk simulate): one of $SLURM_NTASKS tasks runs: $1" >&2
SLURM_STEP_ID=0 SLURM_STEPID=0
export SLURM_STEP_ID SLURM_STEPID
exec "$@"
"""
_MODULE = r"""#!/bin/sh
# A stand-in by `tk simulate`: this computer has no environment modules.
echo "module (tk simulate): not here: module $*" >&2
"""


def write_stand_ins(directory: Path, *, with_module: bool) -> None:
    """Write the programs into a new directory."""
    directory.mkdir(mode=0o700)
    long_names = sorted(LONG_WITH_VALUE | _SRUN_LONG)
    text = _SRUN.replace("LONG_CASE", " | ".join(f"--{name}" for name in long_names))
    text = text.replace("SHORT_CASE", "".join(sorted(_SRUN_SHORT)))
    programs = {"srun": text, **({"module": _MODULE} if with_module else {})}
    for name, content in programs.items():
        path = directory / name
        path.write_text(content)
        path.chmod(0o700)
