"""The pods of one owner in time: which of those that ran are gone, and why. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tunnelkit.model import JobState, LostNode
from tunnelkit.scheduler.kube.members import Pod, name_of, text
from tunnelkit.scheduler.kube.members import field as of
from tunnelkit.scheduler.kube.words import PodState, container_of, container_status, how_terminated

_MOST_LOST = 64


def instance_of(pod: Pod, container: str | None) -> str:
    """Return what tells a pod's container from those that had its name before it."""
    status = container_status(pod, container_of(pod, container))
    return f"{text(pod, 'metadata', 'uid')} {text(status, 'containerID')}"


def restarted(pod: Pod, container: str | None) -> str:
    """Return in words that the pod's container was restarted, and how the one before ended."""
    status: Mapping[str, object] = container_status(pod, container_of(pod, container))
    ended = of(status, "state", "terminated") or of(status, "lastState", "terminated")
    how = f" ({how_terminated(ended)})" if ended is not None else ""
    return f"its container was restarted{how}"


@dataclass
class RunningPods:
    """The pods that were seen running. Call `look` with each answer of the API server.

    container: as set; None for each pod's default. lost: those that are gone, oldest first."""

    container: str | None = None
    lost: list[LostNode] = field(default_factory=list)
    _running: dict[str, str] = field(default_factory=dict)

    def look(self, members: Sequence[tuple[Pod, PodState]]) -> None:
        """Take the pods that are there, each with its state."""
        there = {name_of(pod): (pod, state) for pod, state in members}
        for name in list(self._running):
            self._check(name, there.get(name))
        for name, (pod, state) in there.items():
            if state.state is JobState.RUNNING:
                self._running.setdefault(name, instance_of(pod, self.container))

    def _check(self, name: str, found: tuple[Pod, PodState] | None) -> None:
        """Note the pod as lost if what ran in it is gone."""
        before = self._running[name]
        if found is None:
            self._lose(name, "it was deleted")
            return
        pod, state = found
        now = instance_of(pod, self.container)
        if now.split(" ")[0] != before.split(" ")[0]:
            self._lose(name, "it was deleted, and another pod has its name now")
        elif state.state is JobState.ENDED:
            plain = state.ending or state.native == "Running"  # beside a sidecar that runs on
            why = state.why if plain else f"{state.native}, {state.why}"
            self._lose(name, why, returns=state.code != "pod-done")
        elif state.state is JobState.PENDING or (state.state is JobState.RUNNING and now != before):
            self._lose(name, restarted(pod, self.container))

    def _lose(self, name: str, why: str, *, returns: bool = True) -> None:
        self.lost.append(LostNode(name, self._running.pop(name), why, returns))
        del self.lost[:-_MOST_LOST]
