"""Durations as Slurm writes and reads them."""

from __future__ import annotations

import re

_DURATION = re.compile(r"(?:(?P<days>[0-9]{1,9})-)?(?P<clock>[0-9]{1,9}(?::[0-9]{1,2}){0,2})")


def parse_duration(text: str) -> int | None:
    """Return the seconds of `%L`'s `[DAYS-]HH:MM:SS` or `MM:SS`.

    None for text that is no duration: UNLIMITED, INVALID (over its limit), NOT_SET, N/A.
    With days, the missing parts are at the right (`1-02` is a day and two hours); without,
    a lone number is minutes (man sbatch, --time).
    """
    match = _DURATION.fullmatch(text.strip())
    if not match:
        return None
    parts = [int(part) for part in match["clock"].split(":")]
    if match["days"] is not None:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
        return ((int(match["days"]) * 24 + hours) * 60 + minutes) * 60 + seconds
    if len(parts) == 1:
        return parts[0] * 60
    total = 0
    for part in parts:
        total = total * 60 + part
    return total


def format_duration(seconds: int) -> str:
    """Format `seconds` as `D-HH:MM:SS` or `HH:MM:SS`, for --time."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    clock = f"{hours:02}:{minutes:02}:{rest:02}"
    return f"{days}-{clock}" if days else clock
