"""Agent start in a job that the user submitted without tk (salloc, sbatch, qsub).

The agent runs in its own job step, in the job's cgroup and with the job's environment. The command
that starts the step must run as long as the step. It runs on the node if ssh reaches the node,
else on the login host, detached from its connection. If a scheduler can't start steps from outside
the job (PBS), the node must accept ssh from the laptop or the login host. tk never ends such a job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tunnelkit.errors import AllocationError, ConnectionFailed
from tunnelkit.link.base import Link
from tunnelkit.model import Completed, JobState, JobStatus
from tunnelkit.remote_command import remote_command
from tunnelkit.scheduler import job_script
from tunnelkit.scheduler.base import Scheduler
from tunnelkit.scheduler.job_script import HolderStatus
from tunnelkit.session.agent.client import NO_AGENT
from tunnelkit.session.agent.install import Installed
from tunnelkit.session.agent.routes import is_hard_stop, login_ssh

#: Limit for one command; a step may have to wait for another step's end.
_START_TIMEOUT_S = 60.0
#: Number and pauses of the attempts to reach an agent that was just started.
_LOOKS, _LOOK_S = 50, 0.2
#: ssh's own exit code if it can't connect.
_SSH_FAILED = 255

# $1 script $2 log $3 status file, then the step's argv. The script comes on stdin. Returns once
# the agent has written the status file or the step is over, or after 20 s (file systems may show
# the file late). The mark is `job_script.STATUS_MARK`.
_START = r"""
umask 077
script=$1 log=$2 status=$3; shift 3
cat > "$script" && : > "$log" && rm -f -- "$status" || exit 1
setsid "$@" </dev/null >"$log" 2>&1 &
tries=0
while [ ! -s "$status" ] && [ "$tries" -lt 200 ]; do
  kill -0 $! 2>/dev/null || { tail -n 3 "$log" >&2; wait $! && exit 1; exit $?; }
  tries=$((tries+1)); sleep 0.1
done
echo tk-status
head -n 1 "$status"; echo
sed -n 's/^tk-outside: //p' "$log"
"""

# $1 another agent's status file, then a command. Runs the command, and ends it once that agent has
# ended.
_LEASH = r"""
status=$1; shift
"$@" &
while kill -0 $! 2>/dev/null && ! grep -qs ^ended "$status"; do sleep 2; done
trap '' TERM
kill -TERM 0
wait $!
"""


def check_adoptable(job_id: str, status: JobStatus) -> None:
    """Raise AllocationError, with cause and hint, unless tk can attach to that job now."""
    if status.state is JobState.RUNNING and status.nodes:
        return
    why = status.explanation or status.reason or status.native_state or None
    if "/" in job_id or job_id.startswith("-l"):
        raise _no_pod(job_id, status, why)
    if status.state is JobState.PENDING:
        raise AllocationError(
            f"job {job_id} does not run yet",
            cause=why,
            hint=f"once it runs: tk up --attach-job {job_id}",
        )
    if status.state is JobState.ENDED:
        raise AllocationError(
            f"job {job_id} is over", cause=why, hint="get an allocation of tk's own: tk up"
        )
    raise AllocationError(
        f"there is no job {job_id} of yours",
        cause=why,
        hint="your jobs, on the login host: squeue --me (PBS: qstat -u $USER)",
    )


def _no_pod(job_id: str, status: JobStatus, why: str | None) -> AllocationError:
    """Return the error for pods that can't be used now; their id has their kind in it."""
    if status.state is JobState.PENDING:
        return AllocationError(
            f"{job_id} does not run yet", cause=why, hint=f"once it runs: tk up {job_id}"
        )
    if status.state is JobState.ENDED:
        return AllocationError(
            f"{job_id} is over", cause=why, hint="a pod of tk's own: tk up --image IMAGE"
        )
    return AllocationError(
        f"there is no {job_id} in this namespace",
        cause=why,
        hint="`kubectl get pods` lists what is there; `tk config show` tells the namespace",
    )


