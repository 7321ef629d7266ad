"""Slurm 20.11 and later: builds argv, parses text. No I/O.

JSON differs from release to release, so squeue is asked for fixed fields
(`-o`). Times carry no zone, so only the time left (`%L`) is read as a number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tunnelkit.model import (
    Completed,
    JobState,
    JobStatus,
    ResourceRequest,
    check_host,
    check_job_name,
)
from tunnelkit.scheduler.base import Capabilities, Command, LoginPrograms, PendingCause
from tunnelkit.scheduler.names import listing
from tunnelkit.scheduler.nodelist import expand
from tunnelkit.scheduler.slurm import submit as slurm_submit
from tunnelkit.scheduler.slurm.duration import parse_duration
from tunnelkit.scheduler.slurm.job_id import JOB_ID, JOB_PART, check_job_id
from tunnelkit.scheduler.slurm.states import judge, may_pass, state_of

if TYPE_CHECKING:
    from tunnelkit.scheduler.slurm.batch_scripts import SlurmBatchScripts
    from tunnelkit.scheduler.slurm.inspect.inspector import SlurmInspector

_ABSENT = {"", "N/A", "n/a", "(null)", "None"}

#: id, state, reason, nodes, batch host, start, end, time left, raw id, partitions, name. The name
#: stands last: it alone may hold the separator.
_FORMAT = "%i|%T|%r|%N|%B|%S|%e|%L|%A|%P|%j"
_FIELDS = _FORMAT.count("|") + 1
_RAW_ID = _FORMAT.split("|").index("%A")

_TIME = r"(N/A|Unknown|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)"
_ROW = re.compile(
    rf"([0-9]+[^|]*)\|([A-Z_]+)\|(.*?)\|([^|]*)\|([^|]*)\|{_TIME}\|{_TIME}\|([A-Z0-9:_-]*)\|([0-9]+)"
    r"\|([^|]*)\|(.*)"
)

# squeue takes options from the environment too. A filter left in a user's shell profile would
# hide the job from tk, and `find` would let a second one be submitted. With the last two a job
# has several rows: for its partitions, for its clusters.
_CLEAN = (
    "env", "-u", "SQUEUE_PARTITION", "-u", "SQUEUE_ACCOUNT", "-u", "SQUEUE_QOS",
    "-u", "SQUEUE_LICENSES", "-u", "SQUEUE_NAMES", "-u", "SQUEUE_USERS",
    "-u", "SQUEUE_PRIORITY", "-u", "SQUEUE_SIBLING",
)  # fmt: skip

#: Characters of a reason, which an administrator may have written, and of other words.
_MOST_REASON = 1000

_ENDING = {"COMPLETING", "STAGE_OUT"}
_ENDS_OR_COMES_BACK = "its processes are being cleared away; it may go back into the queue"

# Runs inside the step. Without --unbuffered slurmstepd holds back what follows the last
# newline, which would stall any binary protocol; with it, stdout is a pseudo terminal. So the
# command writes into a pipe of its own, and cat copies. The wait at the end is for slurmstepd:
# it drops what it has not read when the last process exits (both measured on 22.05).
_STEP = (
    'exec 4>&1; code=$({ { "$@" 3>&- 4>&-; echo $? >&3; } | cat >&4; } 3>&1); '
    'sleep 1; exit "${code:-1}"'
)
#: Of steps that tk starts in a job from outside; diagnosis/ended/case.py leaves them out.
_STEP_NAME = "tk-step"


# The names for completion; see scheduler/names.py.
_NAMES = r"""
said=$(sinfo -h -o 'tk-nodes %R %N' 2>&1 </dev/null) || code=$?
printf '%s\n' "$said"
[ "$code" = 0 ] && squeue -h -u "$me" -o 'tk-job %i' 2>&1 </dev/null
"""


class Slurm(LoginPrograms):
    """The Slurm dialect.

    requeues: jobs may run again after their end, so a job in COMPLETING counts as PENDING. For the
    directories see `LoginPrograms`."""

    def __init__(
        self,
        bin_dir: str = "",
        *,
        bin_dirs: Mapping[str, str] | None = None,
        requeues: bool = False,
    ) -> None:
        super().__init__(bin_dir, bin_dirs=bin_dirs)
        self._requeues = requeues

    capabilities = Capabilities(
        enters_jobs=True,
        joins_jobs=True,
        names_canceller=True,
        finds_undetected=True,
        undecided="|PENDING|None|",
    )

    @property
    def name(self) -> str:
        """The scheduler's name."""
        return "slurm"

    def inspector(self) -> SlurmInspector:
        """See `Scheduler.inspector`."""
        from tunnelkit.scheduler.slurm.inspect.inspector import SlurmInspector

        return SlurmInspector(self._bin_dir, bin_dirs=self._bin_dirs)

    def batch_scripts(self) -> SlurmBatchScripts:
        """See `Scheduler.batch_scripts`."""
        from tunnelkit.scheduler.slurm.batch_scripts import SlurmBatchScripts

        return SlurmBatchScripts(self._bin_dir, bin_dirs=self._bin_dirs)

    def submit(
        self, request: ResourceRequest, *, job_name: str, body: str, log_dir: str
    ) -> Command:
        """See `Scheduler.submit`."""
        return slurm_submit.submit_command(
            request,
            job_name=job_name,
            body=body,
            log_dir=log_dir,
            program=self._program("sbatch"),
        )

    def parse_submit(self, done: Completed) -> str:
        """See `Scheduler.parse_submit`."""
        return slurm_submit.parse_submit(done)

    def amended(self, command: Command, done: Completed) -> Command | None:
        """See `Scheduler.amended`."""
        return None

    def query(self, job_ids: Sequence[str]) -> Command:
        """See `Scheduler.query`."""
        ids = ",".join(check_job_id(job_id) for job_id in job_ids)
        return self._squeue("-t", "all", "-j", ids, "-o", _FORMAT)

    def parse_query(self, done: Completed, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        """See `Scheduler.parse_query`."""
        rows = [status for status, _ in self._rows(done)]
        found = {status.raw_id: status for status in rows}
        found |= {status.job_id: status for status in rows}
        return {
            job_id: replace(found[job_id], job_id=job_id) if job_id in found else _vanished(job_id)
            for job_id in job_ids
        }

    def verdict(self, status: JobStatus) -> PendingCause:
        """See `Scheduler.verdict`."""
        cause = judge(status.reason)[0]
        if cause is PendingCause.FIX and may_pass(status.reason, status.partitions):
            return PendingCause.DOUBT
        return cause

    def explain(self, reason: str | None) -> str:
        """Return a pending reason in plain words."""
        return judge(reason)[1]

    def find(self, job_name: str) -> Command:
        """See `Scheduler.find`."""
        name = check_job_name(job_name)
        return self._squeue("-t", "all", "-n", name, "-o", _FORMAT)

    def parse_find(self, done: Completed, job_name: str) -> list[JobStatus]:
        """See `Scheduler.parse_find`."""
        # A refused sbatch leaves a FAILED record behind, so states count, not presence.
        # By id: a squeue that a site wraps may have a row for each of a job's partitions.
        unfinished = {
            status.job_id: status
            for status, name in self._rows(done)
            if name == job_name and status.state is not JobState.ENDED
        }
        return sorted(unfinished.values(), key=lambda job: int(job.job_id.partition("_")[0]))

    def estimate(self, job_id: str) -> Command | None:
        """See `Scheduler.estimate`."""
        return self._squeue("--start", "-j", check_job_id(job_id), "-o", "%i|%S")

    def parse_estimate(self, done: Completed) -> str | None:
        """See `Scheduler.parse_estimate`."""
        if done.exit_code != 0:
            return None
        for line in done.text.splitlines():
            job_id, _, start = line.strip().partition("|")
            if JOB_ID.fullmatch(job_id):
                return None if start in _ABSENT else start
        return None

    def cancel(self, job_id: str) -> Command:
        """See `Scheduler.cancel`."""
        return Command((self._program("scancel"), check_job_id(job_id)))

    def parse_cancel(self, done: Completed) -> None:
        """See `Scheduler.parse_cancel`."""
        if done.exit_code != 0 and not _is_gone(done):
            raise slurm_submit.refusal("the job could not be cancelled", done)

    def enter(
        self, job_id: str, node: str, argv: Sequence[str], *, cpus: int | None = None
    ) -> list[str]:
        """See `Scheduler.enter`. stdin and stdout carry any bytes; stderr is the command's,
        with srun's complaints; the exit code is the command's. A command that ends while
        the reader is slow may lose its last bytes: a protocol must tell its own end.
        srun's server ports on the login host must be open to the node."""
        step = [self._program("srun"), f"--jobid={check_job_id(job_id)}", "--overlap"]
        step += ["--nodes=1", "--ntasks=1", f"--nodelist={check_host(node)}"]
        if cpus is not None:
            step.append(f"--cpus-per-task={cpus}")
        # The name keeps `tk why` from taking it for a step of the script.
        step += [f"--job-name={_STEP_NAME}", "--mpi=none", "--unbuffered", "--quiet", "--"]
        return [*step, "sh", "-c", _STEP, _STEP_NAME, *argv]

    def step(self, job_id: str, node: str, argv: Sequence[str]) -> list[str]:
        """Return a command for the login host or a node of the job that runs `argv` in a step.

        The step runs on `node` with all that the job has there, as long as the command itself.
        It takes nothing from the job's other steps. The command writes what `argv` writes."""
        step = [self._program("srun"), f"--jobid={check_job_id(job_id)}", "--overlap"]
        step += ["--nodes=1", "--ntasks=1", f"--nodelist={check_host(node)}", "--mem=0"]
        # No --cpus-per-task: it would confine the step to so many. The session's own variables
        # would be options to srun.
        step += ["--mpi=none", "--chdir=/", "--job-name=tk-agent", "--quiet", "--"]
        return [*step, *argv]

    def history(self, job_id: str) -> Command | None:
        """See `Scheduler.history`."""
        argv = (self._program("sacct"), "--noheader", "--parsable2", "--allocations")
        return Command((*argv, "--format=State", f"--jobs={check_job_id(job_id)}"))

    def parse_history(self, done: Completed) -> JobState:
        """See `Scheduler.parse_history`."""
        # Where accounting is off, sacct exits 1. `CANCELLED by 1000`: the first word counts.
        words = _last_line(done).split() if done.exit_code == 0 else []
        return state_of(words[0])[0] if words else JobState.UNKNOWN

    def canceller(self, job_id: str) -> Command | None:
        """Return a command that asks the accounting which user cancelled a job."""
        return self.history(job_id)

    def parse_canceller(self, done: Completed) -> int | None:
        """Return the uid of the user who cancelled the job; None if it is not known."""
        match = re.match(r"CANCELLED by ([0-9]{1,10})$", _last_line(done))
        return int(match[1]) if match and done.exit_code == 0 else None

    def list_names(self) -> Command:
        """See `Scheduler.list_names`."""
        return listing(_NAMES, self.directory_of("sbatch"))

    def _squeue(self, *words: str) -> Command:
        return Command((*_CLEAN, self._program("squeue"), "--me", "--noheader", *words))

    def _rows(self, done: Completed) -> list[tuple[JobStatus, str]]:
        """Return every job in the answer, with its name. Raises SchedulerError on no answer."""
        if done.exit_code != 0:
            if _is_gone(done):
                return []
            raise slurm_submit.refusal("Slurm can't be asked about the job", done)
        rows = (_fields(line) for line in done.text.splitlines())
        # Banners, and `CLUSTER: name` under SLURM_CLUSTERS, are no rows.
        found = [_row(row) for row in rows if len(row) == _FIELDS and _is_job(row)]
        return [(self._maybe_back(status), name) for status, name in found]

    def _maybe_back(self, status: JobStatus) -> JobStatus:
        if not (self._requeues and status.ending):
            return status
        return replace(status, state=JobState.PENDING, explanation=_ENDS_OR_COMES_BACK)


def _last_line(done: Completed) -> str:
    """Return the answer of a command that prints one line; a login shell may print others first."""
    return done.text.rstrip().rpartition("\n")[2].strip()


def _fields(line: str) -> Sequence[str]:
    """Split a row into its fields. An administrator's reason may hold the separator."""
    match = _ROW.fullmatch(line)
    return match.groups() if match else line.split("|", _FIELDS - 1)


def _is_job(row: Sequence[str]) -> bool:
    if JOB_ID.fullmatch(row[0]):
        return True
    return JOB_PART.fullmatch(row[0]) is not None and JOB_ID.fullmatch(row[_RAW_ID]) is not None


def _row(row: Sequence[str]) -> tuple[JobStatus, str]:
    job_id, native, reason, nodes, batch_host, start, _end, left, raw_id, partitions, name = row
    if JOB_PART.fullmatch(job_id):
        # The first component, and an array's waiting elements, have the number of the whole.
        job_id = raw_id
    state, explanation = state_of(native)
    if state is JobState.PENDING and native == "PENDING":
        explanation = judge(reason)[1].replace("JOBID", job_id)
    status = JobStatus(
        job_id,
        state,
        native,
        reason=None if reason in _ABSENT else reason[:_MOST_REASON],
        explanation=explanation,
        nodes=_nodes(nodes, batch_host),
        time_left_s=parse_duration(left) if state is JobState.RUNNING else None,
        start_estimate=start[:_MOST_REASON]
        if state is JobState.PENDING and start not in _ABSENT
        else None,
        ending=native in _ENDING,
        raw_id=raw_id if raw_id.isdecimal() and raw_id.isascii() else "",
        partitions=tuple(partitions.split(",")),
    )
    return status, name


def _nodes(text: str, batch_host: str) -> tuple[str, ...]:
    """Return the job's nodes, first the one where the job's script runs."""
    if text in _ABSENT:
        return ()
    nodes = expand(text)
    if batch_host in nodes:
        return (batch_host, *(node for node in nodes if node != batch_host))
    return nodes


def _vanished(job_id: str) -> JobStatus:
    return JobStatus(
        job_id, JobState.UNKNOWN, "", explanation="Slurm no longer has a record of the job"
    )


def _is_gone(done: Completed) -> bool:
    """True if Slurm does not know the id (it drops records MinJobAge after the end)."""
    words = done.error_text
    return re.search(
        r"invalid job id|job.* already completing or completed", words, re.I
    ) is not None and not slurm_submit.is_transient(words)
