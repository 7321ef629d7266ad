"""Kubernetes as a scheduler: requests to the API server, and its answers.

A command's argv is a method and a path, its stdin the body. It is answered by a `Completed` with
exit code 0, or the HTTP status, and the words of a refusal in stderr.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from urllib.parse import quote

from tunnelkit.errors import NotPermitted, SchedulerError, UsageError
from tunnelkit.model import Completed, JobState, JobStatus, ResourceRequest
from tunnelkit.scheduler.base import Capabilities, Command, PendingCause, Where
from tunnelkit.scheduler.batch_scripts import BatchScripts
from tunnelkit.scheduler.inspector import JobInspector
from tunnelkit.scheduler.kube.manifest import Manifest
from tunnelkit.scheduler.kube.members import Pod, name_of, owner_of, parse_choice, text
from tunnelkit.scheduler.kube.object_kinds import POD, ObjectKind, how_ended, kind_of
from tunnelkit.scheduler.kube.pod_limits import pause_risk, time_left_s
from tunnelkit.scheduler.kube.pod_spec import (
    MADE,
    SESSION_LABEL,
    PodTemplate,
    session_label,
    without_root,
)
from tunnelkit.scheduler.kube.replaced import RunningPods, instance_of, restarted
from tunnelkit.scheduler.kube.words import PodState, asks_for_non_root, judge, line, refused

_FORBIDDEN, _NOT_FOUND = 403, 404
_MOST_BYTES = 64 << 20
#: Pods that are used together.
_MOST_PODS = 512
_GRACE_S = 20


class Kubernetes:
    """The adapter for one namespace.

    container: as set, None for each pod's default. template: of what tk makes, pods or an object
    that makes them; None: nothing can be made, and `refusal` says why. It remembers which pods it
    has seen running: another one of the same name is another. That ends a job of one pod; one of an
    owner's pods goes on with the pod in its place."""

    name = "kubernetes"
    capabilities = Capabilities(joins_jobs=True, agent_starts_peers=False)

    def __init__(
        self,
        namespace: str,
        *,
        container: str | None = None,
        template: PodTemplate | Manifest | None = None,
        refusal: UsageError | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._now = now
        self._namespace = namespace
        self._container = container
        self._template = template
        self._refusal = refusal or UsageError(
            "which pod? none is named",
            hint="tk up POD adopts one, tk up --image IMAGE makes one",
        )
        self._seen: dict[str, str] = {}
        self._groups: dict[str, RunningPods] = {}
        self._causes: dict[str, PendingCause] = {}
        #: Objects of tk's own whose pods have all been seen started.
        self._complete: set[str] = set()

    def inspector(self) -> JobInspector | None:
        """See `Scheduler.inspector`."""
        return None

    def batch_scripts(self) -> BatchScripts | None:
        """See `Scheduler.batch_scripts`."""
        return None

    # -- pods of tk's own

    def submit(
        self, request: ResourceRequest, *, job_name: str, body: str, log_dir: str
    ) -> Command:
        """See `Scheduler.submit`. body: the words of the container's command, quoted for sh."""
        if self._template is None:
            raise self._refusal
        made = self._template.held(request, job_name=job_name, command=shlex.split(body))
        return _request("POST", self._template.path(self._namespace), made)

    def parse_submit(self, done: Completed) -> str:
        """See `Scheduler.parse_submit`."""
        if done.exit_code != 0:
            raise SchedulerError(
                f"the API server did not take the {self._kind.choice} in {self._namespace}",
                cause=refused(done.error_text),
                hint="`tk doctor` shows your rights and the quota that is left",
                transient=done.exit_code in (409, 429) or done.exit_code >= 500,
            )
        name = name_of(_object(done))
        if not name:
            raise SchedulerError(
                "the API server's answer can't be read",
                hint="`kubectl get pods` shows whether there is a pod",
                transient=True,
            )
        return f"{self._kind.choice}/{name}"

    def amended(self, command: Command, done: Completed) -> Command | None:
        """See `Scheduler.amended`: a pod of an image, where none may run as root."""
        if done.exit_code != _FORBIDDEN or not isinstance(self._template, PodTemplate):
            return None
        if not asks_for_non_root(done.error_text):
            return None
        return replace(command, stdin=without_root(command.stdin))

    def find(self, job_name: str) -> Command:
        """See `Scheduler.find`."""
        selector = quote(f"{SESSION_LABEL}={session_label(job_name)}", safe="")
        made = self._pods() if self._template is None else self._template.path(self._namespace)
        return _request("GET", f"{made}?labelSelector={selector}")

    def parse_find(self, done: Completed, job_name: str) -> list[JobStatus]:
        """See `Scheduler.parse_find`."""
        wanted = session_label(job_name)
        found: dict[str, JobStatus] = {}
        for one in sorted(pods_in(done), key=lambda one: text(one, *_CREATED)):
            if text(one, "metadata", "labels", SESSION_LABEL) != wanted or not name_of(one):
                continue
            status = self._made(one, wanted)
            if status is None:
                continue
            known = found.get(status.job_id)
            if known is None or known.state is JobState.ENDED:
                found[status.job_id] = status
        return list(found.values())

    def _made(self, one: Pod, label: str) -> JobStatus | None:
        """Return the state of something that tk made: a pod, or an object that makes pods.

        None for what only bears the session's label, such as a user's copy: tk deletes what it
        finds here, so all must be named as tk names it."""
        is_ours = re.compile(rf"{re.escape(label)}-[0-9a-f]{{6}}").fullmatch
        if self._kind is not POD:
            if not is_ours(name_of(one)):
                return None
            going, ended = bool(text(one, "metadata", "deletionTimestamp")), how_ended(one)
            state = JobState.ENDED if going or ended else JobState.PENDING
            job_id = f"{self._kind.choice}/{name_of(one)}"
            return JobStatus(job_id, state, ended, ending=going)
        made = text(one, "metadata", "annotations", MADE) or f"pod/{name_of(one)}"
        kind, _, name = made.partition("/")
        _, owner = owner_of(one)
        # Its owner may be one that its object has made, such as a ReplicaSet.
        belongs = owner == name or owner.startswith(f"{name}-")
        if not is_ours(name) or kind_of(kind).choice != kind:
            return None
        if not belongs and made != f"pod/{name_of(one)}":
            return None
        return self._status(parse_choice(made).written, [(one, judge(one, self._container))])

    def cancel(self, job_id: str) -> Command:
        """See `Scheduler.cancel`."""
        choice = parse_choice(job_id)
        if choice.pod:
            path = f"{self._pods()}/{choice.pod}?gracePeriodSeconds={_GRACE_S}"
            return _request("DELETE", path)
        kind = kind_of(job_id.partition("/")[0])
        own = self._template is not None and self._kind is kind
        objects = self._template.path(self._namespace) if own and self._template else None
        # Its pods go with it, and get their TERM.
        path = f"{objects or kind.path(self._namespace)}/{choice.name}?propagationPolicy=Background"
        return _request("DELETE", path)

    @property
    def _kind(self) -> ObjectKind:
        return POD if self._template is None else self._template.kind

    def parse_cancel(self, done: Completed) -> None:
        """See `Scheduler.parse_cancel`."""
        if done.exit_code not in (0, _NOT_FOUND):
            raise SchedulerError(
                "what tk made could not be deleted",
                cause=line(done.error_text),
                hint="`kubectl delete` does it by hand",
                transient=done.exit_code >= 500,
            )

    @property
    def note(self) -> str:
        """A remark for the user on the object that tk makes; "" for none."""
        return self._template.note if isinstance(self._template, Manifest) else ""

    # -- states

    def query(self, job_ids: Sequence[str]) -> Command:
        """See `Scheduler.query`."""
        if len(job_ids) == 1:
            return _request("GET", parse_choice(job_ids[0]).path(self._namespace))
        return _request("GET", self._pods())

    def parse_query(self, done: Completed, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        """See `Scheduler.parse_query`."""
        pods = [] if done.exit_code == _NOT_FOUND else pods_in(done)
        found = {}
        for job_id in job_ids:
            choice = parse_choice(job_id)
            members = choice.members(pods)
            if choice.pod:
                judged = [(pod, self._judge(job_id, pod)) for pod in members]
                found[job_id] = self._status(job_id, judged)
            else:
                judged = [(pod, judge(pod, self._container)) for pod in members]
                found[job_id] = self._of_owner(job_id, judged)
        return found

    def verdict(self, status: JobStatus) -> PendingCause:
        """See `Scheduler.verdict`."""
        return self._causes.get(status.job_id, PendingCause.WAIT)

    def history(self, job_id: str) -> Command | None:
        """See `Scheduler.history`: the API server has no memory, but knows what is there."""
        return self.query([job_id])

    def parse_history(self, done: Completed) -> JobState:
        """See `Scheduler.parse_history`: a pod that is not there has ended."""
        if done.exit_code == _NOT_FOUND:
            return JobState.ENDED
        return JobState.UNKNOWN if pods_in(done) else JobState.ENDED

    def _judge(self, job_id: str, pod: Pod) -> PodState:
        state = judge(pod, self._container)
        if state.state is not JobState.RUNNING:
            return state
        now = instance_of(pod, self._container)
        before = self._seen.setdefault(f"{job_id} {name_of(pod)}", now)
        if before == now:
            return state
        same_pod = before.split(" ")[0] == now.split(" ")[0]
        why = restarted(pod, self._container) if same_pod else "another pod has its name now"
        return PodState(JobState.ENDED, "Replaced", f"{why}: what ran in it is gone")

    def _of_owner(self, job_id: str, members: Sequence[tuple[Pod, PodState]]) -> JobStatus:
        """Return the state of pods that their owner replaces: it ends only with a pod that ended
        well."""
        group = self._groups.setdefault(job_id, RunningPods(self._container))
        group.look(members)
        status = self._status(job_id, members)
        if not group.lost:
            return self._gathered(job_id, members) or status
        status = replace(status, lost=tuple(group.lost))
        pending = [one for one in members if one[1].state is JobState.PENDING]
        if status.state is JobState.RUNNING and pending:
            return replace(status, explanation=self._status(job_id, pending).explanation)
        if status.state in (JobState.RUNNING, JobState.PENDING) or not group.lost[-1].returns:
            return status
        why = "there is no pod in its place yet"
        return JobStatus(job_id, JobState.PENDING, "Replacing", reason=why, lost=status.lost)

    def _gathered(self, job_id: str, members: Sequence[tuple[Pod, PodState]]) -> JobStatus | None:
        """Return the state of an object of tk's own that has not started all of its pods yet."""
        if self._template is None or not job_id.startswith(f"{self._kind.choice}/"):
            return None
        pending = [one for one in members if one[1].state is JobState.PENDING]
        started = len(members) - len(pending)
        if job_id in self._complete or started >= self._template.pods:
            self._complete.add(job_id)
            return None
        why = f"{started} of {self._template.pods} pods run"
        if not members:
            queue = self._template.queue
            why = f"it waits in the queue {queue}" if queue else f"{job_id} has no pod yet"
        elif pending:
            why = self._status(job_id, pending).explanation or why
        return JobStatus(job_id, JobState.PENDING, "Pending", explanation=why)

    def _status(self, job_id: str, members: Sequence[tuple[Pod, PodState]]) -> JobStatus:
        """Join the states of pods: as long as one runs, the job does."""
        if not members:
            return JobStatus(job_id, JobState.UNKNOWN, "")
        running = [pod for pod, state in members if state.state is JobState.RUNNING]
        if running := running[:_MOST_PODS]:
            names = tuple(name_of(pod) for pod in running)
            which = tuple(instance_of(pod, self._container) for pod in running)
            limits = (time_left_s(pod, self._now()) for pod in running)
            return JobStatus(
                job_id,
                JobState.RUNNING,
                "Running",
                nodes=names,
                time_left_s=min((one for one in limits if one is not None), default=None),
                instances=which,
                addresses=tuple(text(pod, "status", "podIP") for pod in running),
                risks=tuple(pause_risk(pod, self._container) for pod in running),
            )
        order = (JobState.PENDING, JobState.UNKNOWN, JobState.ENDED)
        pod, state = min(members, key=lambda one: order.index(one[1].state))
        self._causes[job_id] = state.cause
        why = state.why
        if len(members) > 1 and why:
            why = f"{name_of(pod)}: {why}"
        return JobStatus(
            job_id, state.state, state.native, explanation=why or None, ending=state.ending
        )

    # -- what pods have not

    def estimate(self, job_id: str) -> Command | None:
        """See `Scheduler.estimate`."""
        return None

    def parse_estimate(self, done: Completed) -> str | None:
        """See `Scheduler.parse_estimate`."""
        return None

    def enter(
        self, job_id: str, node: str, argv: Sequence[str], *, cpus: int | None = None
    ) -> list[str] | None:
        """See `Scheduler.enter`: the link itself leads into a pod."""
        return None

    def step(self, job_id: str, node: str, argv: Sequence[str]) -> list[str]:
        """See `Scheduler.step`: a command by the link is part of the pod."""
        return list(argv)

    def canceller(self, job_id: str) -> Command | None:
        """See `Scheduler.canceller`."""
        return None

    def parse_canceller(self, done: Completed) -> int | None:
        """See `Scheduler.parse_canceller`."""
        return None

    def list_names(self) -> Command | None:
        """See `Scheduler.list_names`: the answer is a list of pods."""
        return _request("GET", f"{self._pods()}?limit=500")

    # -- inside

    def _pods(self) -> str:
        return f"/api/v1/namespaces/{self._namespace}/pods"


def pods_in(done: Completed) -> list[Pod]:
    """Return the answer's objects, of a list or one alone.

    Raises SchedulerError for a refusal, and for a part of a list: a pod that is not in it may be
    there."""
    found = _object(done)
    items = found.get("items")
    if isinstance(items, list):
        if text(found, "metadata", "continue"):
            raise SchedulerError(
                "the API server answers with a part of the list alone",
                hint="name the pods by a label: tk up -l KEY=VALUE",
                transient=True,
            )
        return [one for one in items if isinstance(one, dict)]
    return [found] if name_of(found) else []


_CREATED = ("metadata", "creationTimestamp")


def _request(method: str, path: str, body: bytes = b"") -> Command:
    return Command((method, path), body, Where.API)


def _object(done: Completed) -> dict[str, object]:
    """Return the answer's object. Raises SchedulerError for a refusal, or if it is none."""
    if done.exit_code != 0:
        raise (NotPermitted if done.exit_code == _FORBIDDEN else SchedulerError)(
            "the API server does not tell about the pods",
            cause=line(done.error_text) or f"HTTP status {done.exit_code}",
            hint="`tk doctor` shows your rights",
            transient=done.exit_code == 429 or done.exit_code >= 500,
        )
    try:
        found = json.loads(done.stdout[:_MOST_BYTES])
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise SchedulerError(
            "the API server's answer can't be read", hint="`tk doctor` checks it", transient=True
        )
    return found
