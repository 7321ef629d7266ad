"""The address of what waits of an array: its elements that run have the array's number, too."""

from __future__ import annotations

import pytest

from tunnelkit.errors import UsageError
from tunnelkit.scheduler.slurm.inspect.inspector import SlurmInspector
from tunnelkit.scheduler.slurm.inspect.job import job_view

_RECORD = "JobId={} ArrayJobId=7 ArrayTaskId={} JobName=a JobState={} Reason=Resources"


@pytest.mark.parametrize(
    ("number", "tasks", "state", "address"),
    [
        ("7", "2,4-9:2%2", "PENDING", "7_[2,4-9:2]"),
        ("7", "5", "PENDING", "7_5"),
        ("9", "3", "RUNNING", "7_3"),
        # Of what Slurm has cut off no command may reach the elements that run.
        ("7", "1,3,...", "PENDING", "7_[1,3,...]"),
    ],
)
def test_the_address_is_of_what_waits(number: str, tasks: str, state: str, address: str) -> None:
    job = job_view(_RECORD.format(number, tasks, state))
    assert job is not None and job.address == address


def test_an_arrays_own_record_names_no_log_of_an_element() -> None:
    """There %a is filled with NO_VAL; a path without it is the log of all elements."""
    record = _RECORD.format("7", "2-4", "PENDING")
    for path, found in (("/h/slurm-7_4294967294.out", ""), ("/h/all.out", "/h/all.out")):
        job = job_view(f"{record} StdErr={path} StdOut={path} SegmentSize=4 Switches=1@1 Power=")
        assert job is not None and (job.stdout_path, job.stderr_path) == (found, found)


def test_a_shorter_limit_is_asked_for_by_the_address() -> None:
    slurm = SlurmInspector()
    assert slurm.shorten("7_[2,4-9]", 30)[-2:] == ["jobid=7_[2,4-9]", "timelimit=30"]
    with pytest.raises(UsageError):
        slurm.shorten("7_[2]; reboot", 30)
