"""A pod's state in one line: why it waits, how it ended. Pure; nothing in it is believed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tunnelkit.model import JobState
from tunnelkit.scheduler.base import PendingCause
from tunnelkit.scheduler.kube.members import Pod, field, text

_MOST_CHARS = 400
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
_TAINT_OR_LABEL = re.compile(r"taint|didn't match|selector|affinity", re.IGNORECASE)
_LACKS = re.compile(r"Insufficient|Too many pods", re.IGNORECASE)
_COUNTED = re.compile(r"\d+ \S")


@dataclass(frozen=True)
class PodState:
    """A pod's state.

    native: the API's own word. why: in words, "" if there is nothing to say. cause: of a pending
    pod. ending: its end has begun. code: of the verdict (diagnosis/codes/pods.py)."""

    state: JobState
    native: str
    why: str = ""
    cause: PendingCause = PendingCause.WAIT
    ending: bool = False
    code: str = "pod-starts"


def line(said: str) -> str:
    """Return the API's words in one printable line of bounded length."""
    one = " ".join(said[: 8 * _MOST_CHARS].split())
    one = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in one)
    return one if len(one) <= _MOST_CHARS else one[: _MOST_CHARS - 1] + "…"


def container_of(pod: Pod, wanted: str | None) -> str:
    """Return the name of the container that is meant: the setting's, else the pod's default."""
    containers = field(pod, "spec", "containers")
    listed = containers[:64] if isinstance(containers, list) else []
    names = [text(one, "name") for one in listed]
    marked = text(pod, "metadata", "annotations", _DEFAULT_CONTAINER)
    # As kubectl does: a mark that names none of them counts for nothing.
    return wanted or (marked if marked in names else next(iter(names), ""))


def container_status(pod: Pod, name: str) -> Mapping[str, object]:
    """Return the status of a container of any kind; empty if there is none."""
    kinds = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
    for key in kinds:
        found = field(pod, "status", key)
        for one in found[:64] if isinstance(found, list) else ():
            if isinstance(one, Mapping) and one.get("name") == name:
                return one
    return {}


def judge(pod: Pod, container: str | None = None) -> PodState:
    """Return the pod's state, as `container` (None: its default one) has it."""
    phase = text(pod, "status", "phase") or "Unknown"
    name = container_of(pod, container)
    status = container_status(pod, name)
    going = bool(text(pod, "metadata", "deletionTimestamp"))
    ended = _ended(pod, phase, status)
    if ended is not None:
        return ended
    if going:
        lost = text(pod, "status", "reason") == "NodeLost"
        why = _disruption(pod) or ("its node was lost" if lost else "it is being deleted")
        code = "pod-node-lost" if lost else "pod-evicted" if _disruption(pod) else "pod-deleted"
        return PodState(JobState.ENDED, "Terminating", why, ending=True, code=code)
    if field(status, "state", "running") is not None:  # whatever becomes of its sidecars
        return PodState(JobState.RUNNING, "Running", code="pod-runs")
    waiting = _waiting(status, name) or _waiting_init(pod)
    if waiting is not None:
        return waiting
    if (last := field(status, "state", "terminated")) is not None:
        why = f"container {line(name)} is restarted; the last time {how_terminated(last)}"
        held = PendingCause.HELD
        return PodState(JobState.PENDING, "Restarting", why, held, code="pod-crash-loop")
    if phase == "Running":
        why = f"it has no container {line(name)!r}" if status == {} else "its container starts"
        cause = PendingCause.FIX if status == {} else PendingCause.WAIT
        code = "pod-config" if status == {} else "pod-starts"
        return PodState(JobState.PENDING, phase, why, cause, code=code)
    if phase == "Unknown":
        why = "its node does not answer"
        return PodState(JobState.UNKNOWN, phase, why, code="pod-node-lost")
    return _unscheduled(pod, phase)


# -- ended ---------------------------------------------------------------------------------


def _ended(pod: Pod, phase: str, status: Mapping[str, object]) -> PodState | None:
    terminated = field(status, "state", "terminated")
    reason = text(pod, "status", "reason")
    is_over = phase in ("Failed", "Succeeded")
    restarts = text(pod, "spec", "restartPolicy") not in ("Never", "OnFailure")
    if not is_over and (terminated is None or restarts):
        return None
    disruption = _disruption(pod)
    if reason == "Evicted":
        code, why = "pod-evicted", f"by its node: {line(text(pod, 'status', 'message'))}"
    elif reason == "DeadlineExceeded":
        code, why = "pod-time-limit", "it reached its time limit (activeDeadlineSeconds)"
    elif reason == "NodeLost":
        code, why = "pod-node-lost", "its node was lost"
    elif disruption:
        code, why = "pod-evicted", disruption
    elif terminated is not None:
        code, why = _end_code(terminated), how_terminated(terminated)
    else:
        code = "pod-done" if phase == "Succeeded" else "pod-failed"
        why = line(text(pod, "status", "message")) or "it ended"
    return PodState(JobState.ENDED, line(reason) or phase, why, code=code)


def _end_code(terminated: object) -> str:
    if text(terminated, "reason") == "OOMKilled":
        return "pod-out-of-memory"
    if text(terminated, "reason") in _NO_START:
        return "pod-no-command"
    return "pod-done" if field(terminated, "exitCode") == 0 else "pod-failed"


_NO_START = ("StartError", "ContainerCannotRun")


_DISRUPTIONS = {
    "PreemptionByScheduler": "preempted by a pod of higher priority",
    "DeletionByTaintManager": "its node was taken away (a taint)",
    "EvictionByEvictionAPI": "evicted: its node is being drained",
    "DeletionByPodGC": "its node is gone",
    "TerminationByKubelet": "ended by its node",
}


