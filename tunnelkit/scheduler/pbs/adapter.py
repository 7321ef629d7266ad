"""OpenPBS and PBS Pro: builds argv, parses text. No I/O.

Measured on 23.06. One job is queried as JSON (which holds the server's clock), several as
text, since the JSON of several jobs is broken in more releases than that of one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tunnelkit.diagnosis.waiting.pbs.holds import dependency_words
from tunnelkit.errors import SchedulerError
from tunnelkit.model import Completed, JobState, JobStatus, ResourceRequest, check_job_name
from tunnelkit.scheduler.base import Capabilities, Command, LoginPrograms, PendingCause
from tunnelkit.scheduler.names import listing
from tunnelkit.scheduler.pbs import attach, errors
from tunnelkit.scheduler.pbs import submit as pbs_submit
from tunnelkit.scheduler.pbs.parse import (
    JobRecord,
    check_job_id,
    nodes_of,
    parse_full,
    parse_json,
    sequence_number,
    time_left_s,
)
from tunnelkit.scheduler.pbs.states import deleted_by, ending, hold_reason, judge, state_of

if TYPE_CHECKING:
    from tunnelkit.scheduler.batch_scripts import BatchScripts
    from tunnelkit.scheduler.inspector import JobInspector

# qstat can't select by name; qselect can, and prints ids only. Both know the user's name there.
# Without qselect all users' jobs are queried: once, when `tk up` begins or ends.
# $1 qselect, $2 qstat, $3 the job's name, $4 a second server, or empty. A job's full id names its
# server, so qstat asks there.
_FIND = r"""
tk_me=$(id -un) || exit
printf 'tk-user %s\n' "$tk_me"
if ! command -v "$1" >/dev/null 2>&1; then
  [ -z "$4" ] || "$2" -f "@$4" || exit
  exec "$2" -f
fi
tk_ids=$("$1" -u "$tk_me" -N "$3") || exit
[ -z "$4" ] || tk_ids="$tk_ids $("$1" -u "$tk_me" -N "$3" -q "@$4")" || exit
[ -z "${tk_ids# }" ] || exec "$2" -f $tk_ids
"""

# The names for completion; see scheduler/names.py.
_NAMES = r"""
said=$(qselect -u "$me" 2>&1 </dev/null) || code=$?
if [ "$code" = 0 ]; then
  printf '%s\n' "$said" | sed 's/^/tk-job /'
  pbsnodes -a 2>/dev/null </dev/null | sed 's/^\([A-Za-z0-9]\)/tk-node \1/'
  qstat -Q 2>/dev/null </dev/null | sed 's/^/tk-queue /'
else
  printf '%s\n' "$said"
