"""The error for a scheduler command that failed: its own message, with a hint."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tunnelkit.errors import SchedulerError
from tunnelkit.model import Completed


def refusal_of(
    message: str,
    done: Completed,
    *,
    words: str,
    transient: bool,
    hints: Sequence[tuple[str, str]],
    scheduler: str,
    server: str,
) -> SchedulerError:
    """Return the error for a scheduler command that failed.

    words: its output without prefixes. transient: it could not reach its server (`server` is
    the name that users know). hints: pattern of the words -> hint; the first match counts."""
    if done.exit_code == 127 or "command not found" in words:
        return SchedulerError(
            message,
            cause=words or "the command was not found",
            hint=f'is this a {scheduler} login host? set scheduler = "none" if it has no scheduler',
        )
    if transient:
        return SchedulerError(
            message,
            cause=words,
            hint=f"{server} does not answer now; try again in a minute",
            transient=True,
        )
    hint = next((hint for pattern, hint in hints if re.search(pattern, words, re.I)), None)
    return SchedulerError(message, cause=words or f"exit status {done.exit_code}", hint=hint)
