"""Spans of time in words."""

from __future__ import annotations


def span(seconds: float) -> str:
    """Return a span of time as people say it: `40 s`, `50 min`, `2 h 10 min`, `3 days 4 h`."""
    left = max(0, round(seconds))
    if left < 60:
        return f"{left} s"
    minutes = left // 60
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    first = "1 day" if days == 1 else f"{days} days"
    return f"{first} {hours} h" if hours else first
