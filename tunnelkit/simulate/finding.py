"""One result of the check on the cluster, and the check's whole answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypedDict


class Level(Enum):
    """The weight of a finding.

    OK: looked at, and well. WARN: may be well. FAIL: the job would not do what it should. UNKNOWN:
    could not be asked."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    check: its stable name, for scripts. hint: what to do about it, "" for nothing. line: of the
    script, 0 for none."""

    check: str
    level: Level
    text: str
    hint: str = ""
    line: int = 0


class FindingInfo(TypedDict):
    """See `Finding`."""

    check: str
    level: str
    text: str
    hint: str
    line: int


class CheckAnswer(TypedDict):
    """A check. cluster: the login host's name. directory: where the job would run."""

    cluster: str
    directory: str
    seconds: float
    findings: list[FindingInfo]


def to_info(finding: Finding) -> FindingInfo:
    """Return a finding as JSON."""
    return {
        "check": finding.check,
        "level": finding.level.value,
        "text": finding.text,
        "hint": finding.hint,
        "line": finding.line,
    }


def from_info(info: FindingInfo) -> Finding:
    """Return the finding of its JSON."""
    return Finding(info["check"], Level(info["level"]), info["text"], info["hint"], info["line"])


def failed(findings: list[Finding]) -> bool:
    """Return True if one of them is a failure."""
    return any(one.level is Level.FAIL for one in findings)
