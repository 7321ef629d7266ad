"""Slurm's JobInspector: one script asks for the job, and by its state for what matters."""

from __future__ import annotations

import re

from tunnelkit.diagnosis.evidence.storage import NO_STORAGE
from tunnelkit.errors import SchedulerError
from tunnelkit.model import Completed, JobState
from tunnelkit.scheduler import box_section, rooms
from tunnelkit.scheduler.base import LoginPrograms
from tunnelkit.scheduler.box_section import with_boxes
from tunnelkit.scheduler.inspector import NO_HINT, Inspection, LogHint
from tunnelkit.scheduler.rooms import storage_of
from tunnelkit.scheduler.sections import PREAMBLE, parse_sections
from tunnelkit.scheduler.slurm.inspect import ended, waiting
from tunnelkit.scheduler.slurm.inspect.job import job_view
from tunnelkit.scheduler.slurm.job_id import JOB_PART, check_job_id
from tunnelkit.scheduler.slurm.states import state_of

# $1 (after the mark): the job, $2: Slurm's directory or "", $3 and $4: see box_section, $5 to $7:
# see LogHint. squeue's
# filters in the environment would hide jobs.
_BEGIN = r"""
id=$1
box_dir=$3 box_job=$4
log_out=$5 log_err=$6 log_given=$7
PATH=${2:+$2:}$PATH
unset SQUEUE_PARTITION SQUEUE_ACCOUNT SQUEUE_QOS SQUEUE_LICENSES SQUEUE_NAMES SQUEUE_USERS
unset SQUEUE_PRIORITY SQUEUE_SIBLING
# Without a limit for an array's indexes, which are cut off after 64 characters.
export SLURM_TIME_FORMAT=%s SLURM_BITSTR_LEN=0
section now date +%s
record=$(bounded scontrol show job -d -o "$id")
code=$?
printf '\n%s job\n%s\n%s-code %s\n' "$mark" "$record" "$mark" "$code"
# The shell takes time by the square of the length for a field that is not there.
short=$record
[ "${#record}" -lt 16384 ] ||
  short=$(printf %s "$record" | head -c 4096; printf %s "$record" | tail -c 4096)
field() {
  value=${short#*" $1="}
  [ "$value" = "$short" ] && value= || value=${value%%" "*}
}
field JobState
state=$value
# Of a job that was requeued while it ran, Slurm clears the run away first. Its record then has the
# times of that run as planned; a job that is over has its end.
if [ "$state" = COMPLETING ]; then
  field RunTime && run=$value
  field StartTime && begin=$value
  field EndTime
  case $run.$begin.$value in
  00:00:00.*.Unknown) state=REQUEUED ;;
  00:00:00.*[!0-9]*.* | 00:00:00..* | 00:00:00.*.*[!0-9]* | *.) ;;
  00:00:00.*) [ $((value - begin)) -lt 60 ] || state=REQUEUED ;;
  esac
fi
case $state in
PENDING|CONFIGURING|POWER_UP_NODE|REQUEUED|REQUEUE_FED|REQUEUE_HOLD|RESV_DEL_HOLD|SPECIAL_EXIT)
"""
_OTHERS = r"""
;;
RUNNING|RESIZING|SIGNALING|SUSPENDED|STOPPED)
if [ "$box_dir" ]; then
  field StdOut
  rooms "${value%/*}"
  quotas "${value%/*}"
fi
;;
*)
"""
_END = "\n;;\nesac\nexit 0\n"
SCRIPT = "".join(
    (
        PREAMBLE,
        rooms.SCRIPT,
        _BEGIN,
        waiting.SCRIPT,
        _OTHERS,
        ended.SCRIPT,
        box_section.SCRIPT,
        _END,
    )
)

# The newest that waits or runs, else the one that ended last.
_NEWEST = r"""
PATH=${1:+$1:}$PATH
unset SQUEUE_PARTITION SQUEUE_ACCOUNT SQUEUE_QOS SQUEUE_LICENSES SQUEUE_NAMES SQUEUE_USERS
unset SQUEUE_PRIORITY SQUEUE_SIBLING
SLURM_TIME_FORMAT=%s timeout 10 squeue --me --noheader -t all -o 'tk-job %i %T %e %V' </dev/null
"""

