"""PBS's JobInspector: one script asks for the job, and by its state for what matters.

The text form of qstat is asked for: every release prints it well, and under TZ=UTC0 its times
are exact. At most six commands of PBS: qstat with and without history, and four about a job
that waits.
"""

from __future__ import annotations

from collections.abc import Mapping

from tunnelkit.errors import SchedulerError
from tunnelkit.model import Completed, JobState
from tunnelkit.scheduler import box_section, rooms
from tunnelkit.scheduler.base import LoginPrograms
from tunnelkit.scheduler.box_section import with_boxes
from tunnelkit.scheduler.inspector import NO_HINT, Inspection, LogHint
from tunnelkit.scheduler.pbs import errors
from tunnelkit.scheduler.pbs.inspect import ended, waiting
from tunnelkit.scheduler.pbs.inspect.job import job_view
from tunnelkit.scheduler.pbs.parse import (
    JobRecord,
    check_job_id,
    parse_full,
    sequence_number,
    unix_time,
)
from tunnelkit.scheduler.pbs.states import state_of
from tunnelkit.scheduler.rooms import storage_of
from tunnelkit.scheduler.sections import PREAMBLE, Section, parse_sections

# $1 (after the mark): the job, $2: PBS's directory or "", $3 and $4: see box_section, $5: -x where
# finished jobs are kept, $6 to $8: see LogHint.
# An attribute's value goes on in lines that begin with a tab. Without a history `-x` is refused,
# with exit status 0.
_BEGIN = r"""
id=$1 box_dir=$3 box_job=$4 log_out=$6 log_err=$7 log_given=$8
PATH=${2:+$2:}$PATH
export TZ=UTC0
section now date +%s
ask() {
  record=$(bounded qstat "$@")
  code=$?
}
ask $5 -f "$id"
case $record in *"not configured to maintain job history"*) ask -f "$id" ;; esac
printf '\n%s job\n%s\n%s-code %s\n' "$mark" "$record" "$mark" "$code"
attribute() {
  printf '%s\n' "$record" | awk -v name="$1" '
    index($0, "\t") == 1 { if (on) value = value substr($0, 2); next }
    on { exit }
    index($0, "    " name " = ") == 1 { on = 1; value = substr($0, length(name) + 8) }
    END { print value }'
}
queue=$(attribute queue)
case $(attribute job_state) in
Q|H|W|T)
"""
_OTHERS = r"""
;;
R|S|U|B)
if [ "$box_dir" ]; then
  path=$(attribute Output_Path)
  path=/${path#*:/}
  rooms "${path%/*}"
  quotas "${path%/*}"
fi
;;
*)
full=$(printf '%s\n' "$record" | sed -n 's/^Job Id: *//p' | head -n 1)
id=${full:-$id}
"""
_END = "\n;;\nesac\nexit 0\n"

# This user's newest jobs: those that wait or run, else those that have ended. The newest ids have
# the highest numbers.
_NEWEST = r"""
PATH=${1:+$1:}$PATH
export TZ=UTC0
me=$(id -un) || exit
ids=$(timeout 10 qselect -u "$me" </dev/null) || exit
if [ -z "$ids" ] && [ -n "$2" ]; then
  ids=$(timeout 10 qselect -x -u "$me" </dev/null) || exit
fi
ids=$(printf '%s\n' "$ids" | sort -n | tail -n 20)
[ -n "$ids" ] || exit 0
exec timeout 10 qstat $2 -f $ids </dev/null
"""