def _disruption(pod: Pod) -> str:
    condition = _condition(pod, "DisruptionTarget")
    if condition.get("status") != "True":
        return ""
    known = _DISRUPTIONS.get(text(condition, "reason"), line(text(condition, "reason")))
    said = line(text(condition, "message"))
    return f"{known} ({said})" if said else known


def how_terminated(terminated: object) -> str:
    """Return in words how a container ended."""
    reason, code = text(terminated, "reason"), field(terminated, "exitCode")
    said = line(text(terminated, "message"))
    status = code if isinstance(code, int) else None
    if reason == "OOMKilled":
        return "killed for memory (OOMKilled): the container's limit was reached"
    if reason in _NO_START:
        return f"its command can't be started: {said or reason}"
    if status == 0:
        return "it ended with exit code 0"
    if status is None:
        return line(reason) or "it ended"
    named = {137: ", SIGKILL", 143: ", SIGTERM"}.get(status, "")
    return f"it ended with exit code {status}{named}" + (f": {said}" if said else "")


# -- pending -------------------------------------------------------------------------------


_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
_CONFIG = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
#: Of a slow disk or a busy kubelet, which tries again until it works.
_HEALS = re.compile(
    "context deadline exceeded|failed to (?:sync|reserve)|timed out waiting|is reserved for"
)


def _waiting(status: Mapping[str, object], name: str) -> PodState | None:
    reason = text(status, "state", "waiting", "reason")
    said = line(text(status, "state", "waiting", "message"))
    shown = line(name)
    if reason in _IMAGE:
        image = line(text(status, "image"))
        why = f"the image {image} can't be pulled ({reason}): {said or 'no reason given'}"
        # It may heal: a registry that was down for a minute.
        cause = PendingCause.HELD if reason in _IMAGE[:2] else PendingCause.FIX
        return PodState(JobState.PENDING, reason, why, cause, code="pod-image")
    if reason in _CONFIG:
        why = f"container {shown} can't be made ({reason}): {said or 'no reason given'}"
        cause = PendingCause.HELD if _HEALS.search(said) else PendingCause.FIX
        return PodState(JobState.PENDING, reason, why, cause, code="pod-config")
    if reason == "CrashLoopBackOff":
        last = field(status, "lastState", "terminated")
        count = field(status, "restartCount")
        times = f" {count} times" if isinstance(count, int) else ""
        why = f"container {shown} was restarted{times} and ends each time: {how_terminated(last)}"
        return PodState(JobState.PENDING, reason, why, PendingCause.FIX, code="pod-crash-loop")
    return None


def _waiting_init(pod: Pod) -> PodState | None:
    found = field(pod, "status", "initContainerStatuses")
    for one in found[:64] if isinstance(found, list) else ():
        if isinstance(one, Mapping) and (state := _waiting(one, text(one, "name"))) is not None:
            # One that fails until something else is there starts by itself, then.
            is_loop = state.code == "pod-crash-loop"
            return replace(state, cause=PendingCause.HELD) if is_loop else state
    return None


def _condition(pod: Pod, kind: str) -> Mapping[str, object]:
    found = field(pod, "status", "conditions")
    for one in found[:64] if isinstance(found, list) else ():
        if isinstance(one, Mapping) and one.get("type") == kind:
            return one
    return {}


def _unscheduled(pod: Pod, phase: str) -> PodState:
    condition = _condition(pod, "PodScheduled")
    reason, said = text(condition, "reason"), line(text(condition, "message"))
    if condition.get("status") == "True":
        return PodState(JobState.PENDING, phase, "its node fetches the image and starts it")
    if reason == "SchedulingGated":
        why = "it is held back by a gate: Kueue has not admitted it yet"
        return PodState(JobState.PENDING, reason, why, PendingCause.QUOTA, code="pod-gated")
    if reason == "Unschedulable":
        fits_nowhere = bool(_TAINT_OR_LABEL.search(said)) and not _LACKS.search(said)
        # Not FIX: an autoscaler may add a node, and taints and cordons come and go.
        cause = PendingCause.HELD if fits_nowhere else PendingCause.WAIT
        why = f"no node for it: {arithmetic(said)}"
        code = "pod-fits-nowhere" if fits_nowhere else "pod-no-room"
        return PodState(JobState.PENDING, reason, why, cause, code=code)
    return PodState(JobState.PENDING, phase, said)


def arithmetic(said: str) -> str:
    """Return the scheduler's count of nodes, without its advice on preemption."""
    begin, colon, rest = said.partition(": ")
    # After the count comes advice: "preemption: 0/5 nodes are available", "no new claims to ...".
    counted = [part.strip(" .") for part in rest.partition(". ")[0].split(", ")]
    counted = [part for part in counted if _COUNTED.match(part)]
    return f"{begin}: {', '.join(counted[:8])}" if colon and counted else said


# -- refused -------------------------------------------------------------------------------

_QUOTA = re.compile(r"exceeded quota: ([^,]+), requested: (.*), used: (.*), limited: (.*)")


def asks_for_non_root(said: str) -> bool:
    """True if the pod was refused because it may run as root."""
    return "violates PodSecurity" in said and "runAsNonRoot" in said


def refused(said: str) -> str:
    """Return in words why the API server did not take a pod."""
    one = line(said)
    if (found := _QUOTA.search(one)) is not None:
        return f"quota {found[1]} is used up: asked {found[2]}, used {found[3]} of {found[4]}"
    if "security context constraint" in one or "violates PodSecurity" in one:
        return f"the namespace does not take such a pod: {one}"
    return one
