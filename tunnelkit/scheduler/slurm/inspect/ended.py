"""The end of a job of Slurm: the accounting's rows, the logs, the file systems."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tunnelkit.diagnosis.evidence.end import EndView, LogView
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.model import JobState
from tunnelkit.scheduler import rooms
from tunnelkit.scheduler.rooms import parse_rooms, quota_rows
from tunnelkit.scheduler.sections import Section
from tunnelkit.scheduler.slurm.inspect import submit_line
from tunnelkit.scheduler.slurm.inspect.accounting import (
    FIELDS,
    ArrayEnd,
    Row,
    array_end,
    job_of,
    last_run,
    rows_of,
)

#: Of each log, the last part that is read.
LOG_BYTES = 65_536
_LOG_NAMES = ("out", "err")
#: Of an array's elements, the first part of the rows: some 60 bytes each.
ELEMENTS_BYTES = 4_000_000
#: Puts keys for `sort` before the rows: elements that failed, by their end; those that were
#: cancelled, by their end; those that ended well, the last one first; those that are not over.
JUDGED_FIRST_AWK = r"""
{ row[NR] = $0; name[NR] = $1; sub(/\..*/, "", name[NR]) }
$1 == name[NR] && $7 ~ /^[0-9]+$/ {
  if ($3 ~ /^COMPLETED/) key[$1] = "2 0 " $7
  else if ($3 ~ /^CANCELLED/) key[$1] = "1 " $7 " 0"
  else key[$1] = "0 " $7 " 0"
}
END {
  for (i = 1; i <= NR; i++) print (name[i] in key ? key[name[i]] : "3 0 0"), i, row[i]
}
"""

# $id: the job; $record: its record, or Slurm's complaint that it has none. Without the accounting's
# database sacct exits 1. An unknown field would fail the whole call, so only old ones are asked
# for. -D: the runs before a requeue, too. The separator can't be in a constraint or a job's name.
#
# An array's elements are counted by their own rows, of which only the fields for that are sent.
# $rows then begins with the element that is judged, as not all of it is sent.
#
# Slurm's record has the paths of the logs for MinJobAge (300 s) after the end; then there are those
# that tk saw ($log_out), those of sbatch's -o and -e (SubmitLine, from Slurm 20.11 on; the script
# where a site keeps it), and the usual names: sbatch's default, and that of tk's own jobs.
#
# The file systems are asked for because a message of a full disk may be gone before the log is
# read, and a quota may have been the cause. A path in a log is only ever an argument of df.
SCRIPT = rf"""
tab=$(printf '\037')
rows=$(bounded sacct -D -P --noheader --delimiter="$tab" -j "$id" -o '{FIELDS}')
code=$?
elements=
case $id in *_*) ;; *)
  elements=$(printf '%s\n' "$rows" | awk -F "$tab" -v OFS="$tab" '$1 ~ /^[0-9]+_[0-9]+$/ {{
    for (i = 2; i <= NF; i++) if (i != 3 && i != 4 && i != 6 && i != 7) $i = ""
    print }}')
esac
if [ "$elements" ]; then
  printf '\n%s elements\n%s\n' "$mark" "$(printf '%s\n' "$elements" | grep -c '')"
  printf '%.{ELEMENTS_BYTES}s\n%s-code %s\n' "$elements" "$mark" "$code"
  rows=$(printf '%s\n' "$rows" | awk -F "$tab" '{JUDGED_FIRST_AWK}' |
    sort -k 1,1n -k 2,2n -k 3,3nr -k 4,4n | cut -d ' ' -f 5-)
fi
printf '\n%s steps\n%.200000s\n%s-code %s\n' "$mark" "$rows" "$mark" "$code"
uids=$(printf '%s\n' "$rows" | sed -n 's/.*CANCELLED by \([0-9][0-9]*\).*/\1/p' |
  sort -u | head -n 4)
section users sh -c 'echo own "$(id -u)" "$(id -nu)"
for uid; do echo uid "$uid" "$(id -nu -- "$uid" 2>/dev/null)"; done; :' sh $uids
value_of() {{
  printf '%s\n' "$record" | sed -n "s/.* $1=//p" | sed -e 's/ [A-Z][A-Za-z]*=.*//' -e 's/ *$//' -e q
}}
out=$(value_of StdOut) err=$(value_of StdErr) directory=$(value_of WorkDir)
if [ -z "$directory" ]; then
  directory=$(printf '%s\n' "$rows" | sed -n "s/.*$tab\(\/[^$tab]*\)\$/\1/p" | tail -n 1)
fi
if [ "$log_given" ]; then
  out=$log_out err=
elif [ -z "$out" ] && [ "$log_out" ]; then
  out=$log_out err=$log_err
elif [ -z "$out" ] && [ "$directory" ]; then
  lines=$(timeout 10 sacct -B -j "$id" 2>/dev/null </dev/null | grep '^#SBATCH '
    timeout 10 sacct -X -n -P -j "$id" -o SubmitLine 2>/dev/null </dev/null | tail -n 1)
  name=$(printf '%s\n' "$rows" | sed -n "s/^[^$tab]*$tab\([^$tab]*\).*/\1/p" | head -n 1)
  from_lines() {{
    printf '%s\n' "$lines" | awk -v short="$1" -v long="$2" -v id="$id" -v name="$name" \
      -v user="$(id -un)" -v directory="$directory" '{submit_line.AWK}'
  }}
  out=$(from_lines -o --output) err=$(from_lines -e --error)
