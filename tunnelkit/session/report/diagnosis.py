"""The last diagnosis for a bug report: codes and certainty, and evidence without names.

Evidence quotes the scheduler, so it may name other users, their jobs and nodes, of whom the
scrubber knows nothing. Only numbers and the words that tk's own texts use are kept.
"""

from __future__ import annotations

import contextlib
import json
import re
from functools import cache
from pathlib import Path
from typing import TypedDict

from tunnelkit.diagnosis.codes.registry import CODES
from tunnelkit.diagnosis.verdict_json import DiagnosisInfo, EvidenceInfo
from tunnelkit.session.runtime.paths import write_private

_LONGEST = 256 * 1024
_WORD = re.compile(r"[^\W\d_][\w.@/-]*|/[\w.@/-]+")
#: Units, and words of verdicts and of the commands that are their sources.
_COMMON = """
    s min h d b kb mb gb tb kib mib gib tib cpu cpus gpu gpus w mhz waiting running ended proven
    likely unknown free asked in front by starts sooner needs has scontrol squeue sacct sinfo sprio
    sshare sstat show job node nodes jobs log exit code signal state reason kernel cgroup limit
    memory until at of on to for and not no answer within kill oom_kill killed pending failed
    completed cancelled timeout qstat pbsnodes
"""


class EvidenceReport(TypedDict):
    """One piece of evidence. source: only the command's words that tk knows."""

    label: str
    text: str
    source: str


class VerdictReport(TypedDict):
    """One verdict without its sentence, which may hold names."""

    code: str
    certainty: str
    because: list[EvidenceReport]


class DiagnosisReport(TypedDict):
    """The diagnosis in a report."""

    asked_s: float
    stage: str
    verdicts: list[VerdictReport]
    not_asked: list[str]


def keep_diagnosis(path: Path, info: DiagnosisInfo) -> None:
    """Write the last diagnosis for a later report. Raises nothing."""
    with contextlib.suppress(OSError):
        write_private(path, json.dumps(info))


def last_diagnosis(path: Path) -> DiagnosisReport | None:
    """Return what a report may have of the last diagnosis; None if there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            info: DiagnosisInfo = json.loads(file.read(_LONGEST))
        return {
            "asked_s": float(info["asked_s"]),
            "stage": without_names(str(info["stage"])),
            "verdicts": [
                {
                    "code": one["code"] if one["code"] in CODES else "[unknown]",
                    "certainty": without_names(str(one["certainty"])),
                    "because": [_evidence(each) for each in one["because"]],
                }
                for one in info["verdicts"]
            ],
            "not_asked": [without_names(str(one)) for one in info["not_asked"]],
        }
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return None


def _evidence(info: EvidenceInfo) -> EvidenceReport:
    return {
        "label": without_names(str(info["label"])),
        "text": without_names(str(info["text"])),
        "source": without_names(str(info["source"])),
    }


def without_names(text: str) -> str:
    """Return a text in which each word that tk's own texts lack is replaced."""
    return _WORD.sub(lambda word: word[0] if _is_own(word[0]) else "[word]", text)


def _is_own(word: str) -> bool:
    return len(word) == 1 or word.lower().strip(".-") in _vocabulary()


@cache
def _vocabulary() -> frozenset[str]:
    texts = [text for one in CODES.values() for text in (one.meaning, one.found_by, one.remedy)]
    words = {word.lower().strip(".-") for text in texts for word in _WORD.findall(text)}
    return frozenset(words | {*_COMMON.split()})
