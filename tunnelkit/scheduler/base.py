"""The interface of a scheduler adapter. Adapters are pure: no I/O, no clock.

The caller runs a `Command` where it says, and hands the `Completed` back to the matching
`parse_*`. All parsers raise only SchedulerError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from tunnelkit.model import Completed, JobState, JobStatus, ResourceRequest

if TYPE_CHECKING:
    from tunnelkit.scheduler.batch_scripts import BatchScripts
    from tunnelkit.scheduler.inspector import JobInspector


class Where(Enum):
    """The place where a command runs: the login host, the laptop, or the job's first node.

    API: it is a request to the cluster's API server. argv is its method and its path, stdin its
    body; the exit code is 0 or the HTTP status, and stderr has the words of a refusal.
    """

    LOGIN = "login"
    LAPTOP = "laptop"
    NODE = "node"
    API = "api"


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its exact words, the bytes for its stdin, and the place where it runs."""

    argv: tuple[str, ...]
    stdin: bytes = b""
    where: Where = Where.LOGIN


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Abilities of a scheduler that not every one has.

    enters_jobs: `enter` works: commands start in a job from the login host.
    joins_jobs: `step` works: an agent can start in a job that the user submitted.
    agent_starts_peers: the first node's agent starts those on the other nodes, as steps of the job.
    names_canceller: `canceller` works.
    finds_undetected: `find` needs nothing that the detection finds out, but the programs' PATH.
    undecided: text in `find`'s answer about a job that the scheduler has not looked at yet; "" if
    it does not show that.
    log_has_job_name: the log of a job that tk submits is NAME.log, not NUMBER.log.
    """

    enters_jobs: bool = False
    joins_jobs: bool = False
    agent_starts_peers: bool = True
    names_canceller: bool = False
    finds_undetected: bool = False
    undecided: str = ""
    log_has_job_name: bool = False


class PendingCause(Enum):
    """The reason why a job does not run yet.

    WAIT: resources or its turn. QUOTA: a limit that gives way when other jobs
    end. HELD: the user or an administrator must act. FIX: the job can never
    start as requested, so waiting is pointless. DOUBT: it looks so, but may pass:
    only a proof ends the wait.
    """

    WAIT = "wait"
    QUOTA = "quota"
    HELD = "held"
    FIX = "fix"
    DOUBT = "doubt"


class Scheduler(Protocol):
    """The dialect of one batch system: builds commands and parses their output."""

    @property
    def name(self) -> str:
        """The scheduler's name, as in `[cluster] scheduler`."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """The abilities that not every scheduler has."""
        ...

    def inspector(self) -> JobInspector | None:
        """Return the adapter's part for `tk why`; None if it has none."""
        ...

    def batch_scripts(self) -> BatchScripts | None:
        """Return the adapter's part for `tk submit` and `tk keep`; None if it has none."""
        ...

    def submit(
        self, request: ResourceRequest, *, job_name: str, body: str, log_dir: str
    ) -> Command:
        """Return the command that submits a batch job whose `body` (sh, no shebang) is the agent.

        log_dir: an existing directory on the cluster for the job's log (`~/` is the submit
        directory, which under ssh is the home).
        Raises UsageError if the request holds a value that the scheduler can't accept.
        """
        ...

    def parse_submit(self, done: Completed) -> str:
        """Return the job id. Raises SchedulerError with the scheduler's message and a hint.

        If the error is transient, the job may have been accepted: query with `find`
        before submitting again."""
        ...

    def amended(self, command: Command, done: Completed) -> Command | None:
        """Return what to submit in place of `command`, which `done` refused; None if nothing.

        Only an answer that proves that there is no job has another command."""
        ...

    def query(self, job_ids: Sequence[str]) -> Command:
        """Return one command that queries all these jobs."""
        ...

    def parse_query(self, done: Completed, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        """Return the status of each of `job_ids` by its id.

        A job that the scheduler no longer knows is UNKNOWN with an empty `native_state`,
        never ENDED. Raises SchedulerError (transient) if the scheduler did not answer."""
        ...

    def verdict(self, status: JobStatus) -> PendingCause:
        """Return why a job is PENDING. FIX: the caller cancels it and tells the user why."""
        ...

    def find(self, job_name: str) -> Command:
        """Return a command that lists this user's unfinished jobs of that exact name."""
        ...

    def parse_find(self, done: Completed, job_name: str) -> list[JobStatus]:
        """Return this user's PENDING and RUNNING jobs of that exact name, oldest first.

        ENDED ones are among them where they stay until `cancel` removes them."""
        ...

    def estimate(self, job_id: str) -> Command | None:
        """Return a command that asks when a job may start; None if there is no estimate."""
        ...

    def parse_estimate(self, done: Completed) -> str | None:
        """Return the start time as the scheduler prints it (no zone); None while it has none."""
        ...

    def history(self, job_id: str) -> Command | None:
        """Return a command that asks the accounting, which remembers jobs that `query` has
        forgotten; None if this scheduler has no accounting."""
        ...

    def parse_history(self, done: Completed) -> JobState:
        """Return the job's last known state; UNKNOWN if accounting is off or does not answer."""
        ...

    def cancel(self, job_id: str) -> Command:
        """Return the command that ends a job; the job id is its last word."""
        ...

    def parse_cancel(self, done: Completed) -> None:
        """Raise SchedulerError unless the job is cancelled or had ended already."""
        ...

    def enter(
        self, job_id: str, node: str, argv: Sequence[str], *, cpus: int | None = None
    ) -> list[str] | None:
        """Return a command for the login host that runs `argv` inside the job on `node`.

        Its stdin and stdout are attached: the route to nodes that refuse ssh.
        cpus: as requested; some releases forget it.
        None without the capability `enters_jobs`."""
        ...

    def step(self, job_id: str, node: str, argv: Sequence[str]) -> list[str]:
        """Return a command that runs `argv` inside the job on `node` as long as itself.

        It must run on `node`, or with `enters_jobs` on the login host.
        Raises UsageError without the capability `joins_jobs`."""
        ...

    def canceller(self, job_id: str) -> Command | None:
        """Return a command that asks for the uid of the user who cancelled a job.

        None without the capability `names_canceller`."""
        ...

    def parse_canceller(self, done: Completed) -> int | None:
        """Return the uid of the user who cancelled the job; None if the output lacks it."""
        ...

    def list_names(self) -> Command | None:
        """Return a command that prints names for command line completion; None if there is none.

        Its lines begin with `tk-node NAME`, `tk-nodes PARTITION LIST`, `tk-queue NAME` or
        `tk-job ID`; the last one is `tk-code N`, 0 if the scheduler answered. An API server answers
        with the list of its pods instead."""
        ...


class LoginPrograms:
    """The directories of a scheduler's commands on the login host.

    bin_dir: of all, if they are not on the PATH. bin_dirs: of each, instead of bin_dir.
    """

    def __init__(self, bin_dir: str = "", *, bin_dirs: Mapping[str, str] | None = None) -> None:
        self._bin_dir = bin_dir
        self._bin_dirs = bin_dirs

    def directory_of(self, program: str) -> str:
        """Return the directory of a command; "" if it is on the PATH."""
        return self._bin_dirs.get(program, "") if self._bin_dirs else self._bin_dir

    def _program(self, name: str) -> str:
        directory = self.directory_of(name)
        return f"{directory.rstrip('/')}/{name}" if directory else name
