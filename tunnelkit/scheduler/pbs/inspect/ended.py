"""The end of a job of PBS: what its record holds, and the tail of its log files."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tunnelkit.diagnosis.evidence.end import EndView, LogView, StepView
from tunnelkit.scheduler import rooms
from tunnelkit.scheduler.pbs.inspect.job import end_time, exit_of
from tunnelkit.scheduler.pbs.inspect.request import size_bytes
from tunnelkit.scheduler.pbs.parse import JobRecord
from tunnelkit.scheduler.rooms import parse_rooms, quota_rows
from tunnelkit.scheduler.sections import Section

#: Runs if the job has ended. $id: its full id; `attribute NAME` prints one of its record; $log_out,
#: $log_err, $log_given: see LogHint. A log's first line is its path, size and time; `.OU` and `.ER`
#: are PBS's names for the files of a job that was submitted with a directory (-o DIR/).
#:
#: Of a job that the server has forgotten there are the log that tk saw, that of tk's own jobs, and
#: PBS's usual name in the home, the newest of several: a server that was set up again counts from
#: 0. All jobs of a session write to one file: it is that of the job
#: whose state (NAME.NUMBER) is the newest.
SCRIPT = (
    r"""
tails= directory=
log() {
  path=$(attribute "$2")
  case ${path%%/*} in *:) path=/${path#*:/} ;; esac
  case $path in ''|*'^array_index^'*) return ;; esac
  [ ! -d "$path" ] || path=${path%/}/$id.$3
  show "$1" "$path"
}
show() {
  path=$2
  [ "$1" != stdout ] || directory=${path%/*}
  kind=
  plain "$path" && kind=plain &&
    tails=$tails$(timeout 5 tail -c 65536 -- "$path" 2>/dev/null | head -c 65536)
  section "$1" sh -c 'found=$(stat -L -c "|%s|%Y %W" -- "$1") && [ "$2" ] || exit
printf %s "$1" | tr "\n" "?"
echo "$found"
tail -c 65536 -- "$1"' sh "$path" "$kind"
}
own_log() {
  for state in "$HOME/.cache/tunnelkit/jobs"/*."$1"; do
    [ -f "${state%.*}.log" ] || continue
    newest=$(ls -t -- "${state%.*}".[0-9]* 2>/dev/null | grep '\.[0-9][0-9]*$' | head -n 1)
    [ "$newest" != "$state" ] || { printf '%s\n' "${state%.*}.log"; return; }
  done
}
newest() {
  ls -td -- "$@" 2>/dev/null | while IFS= read -r one; do
    [ ! -f "$one" ] || { printf '%s\n' "$one"; break; }
  done
}
known=$(attribute Output_Path)
if [ "$log_given" ] || { [ -z "$known" ] && [ "$log_out" ]; }; then
  show stdout "$log_out"
  [ "$log_given" ] || [ -z "$log_err" ] || show stderr "$log_err"
elif [ -z "$known" ]; then
  number=${id%%.*}
  found=$(own_log "${number%%[!0-9]*}")
  [ "$found" ] || found=$(newest "$HOME"/*.o"$number")
  [ -z "$found" ] || show stdout "$found"
  case $found in
  '') errors=$(newest "$HOME"/*.e"$number") ;;
  *.o"$number") errors=${found%.o*}.e$number ;;
  *) errors= ;;
  esac
  [ ! -f "$errors" ] || show stderr "$errors"
else
case $(attribute Join_Path) in
oe) log stdout Output_Path OU ;;
eo) log stderr Error_Path ER ;;
*)
  log stdout Output_Path OU
  log stderr Error_Path ER
  ;;
esac
fi
"""
    + rooms.OF_LOG
    + r"""
if [ "$full" ]; then
  rooms "$named" "$directory" "$HOME"
  quotas "$named" "$directory" "$HOME"
fi
"""
)
_CLOCKS_S = 60.0  # between the server, that of the files and a node
# %W is 0, `-` or `?` where it is not known when the file was made.
_HEAD = re.compile(r"(.*)\|([0-9]{1,19})\|([0-9]{1,12})(?: (?:([1-9][0-9]{0,11})|\S{1,20}))?")


def end_view(sections: Mapping[str, Section], record: JobRecord | None) -> EndView:
    """Return the job's end as its record and the sections of SCRIPT describe it."""
    logs, missing, copied = [], [], _copied(record)
    end_s = end_time(record) if record is not None else None
    for name in ("stdout", "stderr"):
        section = sections.get(name)
        if section is None:
            continue
        if (view := _log(section, copied, end_s)) is not None:
            logs.append(view)
        else:
            missing.append(f"the job's {name}: {section.failure or 'it is no file'}")
    room, quotas = parse_rooms(sections), quota_rows(sections)
    if record is None:
        if not logs and not missing:
            missing.append("log: its path is not on record any more")
        return EndView(logs=tuple(logs), missing=tuple(missing), rooms=room, quotas=quotas)
    if messages := record.get("resources_used.diag_messages"):
        logs.append(LogView("resources_used.diag_messages", messages, len(messages), own=True))
    return EndView((_whole(record),), tuple(logs), tuple(missing), rooms=room, quotas=quotas)


def _log(section: Section, copied: frozenset[str], end_s: float | None) -> LogView | None:
    head, _, text = section.text.partition("\n")
    match = _HEAD.fullmatch(head)
    if section.code != 0 or not match:
        return None
    born_s = float(match[4]) if match[4] else None
    written_s = float(match[3])
    # The copy keeps the time of the last line. Else it may be that of another job, before or after.
    is_own = end_s is not None and abs(written_s - end_s) <= _CLOCKS_S and match[1] in copied
    return LogView(
        match[1], text[: 2 * 65_536], int(match[2]), written_s, born_s=born_s, own=is_own
    )


def _copied(record: JobRecord | None) -> frozenset[str]:
    """Return the paths of logs that PBS copies over what is there when the job has ended."""
    if record is None or record.get("Keep_Files") != "n":
        return frozenset()
    paths = (record.get(name).partition(":")[2] for name in ("Output_Path", "Error_Path"))
    return frozenset(paths) - {""}


def _whole(record: JobRecord) -> StepView:
    """Return the job as its only step: PBS counts no others."""
    code, signal = exit_of(record.get("Exit_status"))
    return StepView(
        step="batch",
        name=record.get("Job_Name"),
        state=record.get("job_state"),
        exit_code=code,
        signal=signal,
        max_rss_bytes=size_bytes(record.get("resources_used.mem")) or None,
    )
