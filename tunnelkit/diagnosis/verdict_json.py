"""A diagnosis as JSON: for the control socket and for `tk why --json`."""

from __future__ import annotations

from typing import TypedDict

from tunnelkit.diagnosis.codes.registry import CODES
from tunnelkit.diagnosis.verdict import Certainty, Diagnosis, Evidence, NextStep, Stage, Verdict


class EvidenceInfo(TypedDict):
    """See `Evidence`."""

    label: str
    text: str
    source: str
    time_s: float | None


class NextStepInfo(TypedDict):
    """See `NextStep`."""

    text: str
    command: str


class VerdictInfo(TypedDict):
    """See `Verdict`. actor: an `Actor`, from the code's entry."""

    code: str
    sentence: str
    certainty: str
    actor: str
    because: list[EvidenceInfo]
    consequences: list[str]
    excluded: list[str]
    next_steps: list[NextStepInfo]
    sooner_min: int | None
    fact: str


class DiagnosisInfo(TypedDict):
    """See `Diagnosis`."""

    job_id: str
    stage: str
    verdicts: list[VerdictInfo]
    not_asked: list[str]
    notes: list[str]
    asked_s: float


def to_json(diagnosis: Diagnosis) -> DiagnosisInfo:
    """Return a diagnosis as JSON."""
    return {
        "job_id": diagnosis.job_id,
        "stage": diagnosis.stage.value,
        "verdicts": [verdict_info(one) for one in diagnosis.verdicts],
        "not_asked": list(diagnosis.not_asked),
        "notes": list(diagnosis.notes),
        "asked_s": diagnosis.asked_s,
    }


def from_json(info: DiagnosisInfo) -> Diagnosis:
    """Return the diagnosis of `to_json`."""
    return Diagnosis(
        info["job_id"],
        Stage(info["stage"]),
        tuple(_verdict(one) for one in info["verdicts"]),
        tuple(info["not_asked"]),
        info["asked_s"],
        tuple(info["notes"]),
    )


def verdict_info(verdict: Verdict) -> VerdictInfo:
    """Return one verdict as JSON."""
    return {
        "code": verdict.code,
        "sentence": verdict.sentence,
        "certainty": verdict.certainty.value,
        "actor": CODES[verdict.code].actor.value,
        "because": [
            {"label": one.label, "text": one.text, "source": one.source, "time_s": one.time_s}
            for one in verdict.because
        ],
        "consequences": list(verdict.consequences),
        "excluded": list(verdict.excluded),
        "next_steps": [{"text": one.text, "command": one.command} for one in verdict.next_steps],
        "sooner_min": verdict.sooner_min,
        "fact": verdict.fact,
    }


def _verdict(info: VerdictInfo) -> Verdict:
    return Verdict(
        info["code"],
        info["sentence"],
        Certainty(info["certainty"]),
        tuple(
            Evidence(one["text"], one["source"], one["label"], one["time_s"])
            for one in info["because"]
        ),
        tuple(info["consequences"]),
        tuple(info["excluded"]),
        tuple(NextStep(one["text"], one["command"]) for one in info["next_steps"]),
        info["sooner_min"],
        info["fact"],
    )
