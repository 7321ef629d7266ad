"""Sizes, times and untrusted text for the user."""

from __future__ import annotations


def human_bytes(size_bytes: float) -> str:
    """Format bytes in decimal units, as disks are sold: `1.5 GB`."""
    unit = "B"
    for bigger in ("kB", "MB", "GB"):
        if size_bytes < 1000:
            break
        size_bytes, unit = size_bytes / 1000, bigger
    return (
        f"{size_bytes:.0f} {unit}"
        if unit == "B" or size_bytes >= 100
        else f"{size_bytes:.1f} {unit}"
    )


def duration(seconds: float) -> str:
    """A time for people: `45 s`, `2 min 14 s`, `3 h 5 min`."""
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 1:
        return f"{rest} s"
    hours, left = divmod(minutes, 60)
    return f"{hours} h {left} min" if hours else f"{minutes} min {rest} s"


def out_of_memory(kills: object) -> str:
    """Return what the kernel's kills for memory mean for a program that failed meanwhile.

    kills: their number as the node reports it; "" for 0, and for what is no number.
    """
    if not isinstance(kills, int) or isinstance(kills, bool) or not 0 < kills < 1 << 32:
        return ""
    what = "a process" if kills == 1 else f"{kills} processes"
    return f"out of memory: the kernel killed {what} of this job or pod"


def all_shown(value: object) -> object:
    """Return a JSON value with all its texts as `shown` makes them."""
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, dict):
        return {shown(str(name)): all_shown(one) for name, one in value.items()}
    return [all_shown(one) for one in value] if isinstance(value, list) else value


def shown(text: str, keep: str = "") -> str:
    """Escape the characters of `text` that a terminal would obey, except those in `keep`.

    Text from the cluster must not move the cursor or print a line that looks like tk's."""
    if text.isprintable():
        return text
    return "".join(
        c
        if c.isprintable() or c in keep
        else c.encode("unicode_escape", "backslashreplace").decode()
        for c in text
    )
