"""Errors for what the API server refuses, and for what kubectl says."""

from __future__ import annotations

import json
import re

from tunnelkit.errors import AuthenticationFailed, ConnectionFailed
from tunnelkit.link.kube.printable import printable

LOG_IN = "log in again as you do, such as `oc login`; then: tk auth"
_CANT_LOG_IN = re.compile(
    r"unauthorized|must be logged in|getting credentials|interactive mode|exec plugin"
    r"|token.*expired|invalid bearer token",
    re.IGNORECASE,
)
_REASONS = {
    "BadRequest": 400,
    "Unauthorized": 401,
    "Forbidden": 403,
    "NotFound": 404,
    "AlreadyExists": 409,
    "Conflict": 409,
    "Invalid": 422,
    "TooManyRequests": 429,
}
_FROM_SERVER = re.compile(
    r"(?:Error from server|error) \((\w+)\)(?:: (?:error when [^:]*: )?(.*))?"
)
_INVALID = re.compile(r"^The (?:\S+ \"[^\"]*\"|request) is invalid", re.MULTILINE)
_UPGRADE = re.compile(r"unable to upgrade connection: (Forbidden|Unauthorized)?(.*)")


def said(body: bytes) -> str:
    """Return the words of an answer that is no success: of a Status object, or its text."""
    text = body[: 1 << 16].decode("utf-8", "replace")
    try:
        status = json.loads(text)
    except (ValueError, RecursionError):
        return printable(text)
    message = status.get("message") if isinstance(status, dict) else None
    return printable(str(message or text))


def kubectl_said(stderr: str) -> tuple[int, str]:
    """Return the HTTP status that kubectl's complaint stands for (0: none), and its words."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    text = printable(lines[-1]) if lines else "it said nothing"
    if (found := _INVALID.search(stderr)) is not None:
        return 422, printable(" ".join(stderr[found.start() :].split()))
    for line in reversed(lines[-20:]):
        if (found := _FROM_SERVER.search(line)) is not None:
            return _REASONS.get(found[1], 500), printable(found[2] or line)
        if (found := _UPGRADE.search(line)) is not None:
            return _REASONS.get(found[1] or "", 500), printable(line)
        if _CANT_LOG_IN.search(line):
            return 401, printable(line)
    return 0, text


def refusal(status: int, text: str, *, what: str, where: str) -> ConnectionFailed:
    """Return the error for an HTTP status (0: no answer at all).

    what: what was asked for, after "can't". where: context and namespace."""
    if status == 401 or (status in (0, 500, 502) and _CANT_LOG_IN.search(text)):
        return AuthenticationFailed(
            f"the API server of {where} does not know who you are", cause=text, hint=LOG_IN
        )
    if status == 403:
        return ConnectionFailed(
            f"can't {what} in {where}: you don't have the right to",
            cause=text,
            hint="`tk doctor` prints the Role to ask an administrator for",
        )
    if status == 404:
        return ConnectionFailed(
            f"can't {what} in {where}: it is not there",
            cause=text,
            hint="`kubectl get pods` lists what is; is it the right context and namespace?",
        )
    transient = status == 0 or status == 429 or status >= 500
    return ConnectionFailed(
        f"can't {what} in {where}",
        cause=text,
        transient=transient,
        hint="tk tries again; `tk doctor` checks the way there"
        if transient
        else "`tk doctor` checks the way there",
    )
