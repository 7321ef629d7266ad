"""A check of `tk doctor`, and its result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from tunnelkit.session.doctor.context import CheckContext


class CheckStatus(Enum):
    """Outcome of a check. SKIP: not checked, with the reason; it is no fault."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding of a check, in one line.

    fix: what to do, if the check's own advice does not fit. data: the finding for programs."""

    status: CheckStatus
    found: str
    fix: str | None = None
    data: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Check:
    """One check.

    run: does it; a TunnelkitError is a failure. fix: advice for its faults. needs: checks that
    must succeed before. limit_s: no answer by then is a failure. asks: the user may be asked for
    a password meanwhile, which extends the limit."""

    name: str
    run: Callable[[CheckContext], Awaitable[Finding]]
    fix: str
    needs: tuple[str, ...] = ()
    limit_s: float = 10.0
    asks: bool = False


class CheckInfo(TypedDict):
    """A check with its outcome in `tk doctor --json`; see CheckResult."""

    name: str
    status: str
    found: str
    fix: str | None
    data: dict[str, object]
    took_s: float


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A check with its outcome; `fix` is None if there is nothing to do."""

    name: str
    status: CheckStatus
    found: str
    fix: str | None
    data: dict[str, object]
    took_s: float

    def to_json(self) -> CheckInfo:
        """Return the JSON object of `tk doctor --json`."""
        return {
            "name": self.name,
            "status": self.status.value,
            "found": self.found,
            "fix": self.fix,
            "data": self.data,
            "took_s": round(self.took_s, 3),
        }


def ok(found: str, **data: object) -> Finding:
    """Return the finding of a check without a fault."""
    return Finding(CheckStatus.OK, found, data=data)


def warn(found: str, *, fix: str | None = None, **data: object) -> Finding:
    """Return a warning: it works, but not as well as it could."""
    return Finding(CheckStatus.WARN, found, fix, data)


def fail(found: str, *, fix: str | None = None, **data: object) -> Finding:
    """Return a failure: something that tk needs is missing."""
    return Finding(CheckStatus.FAIL, found, fix, data)


def skip(why: str) -> Finding:
    """Return the finding of a check that was skipped."""
    return Finding(CheckStatus.SKIP, why)