class QstatInspector(LoginPrograms):
    """See `JobInspector`; of PBS and Torque. history: the server keeps finished jobs."""

    title = "PBS"
    _nodes = waiting.NODES

    def __init__(
        self,
        bin_dir: str = "",
        *,
        bin_dirs: Mapping[str, str] | None = None,
        history: bool = False,
    ) -> None:
        super().__init__(bin_dir, bin_dirs=bin_dirs)
        self._history = ["-x"] if history else [""]

    def newest(self) -> list[str]:
        """See `JobInspector.newest`."""
        return ["sh", "-c", _NEWEST, "sh", self.directory_of("qstat"), *self._history]

    def parse_newest(self, done: Completed) -> str | None:
        """See `JobInspector.parse_newest`."""
        records = parse_full(done.text)
        words = done.error_text
        if not records and (done.exit_code != 0 or errors.is_transient(words)):
            if errors.is_over(words):
                return None
            raise SchedulerError(
                f"{self.title} can't be asked for your jobs",
                cause=errors.words_of(done) or f"exit status {done.exit_code}",
                hint="try again in a minute",
                transient=True,
            )
        alive = [one for one in records if _alive(one)]
        if alive:
            return max(alive, key=_number).job_id
        return max(records, key=_ended).job_id if records else None

    def usual_log(self, job_id: str) -> str:
        """See `JobInspector.usual_log`."""
        return f"NAME.o{sequence_number(job_id)}"

    def inspect(
        self, job_id: str, mark: str, box_dir: str = "", log: LogHint = NO_HINT
    ) -> list[str]:
        """See `JobInspector.inspect`."""
        end = (ended.SCRIPT, box_section.SCRIPT)
        script = (PREAMBLE, rooms.SCRIPT, _BEGIN, waiting.SCRIPT, self._nodes, _OTHERS, *end, _END)
        job = check_job_id(job_id)
        boxes = (box_dir, box_section.job_file_name(job))
        words = (mark, job, self.directory_of("qstat"), *boxes, *self._history, *log.words)
        return ["sh", "-c", "".join(script), "sh", *words]

    def parse(self, done: Completed, job_id: str, mark: str) -> Inspection:
        """See `JobInspector.parse`."""
        sections = parse_sections(done.text, mark)
        told, now = sections.get("job"), sections.get("now")
        if told is None or now is None:
            raise SchedulerError(
                f"{self.title} can't be asked about job {job_id}",
                cause=done.error_text or f"exit status {done.exit_code}",
                hint="try again in a minute; `tk doctor` checks the login host",
                transient=True,
            )
        now_s = float(now.text.strip()) if now.text.strip().isdigit() else 0.0
        record = _record(told, job_id)
        if record is None:
            gone = errors.is_over(told.text)
            why = told.failure or "its answer is no record"
            missing = () if gone else (f"qstat -f {job_id}: {why}",)
            return Inspection(
                now_s, None, None, with_boxes(ended.end_view(sections, None), sections), missing
            )
        job = job_view(record)
        if job.state is JobState.PENDING:
            return Inspection(now_s, job, waiting.cluster_view(sections, job, now_s))
        if job.state is JobState.RUNNING:
            return Inspection(now_s, job, storage=storage_of(sections))
        end = with_boxes(ended.end_view(sections, record), sections)
        return Inspection(now_s, job, None, end)

    def shorten(self, address: str, minutes: int) -> list[str]:
        """See `JobInspector.shorten`."""
        walltime = f"walltime={minutes // 60}:{minutes % 60:02}:00"
        return ["timeout", "10", self._program("qalter"), "-l", walltime, check_job_id(address)]

    def parse_shorten(self, done: Completed, job_id: str) -> None:
        """See `JobInspector.parse_shorten`."""
        if done.exit_code != 0:
            raise SchedulerError(
                f"{self.title} did not shorten the time limit of job {job_id}",
                cause="no answer within 10 s" if done.exit_code == 124 else errors.words_of(done),
                hint="only the owner may, while the job waits; a site can forbid it",
            )


class TorqueInspector(QstatInspector):
    """Torque's: its qstat is asked, its nodes are not."""

    title = "Torque"
    _nodes = ""


def _record(told: Section, job_id: str) -> JobRecord | None:
    number = sequence_number(job_id)
    found = [one for one in parse_full(told.text) if sequence_number(one.job_id) == number]
    return found[0] if found else None


def _alive(record: JobRecord) -> bool:
    return state_of(record.get("job_state"))[0] in (JobState.PENDING, JobState.RUNNING)


def _number(record: JobRecord) -> int:
    digits = "".join(char for char in sequence_number(record.job_id) if char in "0123456789")
    return int(digits[:18] or 0)


def _ended(record: JobRecord) -> tuple[float, int]:
    stamp = record.get("history_timestamp")
    ended_s = float(stamp) if stamp.isdigit() else unix_time(record.get("mtime"))
    return (ended_s or 0.0, _number(record))
