"""The interface to a scheduler's own batch scripts, for `tk submit` and `tk keep`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tunnelkit.model import Completed


@dataclass(frozen=True, slots=True)
class OwnJob:
    """A job of the user's that the scheduler lists. comment: "" if it has none.

    cluster: its cluster's name, as the keeper in the job knows it; "" if it is not known. array:
    ID_INDEX of an element of a Slurm array; "" for another job."""

    job_id: str
    comment: str
    cluster: str = ""
    array: str = ""


class BatchScripts(Protocol):
    """Reads batch scripts as the scheduler does, and builds the command that submits one."""

    @property
    def kind(self) -> str:
        """The scheduler's kind, as the keeper knows it: "slurm" or "pbs"."""
        ...

    def takes_next(self, option: str) -> bool:
        """Return True if the word after this option is its value."""
        ...

    def header(self, script: bytes) -> bytes:
        """Return the lines in which the scheduler looks for options, without the first one.

        Raises UsageError for a script that the scheduler would refuse."""
        ...

    def argv(self, options: Sequence[str]) -> list[str]:
        """Return the command with these options; the script and its arguments are to follow.

        Raises UsageError for options with which tk would not get a job's id."""
        ...

    def check_args(self, args: Sequence[str]) -> None:
        """Raise UsageError if the scheduler gives a script no arguments."""
        ...

    def bin_dir(self) -> str:
        """Return the directory of the scheduler's commands; "" if it is the PATH's."""
        ...

    def wake(self, job_id: str) -> list[str]:
        """Return a command that wakes the batch script's process, and changes nothing."""
        ...

    def release(self, job_id: str) -> list[str]:
        """Return a command that sends TERM to the batch script's process."""
        ...

    def running(self) -> list[str]:
        """Return a command that lists this user's running jobs with their comments."""
        ...

    def parse_running(self, done: Completed) -> list[OwnJob]:
        """Return those jobs. Raises SchedulerError if the scheduler did not answer."""
        ...
