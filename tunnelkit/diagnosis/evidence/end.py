"""The end of a job: its steps, its log, and the file systems that it used."""

from __future__ import annotations

from dataclasses import dataclass

from tunnelkit.diagnosis.evidence.box import BoxView
from tunnelkit.diagnosis.evidence.storage import QuotaView, RoomView


@dataclass(frozen=True, slots=True)
class StepView:
    """One row of the accounting. step: "" for the job itself, else "batch", "extern", "0".

    max_rss_bytes, cpu_s: as sampled, so they may be missing or too small; max_rss_bytes of its
    largest task, or of all of a job of PBS. tasks: None if it is not known how many.
    code_by_sacct: sacct shows exit codes from 128 on less 128.
    """

    step: str
    name: str
    state: str
    exit_code: int | None = None
    signal: int | None = None
    start_s: float | None = None
    end_s: float | None = None
    max_rss_bytes: int | None = None
    cpu_s: float | None = None
    code_by_sacct: bool = False
    tasks: int | None = None


@dataclass(frozen=True, slots=True)
class LogView:
    """The end of a log. text: its last part. size_bytes, written_s: of the whole file.

    problem: "" if it could be read; else why not, such as "its directory is not there".
    no_directory: its directory is not there. born_s: when the file was made; None if its file
    system does not say. own: nothing but the job's own words can be in it.
    """

    path: str
    text: str
    size_bytes: int = 0
    written_s: float | None = None
    problem: str = ""
    no_directory: bool = False
    born_s: float | None = None
    own: bool = False


@dataclass(frozen=True, slots=True)
class EndView:
    """All that was read about a job's end.

    job: the accounting's row of the job's last run. earlier: its rows of the runs before, the
    oldest first. users: name by uid. own_uid: of the user who asks. boxes: of all its runs and
    nodes. quotas: of this user, where a message of his log names one or a full disk. missing: what
    did not answer, and why. array: where all of an array was asked for, how its elements ended;
    element: the one that all else here is about; array_whole: False if not all were counted.
    """

    steps: tuple[StepView, ...] = ()
    logs: tuple[LogView, ...] = ()
    missing: tuple[str, ...] = ()
    job: StepView | None = None
    earlier: tuple[StepView, ...] = ()
    rooms: tuple[RoomView, ...] = ()
    quotas: tuple[QuotaView, ...] = ()
    users: tuple[tuple[int, str], ...] = ()
    own_uid: int | None = None
    boxes: tuple[BoxView, ...] = ()
    array: str = ""
    element: str = ""
    array_whole: bool = True