_ROW = re.compile(r"^tk-job ([0-9]+)(\S*) (\S+) (\S+) (\S+)$", re.M)


class SlurmInspector(LoginPrograms):
    """See `JobInspector`."""

    def newest(self) -> list[str]:
        """See `JobInspector.newest`."""
        return ["sh", "-c", _NEWEST, "sh", self.directory_of("squeue")]

    def parse_newest(self, done: Completed) -> str | None:
        """See `JobInspector.parse_newest`."""
        if done.exit_code != 0:
            raise SchedulerError(
                "Slurm can't be asked for your jobs",
                cause=done.error_text,
                hint="try again in a minute",
                transient=True,
            )
        rows = [one.groups() for one in _ROW.finditer(done.text)]
        alive = [row for row in rows if state_of(row[2])[0] in (JobState.PENDING, JobState.RUNNING)]
        if alive:
            best = max(alive, key=lambda row: int(row[0]))
        elif rows:
            best = max(rows, key=lambda row: (row[3], int(row[0])))
        else:
            return None
        number, task = best[:2]
        return f"{number}{task}" if re.fullmatch(r"_[0-9]+", task) else f"{number}"

    def usual_log(self, job_id: str) -> str:
        """See `JobInspector.usual_log`."""
        return f"slurm-{job_id}.out"

    def inspect(
        self, job_id: str, mark: str, box_dir: str = "", log: LogHint = NO_HINT
    ) -> list[str]:
        """See `JobInspector.inspect`."""
        job = check_job_id(job_id)
        boxes = (box_dir, box_section.job_file_name(job))
        words = (mark, job, self.directory_of("squeue"), *boxes, *log.words)
        return ["sh", "-c", SCRIPT, "sh", *words]

    def parse(self, done: Completed, job_id: str, mark: str) -> Inspection:
        """See `JobInspector.parse`."""
        sections = parse_sections(done.text, mark)
        record, now = sections.get("job"), sections.get("now")
        if record is None or now is None:
            raise SchedulerError(
                f"Slurm can't be asked about job {job_id}",
                cause=done.error_text or f"exit status {done.exit_code}",
                hint="try again in a minute; `tk doctor` checks the login host",
                transient=True,
            )
        job = known = job_view(record.text) if record.code == 0 else None
        array = ended.array_of(sections, job_id)
        if array is not None and (job is None or job.job_id != array.element):
            job = ended.accounted_job(sections, array.element, array) or job
        elif job is None:
            job = ended.accounted_job(sections, job_id)
        missing = []
        if job is None and "nvalid job id" not in record.text:
            missing.append(f"scontrol show job: {record.failure or 'its answer is no record'}")
        waits = job is not None and job.state is JobState.PENDING
        runs = job is not None and job.state is JobState.RUNNING
        end = ended.end_view(sections, known, array)
        return Inspection(
            asked_s=float(now.text.strip() or 0) if now.text.strip().isdigit() else 0.0,
            job=job,
            cluster=waiting.cluster_view(sections, job) if job is not None and waits else None,
            end=None if waits or runs else with_boxes(end, sections),
            missing=tuple(missing),
            storage=storage_of(sections) if runs else NO_STORAGE,
        )

    def shorten(self, address: str, minutes: int) -> list[str]:
        """See `JobInspector.shorten`."""
        program = self._program("scontrol")
        whole = address if JOB_PART.fullmatch(address) else check_job_id(address)
        change = [f"jobid={whole}", f"timelimit={minutes}"]
        return ["timeout", "10", program, "update", *change]

    def parse_shorten(self, done: Completed, job_id: str) -> None:
        """See `JobInspector.parse_shorten`."""
        if done.exit_code != 0:
            raise SchedulerError(
                f"Slurm did not shorten the time limit of job {job_id}",
                cause="no answer within 10 s" if done.exit_code == 124 else done.error_text,
                hint="only the owner may, while the job waits, and only to less time",
            )