fi
if [ -z "$out" ]; then
  own=$HOME/.cache/tunnelkit/jobs/${{id%%_*}}.log
  for path in "${{directory:+$directory/slurm-$id.out}}" "$own"; do
    [ -z "$path" ] || ! timeout 5 test -f "$path" || {{ out=$path; break; }}
  done
fi
[ "$err" != "$out" ] || err=
log() {{
  [ "$2" ] || return
  kind=
  ! plain "$2" || kind=plain
  section "log-$1" sh -c 'printf %s "$1" | tr "\n" "?"
echo
if [ "$2" ]; then
  stat -L -c "tk-file %s %Y %W" -- "$1" && tail -c {LOG_BYTES} -- "$1"
elif [ -e "$1" ]; then echo tk-other
elif [ -d "${{1%/*}}" ]; then echo tk-absent
else echo tk-no-directory; fi' sh "$2" "$kind"
}}
log out "$out"
log err "$err"
tails=$(for path in "$out" "$err"; do
  ! plain "$path" || timeout 5 tail -c {LOG_BYTES} -- "$path" | head -c {LOG_BYTES}
done 2>/dev/null)
{rooms.OF_LOG}
rooms "$named" "$directory" "${{out%/*}}" "$HOME"
[ -z "$full" ] || quotas "$named" "$directory" "${{out%/*}}" "$HOME"
"""

# %W is 0, `-` or `?` where it is not known when the file was made.
_HEAD = re.compile(r"tk-file ([0-9]{1,18}) ([0-9]{1,12})(?: (?:([1-9][0-9]{0,11})|\S{1,20}))?\Z")
_PROBLEMS = {
    "tk-other": "it is no plain file",
    "tk-absent": "it is not there",
    "tk-no-directory": "its directory is not there",
}


def array_of(sections: Mapping[str, Section], job_id: str) -> ArrayEnd | None:
    """Return how an array ended; None if one job, or one element, was asked for."""
    elements = sections.get("elements")
    return array_end(elements) if elements is not None and "_" not in job_id else None


def end_view(
    sections: Mapping[str, Section], job: JobView | None, array: ArrayEnd | None = None
) -> EndView:
    """Return the job's end as the sections of SCRIPT describe it.

    job: as scontrol has it, whose logs were read. array: the one of whose elements one is judged.
    """
    answer = sections.get("steps")
    rows = _rows(sections, array)
    last, earlier = last_run(rows)
    # A path that was found for the whole array is not that of one element.
    own = array is None or (job is not None and job.job_id == array.element)
    logs = tuple(_logs(sections)) if own else ()
    missing = []
    if not rows:
        why = answer.failure if answer is not None else "no answer"
        missing.append(f"sacct (steps): {why or 'it has no row of this job'}")
    for log in logs:
        if log.problem and not log.no_directory:
            missing.append(f"log {log.path}: {log.problem}")
    if array is not None and not own:
        missing.append(f"log: `tk why {array.element}` reads it")
    elif not logs:
        missing.append("log: its path is not on record any more")
    own_uid, users = _users(sections.get("users"))
    return EndView(
        steps=tuple(row.step for row in last if row.step.step),
        logs=logs,
        missing=tuple(missing),
        job=next((row.step for row in last if not row.step.step), None),
        earlier=tuple(row.step for row in earlier if not row.step.step),
        rooms=parse_rooms(sections),
        quotas=quota_rows(sections),
        users=users,
        own_uid=own_uid,
        array=array.text if array is not None else "",
        element=array.element if array is not None else "",
        array_whole=array is None or array.whole,
    )


def _rows(sections: Mapping[str, Section], array: ArrayEnd | None) -> tuple[Row, ...]:
    """Return the rows; of an array those of the element that is judged."""
    answer = sections.get("steps")
    rows = rows_of(answer.text) if answer is not None else ()
    return tuple(row for row in rows if array is None or row.job_id == array.element)


def accounted_job(
    sections: Mapping[str, Section], job_id: str, array: ArrayEnd | None = None
) -> JobView | None:
    """Return the job as the accounting has it; None if it has no row of it."""
    last, _ = last_run(_rows(sections, array))
    row = next((one for one in last if not one.step.step), None)
    job = job_of(row, job_id) if row is not None else None
    # A row without an end is left over: the controller does not know the job.
    return job if job is not None and job.state is JobState.ENDED else None


def _logs(sections: Mapping[str, Section]) -> list[LogView]:
    found = []
    for name in _LOG_NAMES:
        section = sections.get(f"log-{name}")
        if section is None:
            continue
        path, _, rest = section.text.partition("\n")
        head, _, text = rest.partition("\n")
        match = _HEAD.match(head)
        if match is None:
            problem = _PROBLEMS.get(head.strip()) or section.failure or "it can't be read"
            gone = head.strip() == "tk-no-directory"
            found.append(LogView(path, "", problem=problem, no_directory=gone))
            continue
        size = int(match[1])
        if size > LOG_BYTES:
            text = text.partition("\n")[2] or text
        text = text[: 2 * LOG_BYTES]  # of one that grew
        problem = "" if section.code == 0 else section.failure
        born_s = float(match[3]) if match[3] else None
        found.append(LogView(path, text, size, float(match[2]), problem, born_s=born_s))
    return found


def _users(section: Section | None) -> tuple[int | None, tuple[tuple[int, str], ...]]:
    own, users = None, []
    for line in ("" if section is None else section.text).splitlines()[:8]:
        match = re.fullmatch(r"(own|uid) ([0-9]{1,10}) ?(\S*)", line.strip())
        if match:
            own = int(match[2]) if match[1] == "own" else own
            users.append((int(match[2]), match[3]))
    return own, tuple(users)
