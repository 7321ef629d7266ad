"""The script that brings a command into a job of PBS or Torque, run on the job's node.

Neither scheduler starts anything in a job from outside. But on the node `pbs_attach` (Torque:
`pbs_track`) makes a process that ssh started a part of the job: in its cgroup, counted, and ended
with it. The environment is that of the job's first process; on nodes without one, only its id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

#: Mark in the script's output before the reason why the command is not part of the job.
OUTSIDE = "tk-outside: "

# $1 the job's number, $2 its id, then what is to run. The job's first process is the user's oldest
# one that has its id and whose parent has not. Arguments are rotated, since the environment may
# hold anything and comes as words. Without pbs_attach nothing else would end it with the job.
_STEP = r"""
number=$1 job=$2; shift 2
id_of() { tr '\0' '\n' <"$1/environ" 2>/dev/null | grep -aE "^PBS_JOBID=$number(\.|\$)"; }
first=
for dir in /proc/[0-9]*; do
  [ -O "$dir" ] || continue
  pid=${dir#/proc/}
  [ -z "$first" ] || [ "$pid" -lt "$first" ] || continue
  told=$(id_of "$dir") && stat=$(cat "$dir/stat" 2>/dev/null) || continue
  ! id_of "/proc/$(set -- ${stat##*) }; echo "$2")" >/dev/null || continue
  first=$pid job=${told#PBS_JOBID=}
done
case $job in
  *.*) ;;
  *) server=$( (. /etc/pbs.conf && echo "$PBS_SERVER") 2>/dev/null) && job=$job.$server ;;
esac
attach=$(command -v ATTACH) ||
  attach=$( (. /etc/pbs.conf && echo "$PBS_EXEC/bin/ATTACH") 2>/dev/null)
if [ ! -x "$attach" ]; then why="this node has no ATTACH"
else why=$("$attach" -j "$job" OPTION $$ 2>&1) && why=
fi
if [ -z "$first" ] && [ -n "$why" ]; then
  echo "$why; nor does anything of the job run there" >&2; exit 1
fi
count=$#
run() {
  [ -n "$first" ] || { shift; exec env PBS_JOBID="$job" "$@"; }
  exec xargs -0 -x -a "/proc/$first/environ" sh -c '
    count=$1; shift
    while [ "$count" -gt 0 ]; do set -- "$@" "$1"; shift; count=$((count-1)); done
    exec env -i "$@"' sh "$@"
}
[ -n "$why" ] || run "$count" "$@"
echo "OUTSIDE$why" | head -n 1
run "$count" "$@" &
while kill -0 $! 2>/dev/null && [ -e "/proc/$first" ]; do sleep 2; done
trap '' TERM
kill -TERM 0
wait $!
""".replace("OUTSIDE", OUTSIDE)


class Attach(NamedTuple):
    """The program that makes a process a part of a job, and the option that names the process."""

    program: str
    option: str


PBS_ATTACH = Attach("pbs_attach", "-p")
#: Torque completes a job's bare number with its server's name by itself.
PBS_TRACK = Attach("pbs_track", "-a")


def step(attach: Attach, number: str, job_id: str, argv: Sequence[str]) -> list[str]:
    """Return a command for a node of the job that runs `argv` in the job."""
    script = _STEP.replace("ATTACH", attach.program).replace("OPTION", attach.option)
    return ["sh", "-c", script, "sh", number, job_id, *argv]
