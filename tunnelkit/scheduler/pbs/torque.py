"""Torque: builds argv, parses text. No I/O.

Its commands have PBS's names and differ: `nodes=` instead of `select=`, `qstat -x` is XML,
finished jobs are `C` for a while and then unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunnelkit.model import ResourceRequest
from tunnelkit.scheduler.pbs import attach, submit
from tunnelkit.scheduler.pbs.adapter import Qstat
from tunnelkit.scheduler.pbs.parse import JobRecord
from tunnelkit.scheduler.pbs.states import ending

if TYPE_CHECKING:
    from tunnelkit.scheduler.inspector import JobInspector


class Torque(Qstat):
    """The Torque dialect."""

    name = "torque"
    title = "Torque"
    _attach = attach.PBS_TRACK

    def _resources(self, request: ResourceRequest) -> list[str]:
        return submit.torque_resources(request)

    def _ending(self, record: JobRecord) -> str:
        return ending(record.get("exit_status"), record.get("comment").strip(), torque=True)

    def inspector(self) -> JobInspector | None:
        """See `Scheduler.inspector`."""
        from tunnelkit.scheduler.pbs.inspect.inspector import TorqueInspector

        return TorqueInspector(self._bin_dir, bin_dirs=self._bin_dirs)
