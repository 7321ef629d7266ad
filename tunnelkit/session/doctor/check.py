"""What a check is, and what comes of one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tunnelkit.session.doctor.context import CheckContext


class CheckStatus(Enum):
    """SKIP: not checked, and said why; it is no fault."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check has found, in one line. fix: what to do, where the check's own advice does
    not fit. data: the same for programs."""

    status: CheckStatus
    found: str
    fix: str | None = None
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Check:
    """One check. run: does it; a TunnelkitError that it raises is a failure. fix: advice for
    whatever it finds wrong. needs: checks without whose success this one says nothing.
    limit_s: no answer by then is a failure; asks: a person may be asked for a password
    meanwhile, and is given time."""

    name: str
    run: Callable[[CheckContext], Awaitable[Finding]]
    fix: str
    needs: tuple[str, ...] = ()
    limit_s: float = 10.0
    asks: bool = False


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A check with its outcome; `fix` is None where nothing is to be done."""

    name: str
    status: CheckStatus
    found: str
    fix: str | None
    data: dict[str, Any]
    took_s: float

    def to_json(self) -> dict[str, Any]:
        """As `tk doctor --json` prints it."""
        return {
            "name": self.name,
            "status": self.status.value,
            "found": self.found,
            "fix": self.fix,
            "data": self.data,
            "took_s": round(self.took_s, 3),
        }


def ok(found: str, **data: Any) -> Finding:
    """All is well."""
    return Finding(CheckStatus.OK, found, data=data)


def warn(found: str, *, fix: str | None = None, **data: Any) -> Finding:
    """It works, but not as well as it could."""
    return Finding(CheckStatus.WARN, found, fix, data)


def fail(found: str, *, fix: str | None = None, **data: Any) -> Finding:
    """Something that tk needs can't be had."""
    return Finding(CheckStatus.FAIL, found, fix, data)


def skip(why: str) -> Finding:
    """Not checked."""
    return Finding(CheckStatus.SKIP, why)
