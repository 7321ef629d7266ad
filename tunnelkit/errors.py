"""Errors for users, and exit codes for scripts.

Every error says what failed, on which host, why, and what to do next. Foreign
exceptions are translated at the edge where they appear; only `TunnelkitError`
crosses from one room to another.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import TypedDict


class ExitCode(IntEnum):
    """Exit codes of `tk`; the table in README.md is held to this by a test."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    CONFIG = 3
    NO_SESSION = 4
    CONNECTION = 5
    HOST_KEY = 6
    SCHEDULER = 7
    ALLOCATION = 8
    MIRROR = 9
    DEBUG = 10
    MISSING_PROGRAM = 11
    TIMEOUT = 12
    CHECK_FAILED = 13
    DIAGNOSED = 14
    INTERRUPTED = 130


#: Meaning of each code, in one line; README.md's table and `tk help exit-codes` show it.
MEANINGS: Mapping[ExitCode, str] = MappingProxyType(
    {
        ExitCode.OK: "it worked",
        ExitCode.FAILURE: "it failed for a reason without a code of its own",
        ExitCode.USAGE: "the command line asks for something that can't be",
        ExitCode.CONFIG: "a wrong value in tunnelkit.toml, a profile, the environment or a flag",
        ExitCode.NO_SESSION: "there is no session to talk to, or its allocation is over",
        ExitCode.CONNECTION: "a host could not be reached, or refused to let us in",
        ExitCode.HOST_KEY: "a host key is unknown or has changed",
        ExitCode.SCHEDULER: "the scheduler refused the request or can't be asked",
        ExitCode.ALLOCATION: "the allocation ended, never came, or is not what was asked for",
        ExitCode.MIRROR: "the mirror can't be brought in sync, or would be unsafe",
        ExitCode.DEBUG: "the debuggee or its adapter is not available",
        ExitCode.MISSING_PROGRAM: "a program that is needed is not installed",
        ExitCode.TIMEOUT: "something did not happen within its time",
        ExitCode.CHECK_FAILED: "a check of `tk doctor` or `tk simulate` failed",
        ExitCode.DIAGNOSED: "`tk why --check`: the job failed, or can never start",
        ExitCode.INTERRUPTED: "Ctrl-C",
    }
)


class ErrorInfo(TypedDict):
    """An error as JSON. kind: its class. exit_code: an `ExitCode`. The rest: `TunnelkitError`."""

    kind: str
    message: str
    cause: str | None
    hint: str | None
    transient: bool
    exit_code: int


class TunnelkitError(Exception):
    """A failure that the user can act on.

    message: what failed, one line, with the host where it has one.
    cause: why, as the program or system that refused reports it.
    hint: what to do next.
    transient: True when the same call may succeed later without any change.
    """

    exit_code: ExitCode = ExitCode.FAILURE

    def __init__(
        self,
        message: str,
        *,
        cause: str | None = None,
        hint: str | None = None,
        transient: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.cause = cause
        self.hint = hint
        self.transient = transient

    def one_line(self) -> str:
        """Return the error as one line of text: message, cause, hint."""
        text = self.message
        if self.cause:
            text += f": {self.cause}"
        if self.hint:
            text += f" — {self.hint}"
        return " ".join(text.split())

    def to_json(self) -> ErrorInfo:
        """Return the error as the object for `--json` output and the control socket."""
        return {
            "kind": type(self).__name__,
            "message": self.message,
            "cause": self.cause,
            "hint": self.hint,
            "transient": self.transient,
            "exit_code": int(self.exit_code),
        }

    @staticmethod
    def from_json(data: Mapping[str, object]) -> TunnelkitError:
        """Rebuild an error from `to_json`.

        It has its own class or, if that is not imported here, one with the same exit code."""
        known = _subclasses(TunnelkitError)
        kinds = {cls.__name__: cls for cls in known}
        code = data.get("exit_code")
        like = next((cls for cls in known if int(cls.exit_code) == code), TunnelkitError)
        cls = kinds.get(str(data.get("kind")), like)

        def text(key: str) -> str | None:
            value = data.get(key)
            return None if value is None else str(value)

        return cls(
            text("message") or "unknown error",
            cause=text("cause"),
            hint=text("hint"),
            transient=bool(data.get("transient")),
        )


def _subclasses(cls: type[TunnelkitError]) -> list[type[TunnelkitError]]:
    found = [cls]
    for sub in cls.__subclasses__():
        found.extend(_subclasses(sub))
    return found


class UsageError(TunnelkitError):
    """The command line is wrong or asks for something impossible."""

    exit_code = ExitCode.USAGE


class ConfigError(TunnelkitError):
    """tunnelkit.toml, a profile, the environment or a flag holds a wrong value."""

    exit_code = ExitCode.CONFIG


class NotTrusted(ConfigError):
    """A project's tunnelkit.toml sets keys that the user has not agreed to yet."""


class NoSessionError(TunnelkitError):
    """There is no live session."""

    exit_code = ExitCode.NO_SESSION


class ConnectionFailed(TunnelkitError):
    """A host could not be reached, or refused the connection."""

    exit_code = ExitCode.CONNECTION


class AuthenticationFailed(ConnectionFailed):
    """A login was refused, or its question was not answered. The user must act."""


class ConnectionThrottled(ConnectionFailed):
    """A host closes connections before the login (MaxStartups, PerSourcePenalties): wait longer."""


class HostKeyError(ConnectionFailed):
    """A host key is unknown or has changed: a hard stop."""

    exit_code = ExitCode.HOST_KEY


class UnknownHostKey(HostKeyError):
    """The user's StrictHostKeyChecking refuses a host whose key is not known. Nothing has changed:
    a node may be entered another way."""


class SchedulerError(TunnelkitError):
    """The scheduler refused a request or does not answer."""

    exit_code = ExitCode.SCHEDULER


class NotPermitted(SchedulerError):
    """The user lacks the right to ask for this. Others may be there."""


class AllocationError(TunnelkitError):
    """The allocation ended, was not granted, or is not as requested."""

    exit_code = ExitCode.ALLOCATION


class MirrorError(TunnelkitError):
    """The mirror can't sync, or syncing would be unsafe."""

    exit_code = ExitCode.MIRROR


class MirrorHalted(MirrorError):
    """To continue might destroy files: the mirror changes nothing until the user decides."""


class MirrorConflict(MirrorError):
    """Files that the mirror owns were changed on the cluster; none was overwritten."""


class DebugError(TunnelkitError):
    """The debuggee or its adapter is not available."""

    exit_code = ExitCode.DEBUG


class MissingProgram(TunnelkitError):
    """A program that is needed is not installed."""

    exit_code = ExitCode.MISSING_PROGRAM


class TimeoutExpired(TunnelkitError):
    """Something did not happen within its time."""

    exit_code = ExitCode.TIMEOUT