fi
"""


class Qstat(LoginPrograms):
    """Base of the PBS and Torque adapters: qsub, `qstat -f`, qdel.

    server: another server than the default one, where the job's queue is; "" for none. For the
    directories see `LoginPrograms`.
    """

    name = "pbs"
    capabilities = Capabilities(joins_jobs=True, agent_starts_peers=False, log_has_job_name=True)
    #: The name that users know.
    title = "PBS"
    #: The program on a node that makes a process a part of a job.
    _attach = attach.PBS_ATTACH

    def __init__(
        self,
        bin_dir: str = "",
        *,
        bin_dirs: Mapping[str, str] | None = None,
        server: str = "",
    ) -> None:
        super().__init__(bin_dir, bin_dirs=bin_dirs)
        self._server = server

    # -- for each dialect to define ----------------------------------------

    def _resources(self, request: ResourceRequest) -> list[str]:
        """Return qsub's words for the requested resources."""
        raise NotImplementedError

    def _read(self, done: Completed) -> list[JobRecord]:
        """Parse the jobs of an answer. Raises SchedulerError if it is malformed."""
        return parse_full(done.text)

    def _ending(self, record: JobRecord) -> str:
        raise NotImplementedError

    def inspector(self) -> JobInspector | None:
        """See `Scheduler.inspector`."""
        raise NotImplementedError

    def batch_scripts(self) -> BatchScripts | None:
        """See `Scheduler.batch_scripts`."""
        from tunnelkit.scheduler.pbs.batch_scripts import PbsBatchScripts

        return PbsBatchScripts(self._bin_dir, bin_dirs=self._bin_dirs)

    # -- submit -----------------------------------------------------------

    def submit(
        self, request: ResourceRequest, *, job_name: str, body: str, log_dir: str
    ) -> Command:
        """See `Scheduler.submit`."""
        return pbs_submit.submit_command(
            self._program("qsub"),
            request,
            self._resources(request),
            job_name=job_name,
            body=body,
            log_dir=log_dir,
        )

    def parse_submit(self, done: Completed) -> str:
        """See `Scheduler.parse_submit`."""
        return pbs_submit.parse_submit(done)

    def amended(self, command: Command, done: Completed) -> Command | None:
        """See `Scheduler.amended`."""
        return None

    # -- query ------------------------------------------------------------

    def query(self, job_ids: Sequence[str]) -> Command:
        """See `Scheduler.query`."""
        return Command((self._program("qstat"), "-f", *map(check_job_id, job_ids)))

    def parse_query(self, done: Completed, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        """See `Scheduler.parse_query`."""
        records = {sequence_number(record.job_id): record for record in self._read(done)}
        found = {
            job_id: self._status(records[number], job_id)
            for job_id in job_ids
            if (number := sequence_number(job_id)) in records
        }
        for job_id in job_ids:
            if job_id not in found:
                found[job_id] = self._absent(done, job_id)
        return found

    def _absent(self, done: Completed, job_id: str) -> JobStatus:
        """Return the status of a job that is not in the answer."""
        words = done.error_text
        number = re.escape(sequence_number(job_id))
        mine = [line for line in words.splitlines() if re.search(rf"\b{number}(?!\d)", line)]
        if any(errors.is_finished(line) for line in mine):
            return JobStatus(job_id, JobState.ENDED, "F", explanation="the job is over")
        if not _failed(done) or errors.is_over(words):
            why = f"{self.title} no longer has a record of the job"
            return JobStatus(job_id, JobState.UNKNOWN, "", explanation=why)
        raise errors.refusal(f"{self.title} can't be asked about the job", done)

    def verdict(self, status: JobStatus) -> PendingCause:
        """See `Scheduler.verdict`."""
        return judge(status.reason)[0]

    def find(self, job_name: str) -> Command:
        """See `Scheduler.find`."""
        programs = (self._program("qselect"), self._program("qstat"))
        words = (*programs, check_job_name(job_name), self._server)
        return Command(("sh", "-c", _FIND, "sh", *words))

    def parse_find(self, done: Completed, job_name: str) -> list[JobStatus]:
        """See `Scheduler.parse_find`."""
        text, words = done.text, done.error_text
        if _failed(done) and not errors.is_over(words):
            raise errors.refusal(f"{self.title} can't be asked for the job {job_name}", done)
        lines = text.split("\n")
        users = [
            line.removeprefix("tk-user ").strip() for line in lines if line.startswith("tk-user ")
        ]
        if not users:
            raise SchedulerError(
                f"{self.title} can't be asked for the job {job_name}",
                cause=words or "the answer is empty",
                transient=True,
                hint="tk asks again; see qstat there",
            )
        own = [
            self._status(record, record.job_id)
            for record in parse_full(text)
            if record.get("Job_Name") == job_name
            and record.get("Job_Owner").partition("@")[0] == users[0]
        ]
        # By id: the second server may be the default one.
        unfinished = {
            job.job_id: job for job in own if job.state in (JobState.PENDING, JobState.RUNNING)
        }
        return sorted(unfinished.values(), key=lambda job: int(_digits(job.job_id)))

    def estimate(self, job_id: str) -> Command | None:
        """See `Scheduler.estimate`."""
        return self.query([job_id])

    def parse_estimate(self, done: Completed) -> str | None:
        """See `Scheduler.parse_estimate`."""
        records = parse_full(done.text) or parse_json(done.text) or []
        return _start_estimate(records[0]) if records else None

    # -- end --------------------------------------------------------------

    def history(self, job_id: str) -> Command | None:
        """See `Scheduler.history`."""
        return Command((self._program("qstat"), "-f", check_job_id(job_id)))

    def parse_history(self, done: Completed) -> JobState:
        """Return ENDED for an id that the server does not know: it forgets only ended jobs."""
        for record in parse_full(done.text):
            return self._status(record, record.job_id).state
        return JobState.ENDED if errors.is_over(done.error_text) else JobState.UNKNOWN

    def cancel(self, job_id: str) -> Command:
        """See `Scheduler.cancel`."""
        return Command((self._program("qdel"), check_job_id(job_id)))

    def parse_cancel(self, done: Completed) -> None:
        """See `Scheduler.parse_cancel`."""
        if done.exit_code != 0 and not errors.is_over(done.error_text):
            raise errors.refusal("the job could not be cancelled", done)

    def enter(
        self, job_id: str, node: str, argv: Sequence[str], *, cpus: int | None = None
    ) -> list[str] | None:
        """Return None: pbs_attach, pbs_track, pbsdsh and pbs_tmrsh work on the job's nodes only."""
        return None

    def step(self, job_id: str, node: str, argv: Sequence[str]) -> list[str]:
        """Return a command for `node` that runs `argv` inside the job (attach.py)."""
        number = sequence_number(check_job_id(job_id))
        return attach.step(self._attach, re.escape(number), job_id, argv)

    # -- inside -----------------------------------------------------------

    def canceller(self, job_id: str) -> Command | None:
        """Return None: PBS keeps no record of who ended a job."""
        return None

    def parse_canceller(self, done: Completed) -> int | None:
        """Return None; see `canceller`."""
        return None

    def list_names(self) -> Command:
        """See `Scheduler.list_names`."""
        return listing(_NAMES, self.directory_of("qsub"))

    def _status(self, record: JobRecord, job_id: str) -> JobStatus:
        native, comment = record.get("job_state"), record.get("comment").strip()
        state, explanation = state_of(native)
        reason = comment or None
        if state is JobState.RUNNING and (deleted := deleted_by(comment)):
            # The server waits for the node's confirmation; the job can't be used any more.
            state, explanation = JobState.ENDED, deleted
        elif state is JobState.ENDED:
            explanation = explanation or self._ending(record)
        elif state is JobState.PENDING:
            if native == "H":
                reason = hold_reason(record.get("Hold_Types"), comment)
                explanation = _dependency(record)
            explanation = explanation or judge(reason)[1].replace("JOBID", job_id)
        running = state is JobState.RUNNING
        return JobStatus(
            job_id,
            state,
            native or "?",
            reason=reason,
            explanation=explanation,
            nodes=nodes_of(record.get("exec_host")),
            time_left_s=time_left_s(record) if running else None,
            start_estimate=_start_estimate(record) if state is JobState.PENDING else None,
            ending=native == "E",
        )


class PBS(Qstat):
    """The PBS dialect. history: the server keeps finished jobs (`job_history_enable`).

    A request that the server has refused is not repeated: `-x` without a history, JSON that
    can't be parsed.
    """

    name = "pbs"
    title = "PBS"

    def __init__(
        self,
        bin_dir: str = "",
        *,
        bin_dirs: Mapping[str, str] | None = None,
        history: bool = True,
        server: str = "",
    ) -> None:
        super().__init__(bin_dir, bin_dirs=bin_dirs, server=server)
        self._history = history
        self._json = True

    def query(self, job_ids: Sequence[str]) -> Command:
        """See `Scheduler.query`."""
        argv = [self._program("qstat"), *(["-x"] if self._history else []), "-f"]
        if self._json and len(job_ids) == 1:
            argv += ["-F", "json"]
        return Command((*argv, *map(check_job_id, job_ids)))

    def estimate(self, job_id: str) -> Command | None:
        """See `Scheduler.estimate`."""
        return Command((self._program("qstat"), "-f", check_job_id(job_id)))

    def _resources(self, request: ResourceRequest) -> list[str]:
        # Else qsub leaves a process on the login host for a minute, that would do the
        # next submission.
        return ["-f", *pbs_submit.pbs_resources(request)]

    def _ending(self, record: JobRecord) -> str:
        return ending(record.get("Exit_status"), record.get("comment").strip())

    def inspector(self) -> JobInspector | None:
        """See `Scheduler.inspector`."""
        from tunnelkit.scheduler.pbs.inspect.inspector import QstatInspector

        return QstatInspector(self._bin_dir, bin_dirs=self._bin_dirs, history=self._history)

    def _read(self, done: Completed) -> list[JobRecord]:
        if self._history and errors.NO_HISTORY.search(done.error_text):
            # Said with exit status 0, whether or not there is such a job.
            self._history = False
            raise _again("this PBS keeps no history of jobs", done)
        if records := parse_full(done.text):
            return records
        if not done.text.strip():
            return []
        told = parse_json(done.text)
        if told is None:
            if errors.is_over(done.error_text):
                return []  # what stands there is a login shell's greeting
            if _failed(done):
                raise errors.refusal("PBS can't be asked about the job", done)
            self._json = False
            raise _again("the JSON of this PBS's qstat can't be read", done)
        return told


def _dependency(record: JobRecord) -> str | None:
    """Return whom a held job waits for; None if it is held for another reason."""
    words = dependency_words(record.get("depend")) if "s" in record.get("Hold_Types") else ""
    return f"waiting for {words}" if words else None


def _failed(done: Completed) -> bool:
    # The exit status is the low byte of an error number: it may be 0 by chance.
    return done.exit_code != 0 or errors.is_transient(done.error_text)


def _again(message: str, done: Completed) -> SchedulerError:
    return SchedulerError(
        message, cause=errors.words_of(done) or None, hint="asking otherwise", transient=True
    )


def _start_estimate(record: JobRecord) -> str | None:
    told = record.get("estimated.start_time").strip()
    return None if told in ("", "UNKNOWN", "--") else told


def _digits(job_id: str) -> str:
    return "".join(char for char in sequence_number(job_id) if char in "0123456789") or "0"
