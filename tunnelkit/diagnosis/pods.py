"""Verdicts about pods: those that wait or have ended before those that run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tunnelkit.diagnosis.codes.registry import CODES
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Stage, Verdict

_MOST = 8
_STATUS = "the pod's status"


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod. code: of the verdict. native: the API's word for its state. why: in words.

    events: the API server's warnings about it, the newest last."""

    name: str
    code: str
    native: str
    why: str
    events: tuple[str, ...] = ()


def judge_pods(
    pods: Sequence[PodView], *, owner: str = "", refusals: Sequence[str] = ()
) -> tuple[Stage, tuple[Verdict, ...]]:
    """Return the stage of a pod, or of the pods of `owner`, and what is said of them.

    Pods in the same state share a verdict. No pod: the owner waits for its first. refusals: the
    warnings about further pods that can't be made for it, the newest last; they come second, as it
    may want no further pod by now."""
    if not pods:
        return Stage.WAITING, (_no_pod(refusals),)
    if refusals:
        stage, (first, *others) = judge_pods(pods, owner=owner)
        sentence = f"gets no further pod: {refusals[-1]}"
        further = replace(_no_pod(refusals), sentence=sentence, certainty=Certainty.LIKELY)
        return stage, (first, further, *others)
    groups: dict[tuple[str, str], list[PodView]] = {}
    for one in pods:
        groups.setdefault((one.code, one.why), []).append(one)
    order = (Stage.ENDED, Stage.WAITING, Stage.RUNNING)
    found = sorted(
        groups.values(),
        key=lambda some: (not CODES[some[0].code].fatal, order.index(CODES[some[0].code].stage)),
    )[:_MOST]
    verdicts = tuple(_verdict(some[0].code, some, owner) for some in found)
    return CODES[verdicts[0].code].stage, verdicts


def _no_pod(refusals: Sequence[str]) -> Verdict:
    found = _verdict("pod-no-pod", [], "")
    if not refusals:
        return found
    because = tuple(Evidence(text, "an event of its controller") for text in refusals)
    return replace(found, sentence=f"waits: {refusals[-1]}", because=because)


def _verdict(code: str, pods: Sequence[PodView], owner: str) -> Verdict:
    entry = CODES[code]
    said = pods[0].why if pods else "it has no pod yet"
    if entry.stage is Stage.WAITING:
        sentence = f"waits: {said or 'its node starts it'}"
    elif entry.stage is Stage.RUNNING:
        sentence = "runs"
    elif entry.fatal:
        sentence = f"failed: {said}"
    else:
        sentence = f"has ended: {said}" if code == "pod-done" else "is being deleted"
    if owner and pods:
        names = ", ".join(one.name for one in pods[:_MOST])
        more = f" and {len(pods) - _MOST} more" if len(pods) > _MOST else ""
        sentence = f"{sentence} ({names}{more})"
    because = [Evidence(f"{one.name}: {one.native}", _STATUS) for one in pods[:_MOST] if one.native]
    because += [Evidence(text, "an event of the pod") for one in pods for text in one.events]
    steps = () if entry.stage is Stage.RUNNING else (NextStep(entry.remedy.rstrip(".")),)
    return Verdict(code, sentence, Certainty.PROVEN, tuple(because), next_steps=steps)
