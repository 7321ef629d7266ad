"""A scheduler's command that failed, as an error: in its own words, with what to do about it."""

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
    """`words`: what it printed, without prefixes. transient: it could not ask its server
    (`server` is what people call that) at all. hints: pattern of the words -> what to do; the
    first that matches counts."""
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
