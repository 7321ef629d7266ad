"""Torque: builds argv, parses text. No I/O.

Its commands are called as PBS's and differ: `nodes=` instead of `select=`, `qstat -x` is XML,
finished jobs are `C` for a while and then unknown.
"""

from __future__ import annotations

from tunnelkit.model import ResourceRequest
from tunnelkit.scheduler import pbs_step, pbs_submit
from tunnelkit.scheduler.pbs import Qstat
from tunnelkit.scheduler.pbs_text import Record
from tunnelkit.scheduler.pbs_words import ending


class Torque(Qstat):
    """The Torque dialect."""

    name = "torque"
    title = "Torque"
    _attach = pbs_step.PBS_TRACK

    def _resources(self, request: ResourceRequest) -> list[str]:
        return pbs_submit.torque_resources(request)

    def _ending(self, record: Record) -> str:
        return ending(record.get("exit_status"), record.get("comment").strip(), torque=True)
