"""The owner of a log: is it proven that no job before this one wrote into it?"""

from __future__ import annotations

import re

from tunnelkit.diagnosis.evidence.end import LogView
from tunnelkit.diagnosis.evidence.job import JobView

_NUMBER = re.compile(r"[0-9]+")
#: `7`, `90_3` of Slurm, `90+1` of a heterogeneous job, `29.login` and `29[3].login` of PBS.
_ID = re.compile(r"([0-9]+)(?:[_\[]([0-9]+))?")


def is_own(log: LogView, job: JobView) -> bool:
    """Return True if the file was made for or during this job.

    Made for it: its path has the job's number, of an array's element both numbers. That a file is
    older proves nothing, as most jobs empty it first."""
    born_s, start_s = log.born_s, job.start_s
    if log.own or (born_s is not None and start_s is not None and born_s >= start_s):
        return True
    found = [one.lstrip("0") for one in _NUMBER.findall(log.path)]
    match = _ID.match(job.job_id)
    numbers = [one.lstrip("0") for one in match.groups() if one is not None] if match else []
    ways = [one for one in (numbers, [job.raw_id]) if any(one)]
    return any(found[at : at + len(way)] == way for way in ways for at in range(len(found)))
