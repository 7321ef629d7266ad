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

    Made for it: its name has the job's number, of an array's element both numbers. That a file is
    older proves nothing, as most jobs empty it first."""
    match = _ID.match(job.job_id)
    numbers = [one.lstrip("0") for one in match.groups() if one is not None] if match else []
    is_element = len(numbers) > 1
    born_s, start_s = log.born_s, job.start_s
    # Other elements may write into a file that was made during this one.
    is_new = born_s is not None and start_s is not None and born_s >= start_s and not is_element
    if log.own or is_new:
        return True
    found = [one.lstrip("0") for one in _numbers(log.path)]
    # One element has the array's own number, which is in the names of files for all of them.
    raw = [] if is_element and job.raw_id == numbers[0] else [job.raw_id]
    ways = [one for one in (numbers, raw) if any(one)]
    return any(found[at : at + len(way)] == way for way in ways for at in range(len(found)))


def _numbers(path: str) -> list[str]:
    """Return the numbers in a file's name, and the directories that are numbers: `user29` is no
    directory of job 29."""
    *directories, name = path.split("/")
    return [*filter(_NUMBER.fullmatch, directories), *_NUMBER.findall(name)]