class JobAttachment:
    """Starts the agent `name` in a running job. node_ssh: "auto", "yes" or "no"."""

    def __init__(
        self,
        link: Link,
        scheduler: Scheduler,
        installed: Installed,
        *,
        name: str,
        node_ssh: str,
        say: Callable[[str], None],
    ) -> None:
        self._link = link
        self._scheduler = scheduler
        self._installed = installed
        self._name = name
        self._node_ssh = node_ssh
        self._say = say

    async def has_agent(self, job_id: str, node: str) -> bool:
        """Return True if the agent runs in the job. Raises ConnectionFailed, AllocationError."""
        argv = self._installed.argv("attach", self._name)
        done = await self._on_node(argv, node)
        if done is None:
            enter = self._scheduler.enter(job_id, node, argv)
            if enter is None:
                raise self._no_way(job_id, node)
            done = await self._link.run(enter, timeout_s=_START_TIMEOUT_S)
        if done.exit_code in (0, NO_AGENT):
            return done.exit_code == 0
        raise AllocationError(
            f"job {job_id} can't be entered on {node}",
            cause=done.error_text[-300:] or f"exit status {done.exit_code}",
            hint="does the job still run, and is it yours? may you ssh to that node?",
        )

    async def start(
        self, job_id: str, node: str, body: str, status_file: str, *, ends_with: str | None = None
    ) -> HolderStatus | None:
        """Run `body` (scheduler/job_script.py) in its own step; return its status, None if unknown.

        status_file: the file into which `body` writes its status.
        ends_with: another agent's status file; the step ends once that agent has ended.
        Raises AllocationError if the agent can't be started.
        """
        if not self._scheduler.capabilities.joins_jobs:
            raise AllocationError(
                f"tk can't enter a {self._scheduler.name} job that it has not submitted",
                hint="let tk submit it: tk up",
            )
        base = f"{self._installed.jobs_dir}/{self._name}"
        script, log = f"{base}.step.sh", f"{base}.step.log"
        leash = [] if ends_with is None else ["sh", "-c", _LEASH, "sh", ends_with]
        step = self._scheduler.step(job_id, node, [*leash, "sh", script])
        argv = ["sh", "-c", _START, "sh", script, log, status_file, *step]
        done = await self._on_node(argv, node, body.encode())
        if self._enters_from_login:
            if done is not None and done.exit_code == 127:
                done = None  # the node lacks the scheduler's commands
            done = done or await self._link.run(
                argv, stdin=body.encode(), timeout_s=_START_TIMEOUT_S
            )
        if done is None:
            raise self._no_way(job_id, node)
        if done.exit_code:
            raise AllocationError(
                f"no agent could be started in job {job_id} on {node}",
                cause=done.error_text[-300:] or f"exit status {done.exit_code}",
                hint=f"see {log} on {self._link.name}",
            )
        status, _, outside = job_script.after_mark(done.text).partition("\n")
        if outside := outside.strip():
            self._say(
                f"the agent on {node} is no part of job {job_id} ({outside}): what it runs is not "
                "held to the job's cores and memory, nor counted; it ends with the job"
            )
        return job_script.parse_status(status)

    async def start_peer(
        self, job_id: str, node: str, body: str, status_file: str, *, ends_with: str
    ) -> int:
        """Start the agent on one more node, unless it runs there; return its pid. See `start`."""
        if await self.has_agent(job_id, node):
            done = await self._link.run(job_script.read_status(status_file).argv)
            told = job_script.parse_status(done.text)
        else:
            told = await self.start(job_id, node, body, status_file, ends_with=ends_with)
            # A second request before it can answer would start another one.
            for _ in range(_LOOKS):
                if await self.has_agent(job_id, node):
                    break
                await asyncio.sleep(_LOOK_S)
        if told is None or told.pid is None:
            raise AllocationError(
                f"the agent on {node} did not say that it runs",
                hint=f"see {self._installed.jobs_dir}/{self._name}.step.log on {self._link.name}",
            )
        return told.pid

    @property
    def _enters_from_login(self) -> bool:
        return self._scheduler.capabilities.enters_jobs

    def _no_way(self, job_id: str, node: str) -> AllocationError:
        return AllocationError(
            f"job {job_id} can't be entered on {node}",
            cause="no ssh leads to the node, and the scheduler has no way in",
            hint="let tk submit a job of its own: tk up; where nodes want a password: "
            '[cluster] node_ssh = "yes"',
        )

    async def _on_node(self, argv: list[str], node: str, stdin: bytes = b"") -> Completed | None:
        """Run `argv` on the node; return None if ssh does not reach the node."""
        if self._node_ssh == "no":
            return None
        try:
            return await self._link.run(argv, node=node, stdin=stdin, timeout_s=_START_TIMEOUT_S)
        except ConnectionFailed as error:
            if is_hard_stop(error) or self._node_ssh == "yes" or not await self._link.is_alive():
                raise
            self._say(f"{node} refuses ssh ({error.cause or error})")
        if self._enters_from_login:
            return None
        by_login = [*login_ssh(self._installed, node), remote_command(argv)]
        done = await self._link.run(by_login, stdin=stdin, timeout_s=_START_TIMEOUT_S)
        return None if done.exit_code == _SSH_FAILED else done
