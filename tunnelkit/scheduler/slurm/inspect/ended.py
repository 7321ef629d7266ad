"""The end of a job of Slurm: steps and logs."""

from __future__ import annotations

from collections.abc import Mapping

from tunnelkit.diagnosis.evidence.end import EndView
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.scheduler.sections import Section

#: Runs if the job has ended, or Slurm no longer knows it. $id: the job; $record: its record.
SCRIPT = ""


def end_view(sections: Mapping[str, Section], job: JobView | None) -> EndView:
    """Return the job's end as the sections of SCRIPT describe it."""
    return EndView()
