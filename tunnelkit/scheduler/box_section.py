"""The section of the black boxes of one job, in tk's directory on the cluster."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace

from tunnelkit.cluster_dir import TK_DIR
from tunnelkit.diagnosis.black_box.record import parse_boxes
from tunnelkit.diagnosis.evidence.end import EndView
from tunnelkit.scheduler.sections import Section

_MOST_FILES, _MOST_BYTES = 8, 256 * 1024
# $1 `[cluster] directory`, $2 the job as files name it. The newest first.
_READ = (
    TK_DIR
    + rf"""
tk_dir "$1" || exit 1
cd "$d/boxes" 2>/dev/null || exit 0
ls -t -- "$2".*.jsonl 2>/dev/null | head -n {_MOST_FILES} | while read -r file; do
  printf "tk-box %s\n" "$file"
  head -c {_MOST_BYTES} -- "$file"
  echo
done
"""
)
#: sh code of a section `box` (see `sections`). $box_dir: `[cluster] directory`, or "" for none.
#: $box_job: as `job_file_name` gives it.
SCRIPT = f"""
[ -z "$box_dir" ] || section box sh -c {shlex.quote(_READ)} sh "$box_dir" "$box_job"
"""


def job_file_name(job_id: str) -> str:
    """Return a job's id as its boxes' names have it: "4711", "4711_3" for one of an array."""
    return re.sub("[^0-9]+", "_", job_id.partition(".")[0]).strip("_")


def with_boxes(end: EndView, sections: Mapping[str, Section]) -> EndView:
    """Return the job's end with the black boxes that the script has read."""
    section = sections.get("box")
    if section is None:
        return end
    missing = (f"black box: {section.failure}",) if section.failure else ()
    return replace(end, boxes=parse_boxes(section.text), missing=(*end.missing, *missing))
