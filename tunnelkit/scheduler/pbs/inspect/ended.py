"""The end of a job of PBS: what its record holds, and the tail of its log files."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tunnelkit.diagnosis.evidence.end import EndView, LogView, StepView
from tunnelkit.scheduler.pbs.inspect.job import exit_of
from tunnelkit.scheduler.pbs.inspect.request import size_bytes
from tunnelkit.scheduler.pbs.parse import JobRecord
from tunnelkit.scheduler.sections import Section

#: Runs if the job has ended. $id: its full id; `attribute NAME` prints one of its record.
#: A log's first line is its path, size and time; `.OU` and `.ER` are PBS's names for the files
#: of a job that was submitted with a directory (-o DIR/).
SCRIPT = r"""
log() {
  path=$(attribute "$2")
  case ${path%%/*} in *:) path=/${path#*:/} ;; esac
  case $path in ''|*'^array_index^'*) return ;; esac
  [ ! -d "$path" ] || path=${path%/}/$id.$3
  section "$1" sh -c 'stat -L -c "%n|%s|%Y" -- "$1" && [ -f "$1" ] && tail -c 65536 -- "$1"' \
    sh "$path"
}
case $(attribute Join_Path) in
oe) log stdout Output_Path OU ;;
eo) log stderr Error_Path ER ;;
*)
  log stdout Output_Path OU
  log stderr Error_Path ER
  ;;
esac
"""
_HEAD = re.compile(r"(.*)\|([0-9]{1,19})\|([0-9]{1,12})")


def end_view(sections: Mapping[str, Section], record: JobRecord | None) -> EndView:
    """Return the job's end as its record and the sections of SCRIPT describe it."""
    logs, missing = [], []
    for name in ("stdout", "stderr"):
        section = sections.get(name)
        if section is None:
            continue
        if (view := _log(section)) is not None:
            logs.append(view)
        else:
            missing.append(f"the job's {name}: {section.failure or 'it is no file'}")
    if record is None:
        return EndView(logs=tuple(logs), missing=tuple(missing))
    if messages := record.get("resources_used.diag_messages"):
        logs.append(LogView("resources_used.diag_messages", messages, len(messages)))
    return EndView((_whole(record),), tuple(logs), tuple(missing))


def _log(section: Section) -> LogView | None:
    head, _, text = section.text.partition("\n")
    match = _HEAD.fullmatch(head)
    if section.code != 0 or not match:
        return None
    return LogView(match[1], text, int(match[2]), float(match[3]))


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
